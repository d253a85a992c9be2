"""Matmuls with weights: of any rank, split where memory-bound, and to, from and per head."""

import itertools
import math

import tensorflow as tf

from txl_tf.ops.shapes import shape_of

_MIN_BYTES = 2**19  # of a matrix that is worth splitting
_PART_BYTES = 2**20
_ALIGNMENT = 32  # rows: a split at a multiple is aligned, whatever their width, and copies nothing


def matmul(x, matrix, bias=None):
    """Computes x . matrix + bias in the dtype of x.

    Shapes: x [..., k], matrix [k, n], bias [n] -> [..., n].
    """
    *axes, width = shape_of(x)
    is_known = all(isinstance(size, int) for size in axes)
    rows = tf.reshape(x, [math.prod(axes) if is_known else -1, width])
    total = _matmul_rows(rows, tf.cast(matrix, x.dtype))
    if bias is not None:  # right after the matmul, to be fused with it
        total = tf.nn.bias_add(total, tf.cast(bias, x.dtype))
    return tf.reshape(total, [*axes, matrix.shape[1]])


def _matmul_rows(rows, matrix):
    """Computes rows . matrix. [N, k] by [k, n] -> [N, n].

    A one-row matmul is memory-bound, and on a CPU TensorFlow runs it on one thread: there the sum
    over k is split, so that several threads read the weights.
    """
    parts = _num_parts(matrix) if rows.shape[0] == 1 else 1
    if parts == 1:
        return tf.matmul(rows, matrix)
    size = matrix.shape[0]
    starts = [size * part // parts // _ALIGNMENT * _ALIGNMENT for part in range(parts)]
    pairs = itertools.pairwise([*starts, size])
    return tf.add_n([tf.matmul(rows[:, a:b], matrix[a:b]) for a, b in pairs])


def _num_parts(matrix):
    size = matrix.shape.num_elements() * matrix.dtype.size
    if size < _MIN_BYTES or matrix.shape[0] < 4 * _ALIGNMENT or not is_cpu():
        return 1
    return min(max(size // _PART_BYTES, 2), 4)


def project_to_heads(x, kernel):
    """Projects to heads. [B, T, D] by [D, H, K] -> [B, H, T, K]."""
    b, t, width = shape_of(x)
    projected = matmul(x, tf.reshape(kernel, [width, -1]))
    return tf.transpose(tf.reshape(projected, [b, t, *kernel.shape[1:]]), [0, 2, 1, 3])


def project_from_heads(x, kernel):
    """Projects from heads. [B, H, T, K] by [H, K, D] -> [B, T, D]."""
    b, h, t, k = shape_of(x)
    joined = tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [b, t, h * k])
    return matmul(joined, tf.reshape(kernel, [-1, kernel.shape[-1]]))


def matmul_per_head(x, rows):
    """Computes a batched matmul with per-head matrices shared across the batch.

    Shapes: x [B, H, T, K], rows [H, R, K] -> [B, H, T, R].

    With one head this is a matmul of two matrices: TensorFlow 2.21's CPU kernel (oneDNN) reads past
    the end of an array where all batch axes of the second operand are 1 and B is not.
    """
    if rows.shape[0] != 1:
        return tf.matmul(x, rows, transpose_b=True)
    b, h, t, k = shape_of(x)
    flat = tf.reshape(x, [-1, k])
    return tf.reshape(tf.matmul(flat, rows[0], transpose_b=True), [b, h, t, shape_of(rows)[1]])


def is_cpu():
    """Returns whether all devices of this process are CPUs."""
    return all(x.device_type == "CPU" for x in tf.config.list_logical_devices())
