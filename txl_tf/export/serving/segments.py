"""Segment-wise reading of rows of ids in a graph."""

import tensorflow as tf


class Segments:
    """Rows cut into equal segments, all at the same positions, up to the longest row.

    Shapes: ids [B, N] int32; lengths [B], number of real ids of each row, from the first on.

    Args:
      max_len: maximum tokens of a segment.
      min_count: minimum number of segments, even if empty.

    Attributes:
      count: number of segments.
      padded: total number of tokens.
    """

    def __init__(self, ids, lengths, max_len: int, min_count: int = 0):
        longest = tf.reduce_max(tf.concat([lengths, [min_count]], axis=0))
        ids = ids[:, :longest]
        self._lengths = lengths
        self._size = tf.clip_by_value(longest, 1, max_len)
        self.count = -(-longest // self._size)
        self.padded = self.count * self._size
        self._ids = tf.pad(ids, [[0, 0], [0, self.padded - tf.shape(ids)[1]]])

    def part(self, i):
        """Returns segment i: ids [B, T], and the number of real ones, [B]."""
        start = i * self._size
        real = tf.clip_by_value(self._lengths - start, 0, self._size)
        return self._ids[:, start : start + self._size], real
