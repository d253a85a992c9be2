"""Numbers that follow from a seed alone: bit for bit the same eagerly, in a graph and under XLA.

Two things of TensorFlow would differ. Left to choose, it takes an algorithm by device, and XLA
reads a seed with a negative word in its own way: so Philox is named. XLA makes other floats of the
same random words: so words are drawn, and floats made of them here.
"""

import tensorflow as tf


def fold_in(seed, number):
    """The seed of part `number` of what `seed` stands for.

    Shapes: seed [2] int32, number scalar int32 -> [2] int32.
    """
    return tf.random.fold_in(seed, number, alg="philox")


def bits(seed, count):
    """Random words. Shapes: seed [2] int32, count an int or scalar int32 -> [count] uint32."""
    return tf.random.stateless_uniform(
        [count], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )


def uniform(seed, count):
    """Numbers of [0, 1), multiples of 2^-23. Shapes: as `bits`, float32.

    Those of `tf.random.stateless_uniform` outside of XLA, which also keeps the low bits.
    """
    low = tf.bitwise.bitwise_and(bits(seed, count), tf.constant(2**23 - 1, tf.uint32))
    return tf.cast(low, tf.float32) / 2**23
