"""Rows of ids in a graph, read segment by segment."""

import tensorflow as tf


class Segments:
    """Rows cut at the same places into equal segments, no longer than the longest row.

    Shapes: ids [B, N] int32; lengths [B], how many of the N are real, the first ones.

    Args:
      most: tokens of a segment.
      least: segments there are at least, be they empty.

    Attributes:
      count: how many segments.
      padded: tokens of all of them.
    """

    def __init__(self, ids, lengths, most: int, least: int = 0):
        longest = tf.reduce_max(tf.concat([lengths, [least]], axis=0))
        ids = ids[:, :longest]
        self._lengths = lengths
        self._size = tf.clip_by_value(longest, 1, most)
        self.count = -(-longest // self._size)
        self.padded = self.count * self._size
        self._ids = tf.pad(ids, [[0, 0], [0, self.padded - tf.shape(ids)[1]]])

    def part(self, i):
        """Segment i: ids [B, T], and how many of them are real, [B]."""
        start = i * self._size
        real = tf.clip_by_value(self._lengths - start, 0, self._size)
        return self._ids[:, start : start + self._size], real
