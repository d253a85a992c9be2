"""Packages that only an extra of the installation brings: serving, edge or sentencepiece."""

import contextlib
from collections.abc import Iterator


class MissingExtraError(ImportError):
    """A package of an extra is not installed."""


@contextlib.contextmanager
def required(extra: str) -> Iterator[None]:
    """Imports inside need an extra, which their failure names.

        with extras.required("serving"):
            import grpc

    Raises:
      MissingExtraError: a package is not installed, as in "needs grpc: pip install
        'txl_tf[serving]'".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "txl_tf"):
            raise
        message = f"needs {package}: pip install 'txl_tf[{extra}]'"
        raise MissingExtraError(message, name=error.name) from error
