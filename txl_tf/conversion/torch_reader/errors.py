"""Errors of reading a file, each turned into a one-line ValueError that names the file."""

import contextlib
from collections.abc import Iterator


class UnsafeFileError(ValueError):
    """Raised for content that is not allowed in a file; the message follows the file's name."""


def shown(text: str) -> str:
    """Returns text from a file, shortened and on one line."""
    return (text if text.isprintable() else ascii(text))[:100]


@contextlib.contextmanager
def naming(path: str, what: str) -> Iterator[None]:
    """Adds the name of a file to all errors raised while it is read.

    Args:
      path: the file.
      what: contents of the file, as in "must be a whole file of WHAT".
    """
    try:
        yield
    except UnsafeFileError as error:
        raise ValueError(f"{path} {error}") from error
    except Exception as error:  # damage raises a dozen kinds in pickle and zipfile
        reason = shown(f"{type(error).__name__} {error}".strip())
        raise ValueError(f"{path} must be a whole file of {what}, got damage: {reason}") from error
