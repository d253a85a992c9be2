"""Text files to pieces: found, opened, decompressed, cut where no word breaks, decoded.

A file is cut into pieces of at most a mebibyte, which may be worked on apart from each other: after
the last line end in the last 64 KiB, else after the last white space of ASCII there, else after
other white space, else between two characters. So no word breaks, whichever white space is between
words. Cuts depend on the text alone, so the number of workers never shows.

A line ends at "\\n" only. All else that Unicode calls white space, a lone carriage return included,
separates words and ends no line.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from txl_tf.data import files

PIECE_BYTES = 1 << 20
SEARCH_BYTES = 1 << 16
WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))  # where str.split splits
WHITE_SPACES = {"unicode": WHITE_SPACE, "ascii": "\t\n\v\f\r "}  # "ascii": where bytes.split splits
INVALID_UTF8 = ("error", "replace")
_SPACES = [[c.encode("utf-8") for c in WHITE_SPACES[name]] for name in ("ascii", "unicode")]
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = "\ufeff"


class Piece(NamedTuple):
    """A stretch of a text file.

    Attributes:
      data: UTF-8 bytes, or any bytes where the tokenizer does not mind.
      name: of the file, for messages.
      offset: of the first byte in the (decompressed) file.
      starts_line: whether a line begins here.
      after_blank: whether that line stands after a blank one.
      complete: whether the file ends here, and so a last line without a line end.
    """

    data: bytes
    name: str = "text"
    offset: int = 0
    starts_line: bool = True
    after_blank: bool = False
    complete: bool = True


class Source(NamedTuple):
    """A text that can be opened, perhaps several times.

    Attributes:
      name: a path, or what stands for one.
      size: stored bytes.
      open: opens the stored bytes.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]

    @classmethod
    def from_path(cls, path: str) -> "Source":
        """A file, plain or gzip."""
        if files.is_folder(path):
            raise ValueError(f"{path} must be a file, got a folder; try {path.rstrip('/')}/*")
        if not files.exists(path):
            raise ValueError(f"{path} must be a file, got none of that name")
        return cls(path, files.size(path), lambda: files.open_bytes(path))

    @classmethod
    def from_text(cls, name: str, content: str) -> "Source":
        """Text in memory."""
        data = content.encode("utf-8")
        return cls(name, len(data), lambda: io.BytesIO(data))


def find(patterns: Sequence[str]) -> list[Source]:
    """The files of paths and globs, in the given order; those of a glob sorted.

    Raises:
      ValueError: a path does not exist, a glob matches nothing, a file comes twice.
    """
    paths: list[str] = []
    for pattern in patterns:
        is_glob = any(letter in pattern for letter in "*?[") and not files.exists(pattern)
        found = [p for p in files.glob(pattern) if not files.is_folder(p)] if is_glob else [pattern]
        if not found:
            raise ValueError(f"{pattern} must match a file, got none")
        paths += found
    again = next((path for i, path in enumerate(paths) if path in paths[:i]), None)
    if again:
        raise ValueError(f"{again} must be given once for a split, got it twice")
    return [Source.from_path(path) for path in paths]


class _Stored:
    """The stored bytes of a source, summed up as they are read."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.sha256 = hashlib.sha256()
        self.consumed = 0
        self._head = file.read(len(_GZIP_MAGIC))  # looked at, not read yet
        self.is_gzip = self._head == _GZIP_MAGIC

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        data = head + self.file.read(max(size - len(head), 0) if size >= 0 else -1)
        self.sha256.update(data)
        self.consumed += len(data)
        return data


class Reader:
    """Reads the text of a source, decompressed where it is gzip by its first two bytes."""

    def __init__(self, source: Source):
        self.name = source.name
        self._stored = _Stored(source.open())
        self._text: Any = self._stored
        if self._stored.is_gzip:
            self._text = gzip.GzipFile(fileobj=cast(IO[bytes], self._stored), mode="rb")

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_) -> None:
        self._stored.file.close()

    @property
    def consumed(self) -> int:
        """Stored bytes read so far."""
        return self._stored.consumed

    @property
    def sha256(self) -> str:
        """Of the stored bytes read so far."""
        return self._stored.sha256.hexdigest()

    def text(self, size: int) -> bytes:
        """Exactly `size` bytes of text, fewer only at the end."""
        parts = []
        while size > 0 and (part := self._read_text(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _read_text(self, size: int) -> bytes:
        try:
            return self._text.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{self.name} must be a whole gzip file, got damage: {error}"
            ) from error

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[Piece]:
        """Cuts the text, one piece in memory at a time; the last, perhaps empty, is complete.

        Args:
          size: most bytes of a piece; at least 4, so that a character fits in.
        """
        rest, offset, starts_line, after_blank, complete = b"", 0, True, False, False
        while not complete:
            data = rest + self.text(size - len(rest))
            complete = len(data) < size
            cut = len(data) if complete else _cut(data)
            piece = Piece(data[:cut], self.name, offset, starts_line, after_blank, complete)
            yield piece
            rest, offset = data[cut:], offset + cut
            starts_line, after_blank = _state_after(piece)


def sha256(source: Source) -> str:
    """Of the stored bytes of a source, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    with source.open() as stored:
        while part := stored.read(PIECE_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _cut(data: bytes) -> int:
    """Where to end a piece; see the top of this file."""
    window = data[-SEARCH_BYTES:]
    start = len(data) - len(window)
    if b"\n" in window:
        return start + window.rindex(b"\n") + 1
    for spaces in _SPACES:
        if ends := [window.rindex(s) + len(s) for s in spaces if s in window]:
            return start + max(ends)
    lead = next((i for i in (1, 2, 3) if data[-i] & 0xC0 == 0xC0), 0)  # first byte of a character
    return len(data) - lead if lead < len(data) else len(data)


def _state_after(piece: Piece) -> tuple[bool, bool]:
    """Whether a line begins after a piece, and whether it stands after a blank line."""
    if not piece.data.endswith(b"\n"):
        return (False, False) if piece.data else (piece.starts_line, piece.after_blank)
    before, line_end, last = piece.data[:-1].rpartition(b"\n")
    return True, bool(line_end or piece.starts_line) and is_blank(last)


def is_blank(line: bytes) -> bool:
    """Whether a line holds nothing but white space."""
    return not line.strip() or not line.decode("utf-8", "replace").strip()


def decode(piece: Piece, invalid_utf8: str = "error") -> str:
    """The characters of a piece, without a byte-order mark at the start of the file.

    Raises:
      ValueError: the bytes are not UTF-8, and not to be replaced by U+FFFD; names file and byte.
    """
    try:
        text = piece.data.decode("utf-8", "strict" if invalid_utf8 == "error" else invalid_utf8)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{piece.name} must be UTF-8, got byte 0x{piece.data[error.start]:02x} at offset "
            f"{piece.offset + error.start}; --invalid_utf8=replace puts U+FFFD in its place"
        ) from error
    return text.removeprefix(_BYTE_ORDER_MARK) if piece.offset == 0 else text


def size(piece: Piece) -> int:
    """Bytes of what `decode` returns, before any replacement."""
    mark = _BYTE_ORDER_MARK.encode("utf-8")
    return len(piece.data) - len(mark) * (piece.offset == 0 and piece.data.startswith(mark))
