"""Reads the lines of an interactive session."""

import sys
from collections.abc import Iterator

from txl_tf.cli import streams

_RESET = "/reset"


def lines() -> Iterator[str | None]:
    """Yields the lines of stdin without their ends, and None for "/reset"."""
    streams.use_utf8(sys.stdin, "replace")
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield None if line.strip() == _RESET else line.removesuffix("\n")
