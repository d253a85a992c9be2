"""Inter-process file locks, released by the kernel however a process ends."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from absl import logging

_NOT_SUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def held(path: str, refusal: str, *, remove: bool = False) -> Iterator[None]:
    """Holds an exclusive lock on a local file, created if missing; its contents stay.

    On a file system without locks nothing is locked, and a warning is logged.

    Args:
      path: the file.
      refusal: error message if another process, or this one, holds the lock already.
      remove: whether to remove the file at the end if it is empty.

    Raises:
      ValueError: `refusal`.
    """
    descriptor = _locked(path, refusal)
    try:
        yield
    finally:
        if remove and os.fstat(descriptor).st_size == 0:
            with contextlib.suppress(OSError):
                os.remove(path)  # still locked: a waiting opener sees that it is gone
        os.close(descriptor)


def _locked(path: str, refusal: str) -> int:
    """Returns the descriptor of a locked file that still has its name."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_name(path, descriptor):
                return descriptor
            os.close(descriptor)
        except OSError as error:
            if error.errno in _NOT_SUPPORTED:
                logging.warning("%s cannot be locked: let no other process write there", path)
                return descriptor
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise ValueError(refusal) from error
            raise


def _has_name(path: str, descriptor: int) -> bool:
    """Whether the file was not removed between opening and locking."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
