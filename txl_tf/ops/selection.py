"""Choices among scores."""

import tensorflow as tf

from txl_tf.ops import masks
from txl_tf.ops.shapes import shape_of, smaller


def highest(scores, k):
    """Hides all scores of a row but the k highest, and those tied with the k-th.

    The threshold gets no gradient. Where fewer than k are visible, all of them stay.

    Shapes: scores [..., S] float32 -> the same.
    """
    best, _ = tf.math.top_k(tf.stop_gradient(scores), smaller(shape_of(scores)[-1], k))
    return tf.where(scores >= best[..., -1:], scores, masks.HIDDEN)
