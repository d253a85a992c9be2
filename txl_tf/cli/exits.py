"""Ends a program with one line on stderr, from its first import on."""

import os
import sys
from types import TracebackType
from typing import NoReturn

INTERRUPTED = 130  # by Ctrl-C: the convention of shells


def leave(code: int, message: str) -> NoReturn:
    """Prints the program's name and a message, and exits."""
    print(f"{name()}: {message}", file=sys.stderr)
    sys.exit(code)


def name() -> str:
    """Returns the name of the program, as in its messages."""
    return os.path.splitext(os.path.basename(sys.argv[0]))[0]


def handle_interrupts() -> None:
    """Turns a Ctrl-C that nothing catches, such as during an import, into one line."""
    show = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            leave(INTERRUPTED, "interrupted")
        show(kind, error, traceback)

    sys.excepthook = hook
