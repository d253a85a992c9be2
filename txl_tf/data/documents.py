"""Document boundaries, at which a model may reset its memory."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from txl_tf.data import text


class Part(NamedTuple):
    """A part of a piece; `begins`: whether a document begins with it."""

    piece: text.Piece
    begins: bool


def _at_file(piece: text.Piece) -> list[int]:
    return [0] if piece.offset == 0 else []


def _at_line(piece: text.Piece) -> list[int]:
    return _line_starts(piece)


def _at_blank_line(piece: text.Piece) -> list[int]:
    """Returns the starts of lines after blank lines; the first lines may be blank themselves."""
    starts, after_blank = _at_file(piece), piece.after_blank
    for start in _line_starts(piece):
        end = piece.data.find(b"\n", start)
        blank = text.is_blank(piece.data[start : end if end >= 0 else None])
        if after_blank and not blank and start not in starts:
            starts.append(start)
        after_blank = blank
    return starts


def _never(piece: text.Piece) -> list[int]:
    del piece
    return []


def _line_starts(piece: text.Piece) -> list[int]:
    """Returns the first byte of each line that begins in a piece."""
    starts, start = [0] if piece.starts_line else [], 0
    while start := piece.data.find(b"\n", start) + 1:
        starts.append(start)
    return starts if not starts or starts[-1] < len(piece.data) else starts[:-1]


BOUNDARIES: Mapping[str, Callable[[text.Piece], list[int]]] = {
    "file": _at_file,
    "blank_line": _at_blank_line,
    "line": _at_line,
    "none": _never,
}


def parts(piece: text.Piece, boundary: str) -> Iterator[Part]:
    """Cuts a piece at document boundaries.

    Args:
      piece: a part of a file.
      boundary: a name in `BOUNDARIES`. "file", "line": each is a document. "blank_line": a document
        begins with each file and with each line after a blank one. "none": no boundaries.
    """
    starts = BOUNDARIES[boundary](piece)
    edges = [*([] if 0 in starts else [0]), *starts, len(piece.data)]
    for begin, end in zip(edges, edges[1:], strict=False):
        yield Part(
            piece._replace(
                data=piece.data[begin:end],
                offset=piece.offset + begin,
                starts_line=piece.starts_line or begin > 0,
                complete=piece.complete and end == len(piece.data),
            ),
            begin in starts,
        )
