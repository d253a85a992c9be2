"""Layouts of sequences in blocks, by slices and concatenations, without gathers."""

import tensorflow as tf

from txl_tf.ops.shapes import shape_of


def windows(x, block, num_blocks):
    """Returns sliding windows of `num_blocks` consecutive blocks, with stride one block.

    Shapes: x [B, n * b, ...] -> [B, n + 1 - num_blocks, num_blocks * b, ...].
    """
    rows, size, *rest = shape_of(x)
    blocks = tf.reshape(x, [rows, size // block, block, *rest])  # [B, n, b, ...]
    count = size // block + 1 - num_blocks
    return tf.concat([blocks[:, i : i + count] for i in range(num_blocks)], axis=2)


def interleaved(x, stride):
    """Splits each sequence into `stride` rows, one of every `stride`-th position.

    Shapes: x [B, H, T, K] -> [B * s, H, T / s, K], or [B, T] -> [B * s, T / s].
    """
    if stride == 1:
        return x
    if len(x.shape) == 2:
        return interleaved(x[:, tf.newaxis, :, tf.newaxis], stride)[:, 0, :, 0]
    b, h, t, k = shape_of(x)
    x = tf.reshape(x, [b * h, t // stride, stride, k])  # of rank 4 at most, for TFLite
    x = tf.transpose(x, [0, 2, 1, 3])  # [B * H, s, T / s, K]
    x = tf.reshape(x, [b, h, stride, (t // stride) * k])
    x = tf.transpose(x, [0, 2, 1, 3])  # [B, s, H, (T / s) * K]
    return tf.reshape(x, [b * stride, h, t // stride, k])


def joined(x, stride):
    """Inverse of `interleaved`. Shapes: x [B * s, H, T / s, K] -> [B, H, T, K]."""
    if stride == 1:
        return x
    b, h, t, k = shape_of(x)
    x = tf.reshape(x, [b // stride, stride, h, t * k])
    x = tf.transpose(x, [0, 2, 1, 3])  # [B, H, s, (T / s) * K]
    x = tf.reshape(x, [(b // stride) * h, stride, t, k])
    x = tf.transpose(x, [0, 2, 1, 3])  # [B * H, T / s, s, K]
    return tf.reshape(x, [b // stride, h, t * stride, k])
