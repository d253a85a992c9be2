"""Choices among scores."""

import tensorflow as tf

from txl_tf.ops import attention_mask
from txl_tf.ops.shapes import shape_of, smaller


def mask_below_top_k(scores, k):
    """Hides all scores of a row but the k highest, and those tied with the k-th.

    The threshold gets no gradient. Where fewer than k are visible, all of them stay.

    Shapes: scores [..., S] float32 -> the same.
    """
    best, _ = tf.math.top_k(tf.stop_gradient(scores), smaller(shape_of(scores)[-1], k))
    return tf.where(scores >= best[..., -1:], scores, attention_mask.HIDDEN)


def first_k_one_hot(marked, k, dtype):
    """The first k marked places of each row, one row of ones and zeros for each.

    Shapes: marked [B, T] bool -> chosen [B, k, T] of `dtype`, in order of place, all zeros where
    there are fewer; and found [B, k] bool.
    """
    num_places = shape_of(marked)[1]
    left = tf.where(marked, num_places - tf.range(num_places), 0)
    left, places = tf.math.top_k(left, k)
    found = left > 0
    return tf.one_hot(tf.where(found, places, -1), num_places, dtype=dtype), found
