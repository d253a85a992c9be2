"""Keys and values of memory and segment: in a row, or in a ring."""

import tensorflow as tf

from txl_tf.ops.shapes import shape_of


def join(past, new, place=None):
    """Puts keys or values of a segment to those of the memory.

    Shapes: past [B, H, M, K], new [B, H, T, K] -> [B, H, M + T, K], one after the other. With
    `place`, a scalar, past and result are a ring [B, H, R, K], and T is 1: the token takes that
    place. In a loop inside a graph TensorFlow writes it there without a copy of the others.
    """
    if place is None:
        return tf.concat([past, new], axis=2)
    b, h, _, width = shape_of(past)
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=past,
        begin=tf.stack([0, 0, place, 0]),
        end=tf.stack([b, h, place + 1, width]),
        strides=[1, 1, 1, 1],
        value=new,
    )
