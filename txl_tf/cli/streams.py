"""Standard streams of programs: always open, UTF-8, and named in errors."""

import io
import os
import sys
from typing import Any, TextIO

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_closed() -> None:
    """Opens closed standard streams (`>&-`) as the null device.

    Otherwise the next opened file gets the descriptor of a stream, and receives the output of
    libraries.
    """
    for number, (name, mode) in enumerate(_MODES.items()):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.dup2(descriptor, number)  # child processes inherit it
            if descriptor != number:
                os.close(descriptor)
        stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - it stays open
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


class _Named(io.FileIO):
    """A file descriptor that it does not close, with its title in errors, like a path."""

    def __init__(self, descriptor: int, title: str):
        super().__init__(descriptor, "w", closefd=False)
        self._title = title

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._title) from error


def name_errors(name: str, title: str) -> None:
    """Adds a title to write errors of a stream of `sys`: "standard output: No space left"."""
    stream = getattr(sys, name)
    if not isinstance(stream, io.TextIOWrapper):  # replaced by a notebook or a test
        return
    stream.flush()
    buffered = isinstance(stream.buffer, io.BufferedWriter)  # not so under `python -u`
    named = _Named(stream.fileno(), title)
    target: Any = io.BufferedWriter(named) if buffered else named
    named_stream = io.TextIOWrapper(
        target,
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=not buffered,
    )
    setattr(sys, name, named_stream)


def use_utf8(stream: TextIO, errors: str) -> None:
    """Sets UTF-8 in any locale, so that results can be printed; `errors` as in `str.encode`."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=errors)
