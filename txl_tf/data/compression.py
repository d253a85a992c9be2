"""Compressed files as byte streams in constant memory, recognised by their first bytes."""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from typing import IO, Any, NamedTuple, Protocol, cast

_CHUNK_BYTES = 1 << 16


class DamagedError(Exception):
    """Raised for compressed data that is truncated or corrupt."""


DAMAGE = (DamagedError, EOFError, zlib.error, gzip.BadGzipFile)  # raised while reading


class Readable(Protocol):
    """A file with `read` alone: returns 1 to `size` bytes, none at the end."""

    def read(self, size: int, /) -> bytes:
        """Returns the next bytes."""
        ...


class _Streams:
    """Decompresses concatenated streams.

    `bz2.BZ2File` and the like silently stop at a damaged later stream.
    """

    def __init__(self, file: Readable, start: Callable[[], Any]):
        self._file = file
        self._start = start  # for example `bz2.BZ2Decompressor`
        self._stream = start()

    def read(self, size: int, /) -> bytes:
        data = b""
        while not data:
            if self._stream.eof:
                rest = self._next_stream()
                if not rest:
                    break
                self._stream = self._start()
            else:
                rest = self._file.read(_CHUNK_BYTES) if self._stream.needs_input else b""
                if self._stream.needs_input and not rest:
                    raise DamagedError("it ends too early")
            data = self._decompress(rest, size)
        return data

    def _next_stream(self) -> bytes:
        """Returns the first bytes after a stream and its NUL padding; none at the end."""
        rest = self._stream.unused_data
        while rest or (rest := self._file.read(_CHUNK_BYTES)):
            if rest := rest.lstrip(b"\0"):
                break
        return rest

    def _decompress(self, data: bytes, size: int) -> bytes:
        try:
            return self._stream.decompress(data, size)
        except MemoryError:
            raise
        except Exception as error:  # each library raises its own
            raise DamagedError(str(error)) from error


def _zstd_decompressor() -> Any:
    try:
        from backports import zstd  # here, so that only zstd files need it
    except ImportError as error:
        raise ValueError(
            "backports.zstd must be installed to read zstd files, got none; "
            "pip install backports.zstd"
        ) from error
    return zstd.ZstdDecompressor()


class Compression(NamedTuple):
    """A supported compression.

    Attributes:
      name: for messages.
      magic: pattern of a file's first bytes.
      open: returns a decompressing stream of a file.
    """

    name: str
    magic: re.Pattern[bytes]
    open: Callable[[Readable], Readable]


COMPRESSIONS = (
    Compression(
        "gzip",
        re.compile(rb"\x1f\x8b"),
        lambda file: gzip.GzipFile(fileobj=cast(IO[bytes], file), mode="rb"),
    ),
    Compression(
        "bzip2",
        re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),  # then a block or the end
        lambda file: _Streams(file, bz2.BZ2Decompressor),
    ),
    Compression(
        "xz",
        re.compile(rb"\xfd7zXZ\0|\x5d\0\0"),  # the latter is .lzma
        lambda file: _Streams(file, lzma.LZMADecompressor),
    ),
    Compression(
        "zstd",
        re.compile(rb"(\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"),  # a frame, or a skippable one
        lambda file: _Streams(file, _zstd_decompressor),
    ),
)


def detect(head: bytes) -> Compression | None:
    """Returns the compression of a file with these first bytes, or None if not compressed."""
    return next((item for item in COMPRESSIONS if item.magic.match(head)), None)
