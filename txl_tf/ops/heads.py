"""Projections into heads and out of them, each one product of two matrices."""

import tensorflow as tf

from txl_tf.ops.products import product
from txl_tf.ops.shapes import shape_of


def into(x, kernel):
    """Projects into heads. [B, T, D] by [D, H, K] -> [B, H, T, K]."""
    b, t, width = shape_of(x)
    projected = product(x, tf.reshape(kernel, [width, -1]))
    return tf.transpose(tf.reshape(projected, [b, t, *kernel.shape[1:]]), [0, 2, 1, 3])


def out_of(x, kernel):
    """Projects out of heads. [B, H, T, K] by [H, K, D] -> [B, T, D]."""
    b, h, t, k = shape_of(x)
    joined = tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [b, t, h * k])
    return product(joined, tf.reshape(kernel, [-1, kernel.shape[-1]]))
