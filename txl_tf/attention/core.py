"""The contract of an attention core."""

import math

import keras
import tensorflow as tf

from txl_tf.ops import dropout as dropouts
from txl_tf.ops import masks


class AttentionCore(keras.layers.Layer):
    """What all cores share. A subclass writes `call` and lists its own options in `OPTIONS`.

    Shapes:
      content_query, position_query: [B, H, T, K], the segment's queries plus u, and plus v.
      keys, values: [B, H, S, K], of memory and segment, S = M + T.
      encodings: [H, R, K'], projected distances R - 1, ..., 1, 0, and position_query as wide; what
        is farther scores 0. None where distances have no part in scores.
      returns [B, H, T, K].

    Call arguments by keyword: `visibility` (a `masks.Visibility`) and `dropout_key` (None where
    nothing is dropped).

    Args:
      dropout: rate on attention weights.
      site: the number of the place where they are dropped; see `ops.dropout`.
    """

    OPTIONS: tuple[str, ...] = ()

    def __init__(self, *, dropout=0.0, site=0, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.site = site

    def weigh(self, scores, visible, dropout_key):
        """Softmax over the visible keys, in float32, and dropout. [..., T, S] -> the same."""
        # A sum, whose small term all layers share, costs less than a choice for each score.
        weights = tf.nn.softmax(scores + tf.where(visible, 0.0, masks.HIDDEN))
        return dropouts.dropout(weights, self.dropout, dropout_key, self.site)

    def get_config(self):
        return super().get_config() | {"dropout": self.dropout, "site": self.site}


def scaled(queries, scale):
    """Queries times a factor that goes into their scores, rounded once."""
    if math.frexp(scale)[0] == 0.5:  # a power of two rounds nothing
        return queries * tf.cast(scale, queries.dtype)
    return tf.cast(tf.cast(queries, tf.float32) * scale, queries.dtype)
