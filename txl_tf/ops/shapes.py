"""Sizes of tensors, static where they are known."""

import tensorflow as tf


def shape_of(x):
    """The axes of `x`: a Python int where known, an int32 scalar tensor where not."""
    dynamic = tf.shape(x)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(x.shape)]


def smaller(size, other):
    """The smaller of two sizes, an int where both are known."""
    known = isinstance(size, int) and isinstance(other, int)
    return min(size, other) if known else tf.minimum(size, other)


def larger(size, other):
    """The larger of two sizes, an int where both are known."""
    known = isinstance(size, int) and isinstance(other, int)
    return max(size, other) if known else tf.maximum(size, other)
