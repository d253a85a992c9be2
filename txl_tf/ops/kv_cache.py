"""Appending to the cache of keys and values: by concatenation, or in a ring buffer."""

import tensorflow as tf

from txl_tf.ops.shapes import shape_of


def join(past, new, ring_index=None):
    """Appends keys or values of a segment to those of the memory.

    Shapes: past [B, H, M, K], new [B, H, T, K] -> [B, H, M + T, K]. With `ring_index`, a scalar,
    past and result are a ring buffer [B, H, R, K] and T is 1: the token is written at that index.
    In a loop inside a graph TensorFlow writes it in place, without a copy.
    """
    if ring_index is None:
        return tf.concat([past, new], axis=2)
    b, h, _, width = shape_of(past)
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=past,
        begin=tf.stack([0, 0, ring_index, 0]),
        end=tf.stack([b, h, ring_index + 1, width]),
        strides=[1, 1, 1, 1],
        value=new,
    )
