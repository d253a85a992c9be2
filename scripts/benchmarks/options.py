"""Options shared by the suites of the benchmark program."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run; each suite reads the ones it needs.

    Attributes:
      repeats: number of timed turns of each contender.
      peers: path of an interpreter with torch and transformers to compare with; see
        workers/hf_client.py.
      precisions: compute precisions of txl_tf.
      jits: whether XLA compiles txl_tf's functions; each value is measured.
      profile: folder for a trace of txl_tf's first contender.
    """

    repeats: int = 7
    peers: str | None = None
    precisions: tuple[str, ...] = ("float32", "bfloat16")
    jits: tuple[bool, ...] = (False, True)
    profile: str | None = None
