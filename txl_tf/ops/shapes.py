"""Sizes of tensors, static where they are known."""

import tensorflow as tf


def shape_of(x):
    """The axes of `x`: a Python int where known, an int32 scalar tensor where not."""
    dynamic = tf.shape(x)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(x.shape)]
