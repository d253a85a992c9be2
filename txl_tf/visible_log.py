"""Shows the package's log lines in programs that have not set absl's verbosity."""

import contextlib
import logging as python_logging
import os
from collections.abc import Iterator

from absl import logging

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Shows this package's log lines of level INFO, unless the program has configured logging.

    absl hides them until a program, or `app.run`, sets its verbosity. Programs that have set it,
    for example by `logging.set_verbosity(logging.WARNING)`, or whose own logging shows INFO are
    unaffected. Lines go to the program's handlers, or to stderr as absl does. Also a decorator.
    """
    logger = logging.get_absl_logger()
    if logger.level != python_logging.NOTSET or logger.isEnabledFor(python_logging.INFO):
        yield
        return
    logger.addFilter(_is_ours)
    logger.setLevel(python_logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(python_logging.NOTSET)
        logger.removeFilter(_is_ours)


def _is_ours(record: python_logging.LogRecord) -> bool:
    return record.levelno > python_logging.INFO or record.pathname.startswith(_PACKAGE)
