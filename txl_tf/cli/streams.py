"""Standard streams that can always be read and written: never closed, and UTF-8."""

import io
import os
import sys
from typing import TextIO

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


def use_utf8(stream: TextIO, errors: str) -> None:
    """Whatever the locale, so that no letter fails after the work; `errors` as in `str.encode`."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=errors)
