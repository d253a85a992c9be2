"""Sizes of tensors, static where known."""

import tensorflow as tf


def shape_of(x):
    """Returns the sizes of the axes of `x`: Python ints where known, else int32 scalars."""
    dynamic = tf.shape(x)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(x.shape)]


def smaller(size, other):
    """Returns the smaller of two sizes, an int if both are known."""
    known = isinstance(size, int) and isinstance(other, int)
    return min(size, other) if known else tf.minimum(size, other)


def larger(size, other):
    """Returns the larger of two sizes, an int if both are known."""
    known = isinstance(size, int) and isinstance(other, int)
    return max(size, other) if known else tf.maximum(size, other)
