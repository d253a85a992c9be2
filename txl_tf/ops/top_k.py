"""Top-k selection of scores and of marked positions."""

import tensorflow as tf

from txl_tf.ops import attention_mask
from txl_tf.ops.shapes import shape_of, smaller


def mask_below_top_k(scores, k):
    """Hides all scores of a row but the k highest and those tied with the k-th.

    The threshold gets no gradient. If fewer than k are visible, all of them stay.

    Shapes: scores [..., S] float32 -> the same.
    """
    highest, _ = tf.math.top_k(tf.stop_gradient(scores), smaller(shape_of(scores)[-1], k))
    hidden = tf.minimum(scores, attention_mask.HIDDEN)  # never above what is hidden already
    return tf.where(scores >= highest[..., -1:], scores, hidden)


def first_k_one_hot(marked, k, dtype):
    """Returns one-hot vectors of the first k True positions of each row.

    Shapes: marked [B, T] bool -> chosen [B, k, T] of `dtype`, in order of position, all zeros
    where fewer than k are True; and exists [B, k] bool.
    """
    num_positions = shape_of(marked)[1]
    rank = tf.where(marked, num_positions - tf.range(num_positions), 0)
    rank, positions = tf.math.top_k(rank, k)
    exists = rank > 0
    return tf.one_hot(tf.where(exists, positions, -1), num_positions, dtype=dtype), exists
