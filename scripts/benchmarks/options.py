"""Options of the benchmark program's suites."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run, from its flags; each suite reads those that it needs.

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
