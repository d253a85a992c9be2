"""Dropout without state: a mask follows from run seed, step, row and place, and from nothing else.

So a resumed run draws what the undisturbed one would have, and any number of replicas draws what
one does: a row keeps its global number wherever it is computed.
"""

from typing import Any, NamedTuple

import tensorflow as tf


class DropoutKey(NamedTuple):
    """What the masks of one call follow from."""

    seed: Any  # [2] int32: the run's seed and the step
    rows: Any  # [B] int32: global numbers of the batch's rows


def dropout(x, rate, key, site, by_row=True):
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    Shapes:
      x: [B, ...] with `by_row`, else any shape, drawn once for all rows.
      returns the shape of x.

    Args:
      x: floating-point tensor.
      rate: a Python float, at least 0 and below 1.
      key: a DropoutKey, or None for no dropout.
      site: an int that no other place of the model uses.
      by_row: whether the first axis is that of `key.rows`.
    """
    if key is None or rate == 0.0:
        return x
    shape = tf.shape(x)
    bits = tf.random.stateless_uniform(
        shape[1:] if by_row else shape,
        tf.random.fold_in(key.seed, site),
        minval=None,
        maxval=None,
        dtype=tf.uint32,
        alg="philox",
    )
    if by_row:  # one draw for all rows, scrambled anew for each: cheaper than a draw a row
        rows = _scramble(tf.bitcast(key.rows, tf.uint32) + tf.constant(0x9E3779B9, tf.uint32))
        rows = tf.reshape(rows, [-1] + [1] * (len(x.shape) - 1))  # [B, 1, ...]
        bits = _scramble(tf.bitwise.bitwise_xor(bits[tf.newaxis], rows))
    kept = bits >= tf.constant(int(rate * 2**32), tf.uint32)
    return tf.where(kept, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


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
