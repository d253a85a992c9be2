"""Locks between processes, which the kernel frees however a process ends."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from absl import logging

_NOT_SUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def held(path: str, refusal: str, *, removed: bool = False) -> Iterator[None]:
    """Holds a local file, which is made if need be and whose contents stay as they are.

    On a file system without locks nothing is held, and a warning says so.

    Args:
      path: the file.
      refusal: the message where another process holds it, or this one already.
      removed: whether the file, if it is empty, is removed at the end.

    Raises:
      ValueError: `refusal`.
    """
    descriptor = _locked(path, refusal)
    try:
        yield
    finally:
        if removed and os.fstat(descriptor).st_size == 0:
            with contextlib.suppress(OSError):
                os.remove(path)  # while it is held: who opened it before sees that it is gone
        os.close(descriptor)


def _locked(path: str, refusal: str) -> int:
    """The descriptor of a file that is locked and still has its name."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(path, descriptor):
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


def _is_there(path: str, descriptor: int) -> bool:
    """Whether nobody removed the file between its opening and its locking."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
