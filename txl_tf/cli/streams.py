"""Standard streams that can always be read and written: never closed, UTF-8, named in errors."""

import io
import os
import sys
from typing import Any, TextIO

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_closed() -> None:
    """Opens those that are closed (`>&-`) as the null device.

    Else the next file that is opened gets the number of one, and whatever the libraries print.
    """
    for number, (name, mode) in enumerate(_MODES.items()):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.dup2(descriptor, number)  # which child processes have too
            if descriptor != number:
                os.close(descriptor)
        stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - it stays open
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


class _Named(io.FileIO):
    """A descriptor that others close. Its errors name it, as those of a file name the path."""

    def __init__(self, descriptor: int, title: str):
        super().__init__(descriptor, "w", closefd=False)
        self._title = title

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._title) from error


def name_errors(name: str, title: str) -> None:
    """Lets errors in writing to a stream of `sys` say where: "standard output: No space left"."""
    stream = getattr(sys, name)
    if not isinstance(stream, io.TextIOWrapper):  # that of a notebook, or of a test
        return
    stream.flush()
    buffered = isinstance(stream.buffer, io.BufferedWriter)  # else as by `python -u`
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
    """Whatever the locale, so that no letter fails after the work; `errors` as in `str.encode`."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=errors)
