"""Pooling: one vector for a text, from the states of its real tokens."""

import tensorflow as tf

from txl_tf.ops import attention_mask
from txl_tf.ops.shapes import shape_of


def mean(states, lengths):
    """Returns the mean state. [B, T, D], lengths [B] int32 -> [B, D] float32."""
    real = tf.cast(_real(states, lengths), tf.float32)
    total = tf.reduce_sum(tf.cast(states, tf.float32) * real, axis=1)
    return total / tf.reduce_sum(real, axis=1)


def largest(states, lengths):
    """Returns the elementwise maximum. Shapes: those of `mean`."""
    states = tf.cast(states, tf.float32)
    return tf.reduce_max(tf.where(_real(states, lengths), states, states.dtype.min), axis=1)


def first(states, lengths):
    """Returns the state of the first token. Shapes: those of `mean`."""
    del lengths
    return tf.cast(states[:, 0], tf.float32)


def last(states, lengths):
    """Returns the state of the last real token. Shapes: those of `mean`."""
    index = tf.maximum(lengths, 1) - 1
    return tf.cast(tf.gather(states, index, axis=1, batch_dims=1), tf.float32)


POOLING = {"mean": mean, "max": largest, "first": first, "last": last}


def _real(states, lengths):
    """Returns the mask of real tokens, the first always True, [B, T, 1] bool."""
    return attention_mask.real_tokens(tf.maximum(lengths, 1), shape_of(states)[1])[..., tf.newaxis]
