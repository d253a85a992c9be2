"""Stateless dropout: the mask is a function of (seed, step, global row, layer site).

So a resumed run draws the same masks as an uninterrupted one, and so does any number of replicas:
a row keeps its global index wherever it is computed.
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.ops import stateless_random
from txl_tf.ops.shapes import shape_of


class DropoutKey(NamedTuple):
    """Key that determines the masks of one call."""

    seed: Any  # [2] int32: the run's seed and the step
    rows: Any  # [B] int32: global indices of the batch's rows

    def fold_in(self, number):
        """Returns an independent key, derived from this one and `number`."""
        return self._replace(seed=stateless_random.fold_in(self.seed, number))


def dropout(x, rate, key, site, by_row=True):
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    Shapes:
      x: [B, ...] with `by_row`, else any shape, drawn once for all rows.
      returns the shape of x.

    Args:
      x: floating-point tensor.
      rate: a Python float, at least 0 and below 1, taken to the nearest 1 / 65,536.
      key: a DropoutKey, or None for no dropout.
      site: an int, unique to this use of dropout in the model.
      by_row: whether the first axis is that of `key.rows`.
    """
    if key is None or rate == 0.0:
        return x
    shape = shape_of(x)
    count = _product(shape[1:] if by_row else shape)
    bits = _bits((count + 1) // 2, key, site, by_row)  # each is two draws of 16 bits
    threshold = _uint32(round(rate * 2**16) << 16)
    low = tf.bitwise.left_shift(bits, _uint32(16))
    kept = tf.concat([bits >= threshold, low >= threshold], axis=-1)
    kept = tf.reshape(kept[..., :count], shape)
    return tf.where(kept, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


def uniform(shape, key, site):
    """Draws from [0, 1), stateless and independent for each row.

    Shapes: returns `shape`, [B, ...] float32, B the rows of `key`.
    """
    bits = _bits(_product(shape[1:]), key, site, by_row=True)
    # The 24 bits that float32 holds exactly.
    return tf.reshape(tf.cast(tf.bitwise.right_shift(bits, _uint32(8)), tf.float32), shape) / 2**24


def _bits(count, key, site, by_row):
    """Returns random bits [B, count] uint32, or [count] shared by all rows."""
    bits = stateless_random.bits(key.fold_in(site).seed, count)
    if not by_row:
        return bits
    # One draw for all rows, scrambled for each: cheaper than a draw a row.
    rows = _scramble(tf.bitcast(key.rows, tf.uint32) + tf.constant(0x9E3779B9, tf.uint32))
    return _scramble(tf.bitwise.bitwise_xor(bits, rows[:, tf.newaxis]))


def _product(sizes):
    return math.prod(sizes) if all(isinstance(n, int) for n in sizes) else tf.reduce_prod(sizes)


def _scramble(bits):
    """Mixes 32 bits invertibly, so that each input bit affects every output bit.

    Multiply-and-shift with the constants of Wellons, "Prospecting for hash functions" (2018).
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _uint32(shift)))
        bits *= _uint32(factor)
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _uint32(16)))


def _uint32(value):
    return tf.constant(value, tf.uint32)
