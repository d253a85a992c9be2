"""Splits rows of ids of different lengths into padded segments of few shapes."""

from collections.abc import Iterator, Sequence

import numpy as np


def cut(rows: Sequence[np.ndarray], segment_len: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (ids, lengths) up to the end of the longest row.

    All rows are split at the same positions, so results do not depend on other rows. A segment
    shorter than `segment_len` is padded to a power of two: a compiled function sees few shapes, and
    the cost follows the length.

    Shapes: ids [B, T] int32, 0 where padded, T at most segment_len; lengths [B] int32.
    """
    for start in range(0, max((len(row) for row in rows), default=0), segment_len):
        pieces = [row[start : start + segment_len] for row in rows]
        lengths = np.array([len(piece) for piece in pieces], np.int32)
        size = min(segment_len, 1 << int(lengths.max() - 1).bit_length())
        ids = np.zeros([len(rows), size], np.int32)
        for row, piece in zip(ids, pieces, strict=True):
            row[: len(piece)] = piece
        yield ids, lengths
