"""Products of heads: projections into them and out of them, and with what each head has."""

import tensorflow as tf

from txl_tf.ops.linear import product
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


def meet(x, rows):
    """Products with the rows of each head, which are the same for all of the batch.

    Shapes: x [B, H, T, K], rows [H, R, K] -> [B, H, T, R].

    With one head this is a product of two matrices: TensorFlow 2.21's kernel for a CPU (oneDNN)
    reads beyond the end of an array where all of the second's batch axes are 1 and B is not.
    """
    if rows.shape[0] != 1:
        return tf.matmul(x, rows, transpose_b=True)
    b, h, t, k = shape_of(x)
    flat = tf.reshape(x, [-1, k])
    return tf.reshape(tf.matmul(flat, rows[0], transpose_b=True), [b, h, t, shape_of(rows)[1]])
