"""Dropout without state: a mask follows from run seed, step, row and place, and from nothing else.

So a resumed run draws what the undisturbed one would have, and any number of replicas draws what
one does: a row keeps its global number wherever it is computed.
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.ops import stateless_random
from txl_tf.ops.shapes import shape_of


class DropoutKey(NamedTuple):
    """What the masks of one call follow from."""

    seed: Any  # [2] int32: the run's seed and the step
    rows: Any  # [B] int32: global numbers of the batch's rows

    def fold_in(self, number):
        """The key of part `number` of a place, whose masks are its own."""
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
      site: an int that no other place of the model uses.
      by_row: whether the first axis is that of `key.rows`.
    """
    if key is None or rate == 0.0:
        return x
    shape = shape_of(x)
    places = shape[1:] if by_row else shape
    bits = _bits((_product(places) + 1) // 2, key, site, by_row)  # each is two draws of 16 bits
    least = _uint32(round(rate * 2**16) << 16)
    kept = tf.concat([bits >= least, tf.bitwise.left_shift(bits, _uint32(16)) >= least], axis=-1)
    kept = tf.reshape(kept[..., : _product(places)], shape)
    return tf.where(kept, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


def uniform(shape, key, site):
    """Numbers of [0, 1), as stateless as a mask: rows draw on their own.

    Shapes: returns `shape`, [B, ...] float32, B the rows of `key`.
    """
    bits = _bits(_product(shape[1:]), key, site, by_row=True)
    # The 24 bits that float32 holds exactly.
    return tf.reshape(tf.cast(tf.bitwise.right_shift(bits, _uint32(8)), tf.float32), shape) / 2**24


def _bits(count, key, site, by_row):
    """[B, count] uint32, or [count] where all rows share them."""
    bits = stateless_random.bits(key.fold_in(site).seed, count)
    if not by_row:
        return bits
    # One draw for all rows, scrambled anew for each: cheaper than a draw a row.
    rows = _scramble(tf.bitcast(key.rows, tf.uint32) + tf.constant(0x9E3779B9, tf.uint32))
    return _scramble(tf.bitwise.bitwise_xor(bits, rows[:, tf.newaxis]))


def _product(sizes):
    return math.prod(sizes) if all(isinstance(n, int) for n in sizes) else tf.reduce_prod(sizes)


def _scramble(bits):
    """An invertible mix of 32 bits in which each input bit sways every output bit.

    Multiply-and-shift with the constants of Wellons, "Prospecting for hash functions" (2018).
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _uint32(shift)))
        bits *= _uint32(factor)
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _uint32(16)))


def _uint32(value):
    return tf.constant(value, tf.uint32)
