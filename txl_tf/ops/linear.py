"""Products with a matrix of weights, also where reading it is all the work."""

import itertools
import math

import tensorflow as tf

from txl_tf.ops.shapes import shape_of

_LEAST = 2**19  # bytes of a matrix that is worth cutting
_PART = 2**20  # bytes that a part of it should have
_STEP = 32  # rows: a cut between so many is aligned, whatever their width, and copies nothing


def matmul(x, matrix, bias=None):
    """x . matrix + bias, in the dtype of x.

    Shapes: x [..., k], matrix [k, n], bias [n] -> [..., n].
    """
    *axes, width = shape_of(x)
    is_known = all(isinstance(size, int) for size in axes)
    rows = tf.reshape(x, [math.prod(axes) if is_known else -1, width])
    total = _product(rows, tf.cast(matrix, x.dtype))
    if bias is not None:  # next to the product, which takes it along
        total = tf.nn.bias_add(total, tf.cast(bias, x.dtype))
    return tf.reshape(total, [*axes, matrix.shape[1]])


def _product(rows, matrix):
    """One row's product is nothing but the reading of the matrix, which TensorFlow leaves to one
    thread of a CPU. There the sum over k is cut into parts, which run side by side."""
    parts = _parts(matrix) if rows.shape[0] == 1 else 1
    if parts == 1:
        return tf.matmul(rows, matrix)
    size = matrix.shape[0]
    cuts = [size * part // parts // _STEP * _STEP for part in range(parts)]
    pairs = itertools.pairwise([*cuts, size])
    return tf.add_n([tf.matmul(rows[:, a:b], matrix[a:b]) for a, b in pairs])


def _parts(matrix):
    size = matrix.shape.num_elements() * matrix.dtype.size
    if size < _LEAST or matrix.shape[0] < 4 * _STEP or not is_cpu():
        return 1
    return min(max(size // _PART, 2), 4)


def project_to_heads(x, kernel):
    """Projects into heads. [B, T, D] by [D, H, K] -> [B, H, T, K]."""
    b, t, width = shape_of(x)
    projected = matmul(x, tf.reshape(kernel, [width, -1]))
    return tf.transpose(tf.reshape(projected, [b, t, *kernel.shape[1:]]), [0, 2, 1, 3])


def project_from_heads(x, kernel):
    """Projects out of heads. [B, H, T, K] by [H, K, D] -> [B, T, D]."""
    b, h, t, k = shape_of(x)
    joined = tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [b, t, h * k])
    return matmul(joined, tf.reshape(kernel, [-1, kernel.shape[-1]]))


def matmul_per_head(x, rows):
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


def is_cpu():
    """Whether this process has CPUs alone."""
    return all(x.device_type == "CPU" for x in tf.config.list_logical_devices())
