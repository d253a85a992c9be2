"""The contract of an attention core."""

import math

import keras
import tensorflow as tf

from txl_tf.ops import attention_mask
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of


class AttentionCore(keras.layers.Layer):
    """What all cores share. A subclass writes `call` and lists its own options in `OPTIONS`.

    Shapes:
      content_query, position_query: [B, H, T, K], the segment's queries plus u, and plus v.
      keys, values: [B, H, S, K], of memory and segment, S = M + T.
      encodings: [H, R, K'], projected distances R - 1, ..., 1, 0, and position_query as wide; what
        is farther scores 0. Where queries look ahead, of distances N, ..., 0, ..., -N, none missing
        that counts. None where distances have no part in scores.
      returns [B, H, T, K].

    Call arguments by keyword: `visibility` (a `masks.Visibility`) and `dropout_key` (None where
    nothing is dropped); of a core that says so, `x` [B, T, D], what queries were made of.

    Args:
      dropout: rate on attention weights.
      site: the number of the place where they are dropped; see `ops.dropout`.
    """

    OPTIONS: tuple[str, ...] = ()
    TAKES_INPUT = False  # whether calls get `x`

    def __init__(self, *, dropout=0.0, site=0, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.site = site

    def build_weights(self, d_model, num_heads, head_dim, init_std):
        """Makes what weights a core has of its own."""

    def softmax(self, scores, visible):
        """Weights of the visible keys, in float32. [..., T, S], visible alike -> [..., T, S]."""
        # A sum, whose small term all layers share, costs less than a choice for each score.
        return tf.nn.softmax(self.select(scores + tf.where(visible, 0.0, attention_mask.HIDDEN)))

    def select(self, scores):
        """Scores of which some are hidden: a hook. [..., T, S] float32 -> the same."""
        return scores

    def drop(self, weights, dropout_key):
        """Dropout of weights, drawn row by row. [B, ...] -> the same."""
        return dropouts.dropout(weights, self.dropout, dropout_key, self.site)

    def get_config(self):
        own = ("dropout", "site", *self.OPTIONS)
        return super().get_config() | {name: getattr(self, name) for name in own}


def scaled(queries, scale):
    """Queries times a factor that goes into their scores, rounded once."""
    if math.frexp(scale)[0] == 0.5:  # a power of two rounds nothing
        return queries * tf.cast(scale, queries.dtype)
    return tf.cast(tf.cast(queries, tf.float32) * scale, queries.dtype)


def with_common(scores, visible, queries, common):
    """Puts scores of the common keys behind those of others, and who sees them.

    Shapes: scores [B, H, T, S], visible [B, 1, T, S], queries [B, H, T, K], common a
    `masks.Common` of G -> [B, H, T, S + G], [B, 1, T, S + G].
    """
    found = tf.cast(tf.matmul(queries, common.keys, transpose_b=True), tf.float32)
    seen = common.visible[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, G]
    seen = tf.broadcast_to(seen, [*shape_of(visible)[:3], shape_of(seen)[3]])
    return tf.concat([scores, found], axis=-1), tf.concat([visible, seen], axis=-1)


def without_pads(attended, visibility):
    """Contexts in which those of pads are 0. [B, H, T, K] -> the same."""
    real = visibility.real_tokens(shape_of(attended)[2])
    if real is None:
        return attended
    return tf.where(real[:, tf.newaxis, :, tf.newaxis], attended, tf.zeros([], attended.dtype))
