"""Seekable files, local or remote."""

import contextlib
import io
from collections.abc import Iterator
from typing import IO, Any, cast

from txl_tf.data import files

_BUFFER = 1 << 20


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[IO[bytes], int]]:
    """Opens a file for reading and seeking; yields it and its size in bytes.

    Raises:
      ValueError: the file does not exist.
    """
    path = str(path)
    if not files.exists(path):
        raise ValueError(f"{path} must be a file, got no such file")
    files.check_no_folder(path)
    size = files.size(path)
    with files.open_bytes(path) as file:
        if files.is_remote(path):
            yield cast(IO[bytes], io.BufferedReader(_Remote(file), _BUFFER)), size
        else:
            yield file, size


class _Remote(io.RawIOBase):
    """TensorFlow's file as a raw IO object, for buffering."""

    def __init__(self, file: Any):
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
