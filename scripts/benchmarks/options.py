"""How a suite of scripts/benchmark.py is run."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the flags say of a run; a suite reads of it what it has a use for.

    Attributes:
      repeats: turns of each contender.
      peers: an interpreter with torch and transformers, to race against; see peer.py.
      precisions: that ours compute in.
      jits: whether XLA compiles ours.
      profile: a folder for a trace of the first of ours.
    """

    repeats: int = 7
    peers: str | None = None
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    jits: tuple[bool, ...] = (False, True)
    profile: str | None = None
