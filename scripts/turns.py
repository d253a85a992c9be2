"""Taking turns with a user: lines come in, and all that is printed is UTF-8."""

import io
import sys
from collections.abc import Iterator
from typing import TextIO

_RESET = "/reset"


def use_utf8(stream: TextIO) -> None:
    """Whatever the locale; what is no UTF-8 becomes a question mark or U+FFFD."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="replace")


def lines() -> Iterator[str | None]:
    """The lines of stdin, without their ends; None where the user asks to forget."""
    use_utf8(sys.stdin)
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield None if line.strip() == _RESET else line.removesuffix("\n")
