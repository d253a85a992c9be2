"""Stateless random numbers, bit-identical eagerly, in graphs and under XLA.

By default TensorFlow picks the algorithm by device, and XLA reads a seed with a negative word
differently: hence Philox by name. XLA also converts random words to floats differently: hence the
conversion here.
"""

import tensorflow as tf


def fold_in(seed, number):
    """Returns an independent seed, derived from `seed` and `number`.

    Shapes: seed [2] int32, number scalar int32 -> [2] int32.
    """
    return tf.random.fold_in(seed, number, alg="philox")


def bits(seed, count):
    """Returns random words. Shapes: seed [2] int32, count int or scalar int32 -> [count] uint32."""
    return tf.random.stateless_uniform(
        [count], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )


def uniform(seed, count):
    """Draws from [0, 1), multiples of 2^-23. Shapes: as `bits`, float32.

    Equal to `tf.random.stateless_uniform` outside of XLA, which also keeps the low bits.
    """
    low = tf.bitwise.bitwise_and(bits(seed, count), tf.constant(2**23 - 1, tf.uint32))
    return tf.cast(low, tf.float32) / 2**23
