"""How what is wrong with a file becomes one ValueError, of one line, that names the file."""

import contextlib
from collections.abc import Iterator


class UnsafeFileError(ValueError):
    """What a file may not hold; completes the sentence that begins with the file's name."""


def shown(text: str) -> str:
    """Text from a file, short and on one line."""
    return (text if text.isprintable() else ascii(text))[:100]


@contextlib.contextmanager
def naming(path: str, what: str) -> Iterator[None]:
    """Puts the name of a file before all that goes wrong while it is read.

    Args:
      path: the file.
      what: it is to be a whole file of.
    """
    try:
        yield
    except UnsafeFileError as error:
        raise ValueError(f"{path} {error}") from error
    except Exception as error:  # pickle and zipfile meet damage with a dozen kinds of exceptions
        reason = shown(f"{type(error).__name__} {error}".strip())
        raise ValueError(f"{path} must be a whole file of {what}, got damage: {reason}") from error
