"""Projections into heads and out of them, each one product of two matrices."""

import tensorflow as tf

from txl_tf.ops.shapes import shape_of


def into(x, kernel):
    """Projects into heads. [B, T, D] by [D, H, K] -> [B, H, T, K]."""
    b, t, width = shape_of(x)
    heads = kernel.shape[1:]
    kernel = tf.reshape(tf.cast(kernel, x.dtype), [width, -1])
    projected = tf.matmul(tf.reshape(x, [-1, width]), kernel)
    return tf.transpose(tf.reshape(projected, [b, t, *heads]), [0, 2, 1, 3])


def out_of(x, kernel):
    """Projects out of heads. [B, H, T, K] by [H, K, D] -> [B, T, D]."""
    b, h, t, k = shape_of(x)
    width = kernel.shape[-1]
    kernel = tf.reshape(tf.cast(kernel, x.dtype), [-1, width])
    flat = tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, h * k])
    return tf.reshape(tf.matmul(flat, kernel), [b, t, width])
