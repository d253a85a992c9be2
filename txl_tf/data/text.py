"""Text files to pieces: found, opened, decompressed, cut between words, decoded.

A file is plain or compressed, by its first bytes; known binary types are an error.

A file is cut into pieces of at most a mebibyte, which can be processed independently: after the
last line end in the last 64 KiB, else after the last ASCII white space there, else after other
white space, else between two characters. So no word is cut, whichever white space separates words.
Cuts depend on the text alone, so the number of workers does not matter.

A line ends at "\\n" only. Other Unicode white space, a lone carriage return included, separates
words but does not end a line.
"""

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from absl import logging

from txl_tf.data import compression, file_types, files

PIECE_BYTES = 1 << 20
SEARCH_BYTES = 1 << 16
LONGEST_WHOLE = 1 << 26  # bytes of a text read as a whole, not in pieces
WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))  # where str.split splits
WHITE_SPACES = {"unicode": WHITE_SPACE, "ascii": "\t\n\v\f\r "}  # "ascii": where bytes.split splits
WORDS: Mapping[str, Callable[[str], list[str]]] = {  # the words of a text, by name of white space
    "unicode": str.split,
    "ascii": re.compile(r"\S+", re.ASCII).findall,
}
INVALID_UTF8 = ("error", "replace")
_SPACES = [[c.encode("utf-8") for c in WHITE_SPACES[name]] for name in ("ascii", "unicode")]
_HEAD_BYTES = 1 << 10  # of a file, that identify its type
_LOOK_BYTES = 1 << 16  # of a text, in which NULs are counted
_READ = "plain or compressed with " + ", ".join(c.name for c in compression.COMPRESSIONS)
_BYTE_ORDER_MARK = "\ufeff"


class InvalidUtf8Error(ValueError):
    """Raised for bytes that are not UTF-8; programs that can replace them add how."""


class Piece(NamedTuple):
    """A part of a text file.

    Attributes:
      data: UTF-8 bytes, or any bytes for a tokenizer of bytes.
      name: of the file, for messages.
      offset: of the first byte in the (decompressed) file.
      starts_line: whether a line begins here.
      after_blank: whether that line follows a blank one.
      complete: whether the file ends here; its last line may lack a line end.
    """

    data: bytes
    name: str = "text"
    offset: int = 0
    starts_line: bool = True
    after_blank: bool = False
    complete: bool = True


class Source(NamedTuple):
    """A text that can be opened repeatedly.

    Attributes:
      name: a path, as in messages and JSON, or another name.
      size: in bytes, as stored.
      open: opens the stored bytes.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]

    @classmethod
    def from_path(cls, path: str) -> "Source":
        """Returns a text file as a source; a first look at it detects errors and oddities.

        Raises:
          ValueError: the file does not exist, or is of another type; names it.
        """
        files.check_no_folder(path)
        if not files.exists(path):
            raise ValueError(f"{path} must be a file, got no such file")
        source = cls(files.shown(path), files.size(path), lambda: files.open_bytes(path))
        if files.is_remote(path) or os.path.isfile(path):  # a pipe can be read only once
            with Reader(source) as reader:
                oddity = file_types.oddity(reader.text(_LOOK_BYTES))
            if oddity is not None:
                logging.warning("%s: %s", source.name, oddity)
        return source

    @classmethod
    def from_text(cls, name: str, content: str) -> "Source":
        """Returns a text in memory as a source."""
        data = content.encode("utf-8")
        return cls(name, len(data), lambda: io.BytesIO(data))


def find(patterns: Sequence[str]) -> list[Source]:
    """Returns the files of paths and globs, in the given order; those of a glob sorted.

    Raises:
      ValueError: a path does not exist, or is a pipe; a glob matches nothing; a file is repeated.
    """
    paths: list[str] = []
    for pattern in patterns:
        is_glob = any(letter in pattern for letter in "*?[") and not files.exists(pattern)
        if files.is_folder(pattern):
            raise ValueError(f"{pattern} must be a file, got a folder; try {pattern.rstrip('/')}/*")
        found = [p for p in files.glob(pattern) if not files.is_folder(p)] if is_glob else [pattern]
        if not found:
            raise ValueError(f"{pattern} must match a file, got none")
        paths += found
    seen: set[str] = set()
    for path in paths:
        real = path if files.is_remote(path) else os.path.realpath(path)
        if real in seen:
            raise ValueError(f"files of a split must be distinct, got {path} twice")
        seen.add(real)
        if files.exists(path) and not (files.is_remote(path) or os.path.isfile(path)):
            raise ValueError(
                f"{path} must be a regular file, which can be read twice, got a pipe or a device; "
                "write its text into a file first"
            )
    return [Source.from_path(path) for path in paths]


class _Stored:
    """The stored bytes of a source, hashed and counted as they are read.

    Attributes:
      head: the first bytes, not read yet.
    """

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.sha256 = hashlib.sha256()
        self.consumed = 0
        self.head = file.read(_HEAD_BYTES)

    def read(self, size: int, /) -> bytes:
        data, self.head = self.head[:size], self.head[size:]
        data = data or self.file.read(size)
        self.sha256.update(data)
        self.consumed += len(data)
        return data


class Reader:
    """Reads the text of a source, decompressed if necessary.

    Raises:
      ValueError: the first bytes are of another file type; names it.
    """

    def __init__(self, source: Source):
        self.name = source.name
        self._stored = _Stored(source.open())
        self._text: compression.Readable = self._stored
        self._head = b""  # of the text, not read yet
        self._packed = compression.detect(self._stored.head)
        try:
            self._open()
        except BaseException:
            self._stored.file.close()
            raise

    def _open(self) -> None:
        head, within = self._stored.head, ""
        if self._packed is not None:
            self._text, within = self._packed.open(self._stored), f" within {self._packed.name}"
            head = self._head = self.text(_HEAD_BYTES)
        other_type = file_types.detect(head)
        if self._packed is not None and (again := compression.detect(head)):
            other_type = file_types.FileType(again.name, file_types.UNPACK)
        if other_type is not None:
            raise ValueError(
                f"{self.name} must be UTF-8 text, {_READ}, "
                f"got {other_type.name}{within}; {other_type.advice}"
            )

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_) -> None:
        self._stored.file.close()

    @property
    def consumed(self) -> int:
        """Number of stored bytes read so far."""
        return self._stored.consumed

    @property
    def sha256(self) -> str:
        """SHA-256 of the stored bytes read so far."""
        return self._stored.sha256.hexdigest()

    def text(self, size: int) -> bytes:
        """Returns exactly `size` bytes of text, fewer only at the end."""
        parts, self._head = [self._head[:size]], self._head[size:]
        size -= len(parts[0])
        while size > 0 and (part := self._read_text(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def whole(self) -> bytes:
        """Returns the whole text.

        Raises:
          ValueError: it is longer than `LONGEST_WHOLE`, the maximum held in memory.
        """
        data = self.text(LONGEST_WHOLE + 1)
        check_whole(self.name, len(data))
        return data

    def _read_text(self, size: int) -> bytes:
        try:
            return self._text.read(size)
        except compression.DAMAGE as error:
            kind = self._packed.name if self._packed else "plain"
            raise ValueError(
                f"{self.name} must be a whole {kind} file, got damage: {error}"
            ) from error

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[Piece]:
        """Yields the text in pieces, one in memory at a time; the last, maybe empty, is complete.

        Args:
          size: maximum bytes of a piece; at least 4, so that a character fits.
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


def check_whole(name: str, num_bytes: int) -> None:
    """Raises if a text is too long to be held in memory as a whole."""
    if num_bytes > LONGEST_WHOLE:
        raise ValueError(f"{name} must be a text of at most {LONGEST_WHOLE} bytes, got more")


def sha256(source: Source) -> str:
    """Returns the SHA-256 of the stored bytes of a source, as `sha256sum` prints it."""
    with source.open() as stored:
        return files.digest(stored)


def _cut(data: bytes) -> int:
    """Returns the end of a piece; see the module docstring."""
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
    """Returns (whether a line begins after a piece, whether that follows a blank line)."""
    if not piece.data.endswith(b"\n"):
        return (False, False) if piece.data else (piece.starts_line, piece.after_blank)
    before, line_end, last = piece.data[:-1].rpartition(b"\n")
    return True, bool(line_end or piece.starts_line) and is_blank(last)


def is_blank(line: bytes) -> bool:
    """Whether a line is only white space."""
    return not line.strip() or not line.decode("utf-8", "replace").strip()


def decode(piece: Piece, invalid_utf8: str = "error") -> str:
    """Returns the characters of a piece, without a byte-order mark at the start of the file.

    Raises:
      InvalidUtf8Error: the bytes are not UTF-8, and not to be replaced by U+FFFD; names file and
        byte offset.
    """
    try:
        text = piece.data.decode("utf-8", "strict" if invalid_utf8 == "error" else invalid_utf8)
    except UnicodeDecodeError as error:
        raise InvalidUtf8Error(
            f"{piece.name} must be UTF-8, got byte 0x{piece.data[error.start]:02x} at offset "
            f"{piece.offset + error.start}; iconv converts other encodings"
        ) from error
    return text.removeprefix(_BYTE_ORDER_MARK) if piece.offset == 0 else text


def utf8_size(content: str) -> int:
    """Returns the size of a text in UTF-8 bytes."""
    return len(content) if content.isascii() else len(content.encode("utf-8", "surrogatepass"))


def size(piece: Piece) -> int:
    """Returns the bytes that `decode` decodes, before any replacement."""
    mark = _BYTE_ORDER_MARK.encode("utf-8")
    return len(piece.data) - len(mark) * (piece.offset == 0 and piece.data.startswith(mark))
