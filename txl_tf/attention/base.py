"""The contract of an attention core."""

import math

import keras
import tensorflow as tf

from txl_tf.configs import layer_specs
from txl_tf.ops import attention_mask
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of


class AttentionCore(keras.layers.Layer):
    """Base class of attention cores. Subclasses implement `call`; their options are their spec's.

    Shapes:
      content_query, position_query: [B, H, T, K], the segment's queries plus u, and plus v.
      keys, values: [B, H, S, K], of memory and segment, S = M + T.
      encodings: [H, R, K'], projected distances R - 1, ..., 1, 0, and position_query as wide; keys
        beyond the table get a position score of 0. Where queries look ahead, distances N, ..., -N,
        without gaps. None where distances have no part in scores.
      returns [B, H, T, K].

    Call arguments by keyword: `visibility` (an
    `attention_mask.AttentionMask`) and `dropout_key` (None where
    nothing is dropped); of a core that says so, `x` [B, T, D], what queries were made of.

    Args:
      spec: the kind's `configs.layer_specs.LayerSpec`.
      dropout: rate on attention weights.
      site: their dropout site; see `ops.dropout`.
    """

    TAKES_INPUT = False  # whether calls get `x`

    def __init__(self, spec, *, dropout=0.0, site=0, **kwargs):
        super().__init__(**kwargs)
        self.spec = spec
        self.dropout = dropout
        self.site = site

    def build_weights(self, d_model, num_heads, head_dim, init_std):
        """Creates the core's own weights, if any."""

    def softmax(self, scores, visible):
        """Weights of the visible keys, in float32. [..., T, S], visible alike -> [..., T, S]."""
        # Additive masking: all heads and layers share the [B, 1, T, S] mask, which is cheaper than
        # tf.where on the scores.
        return tf.nn.softmax(self.select(scores + tf.where(visible, 0.0, attention_mask.HIDDEN)))

    def select(self, scores):
        """Hook: lets a subclass mask further scores. [..., T, S] float32 -> the same."""
        return scores

    def drop(self, weights, dropout_key):
        """Dropout of weights, drawn row by row. [B, ...] -> the same."""
        return dropouts.dropout(weights, self.dropout, dropout_key, self.site)

    def get_config(self):
        own = dict(spec=str(self.spec), dropout=self.dropout, site=self.site)
        return super().get_config() | own

    @classmethod
    def from_config(cls, config):
        spec = layer_specs.parse(layer_specs.ATTENTION, config["spec"])
        return cls(**{**config, "spec": spec})


def scaled(queries, scale):
    """Queries times a factor that goes into their scores, rounded once."""
    if math.frexp(scale)[0] == 0.5:  # a power of two rounds nothing
        return queries * tf.cast(scale, queries.dtype)
    return tf.cast(tf.cast(queries, tf.float32) * scale, queries.dtype)


def with_common(scores, visible, queries, common):
    """Puts scores of the common keys behind those of others, and who sees them.

    Shapes: scores [B, H, T, S], visible [B, 1, T, S], queries [B, H, T, K], common a
    `attention_mask.Common` of G -> [B, H, T, S + G], [B, 1, T, S + G].
    """
    found = tf.cast(tf.matmul(queries, common.keys, transpose_b=True), tf.float32)
    seen = common.visible[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, G]
    seen = tf.broadcast_to(seen, [*shape_of(visible)[:3], shape_of(seen)[3]])
    return tf.concat([scores, found], axis=-1), tf.concat([visible, seen], axis=-1)


def without_pads(attended, visibility):
    """Zeroes the outputs of padding tokens. [B, H, T, K] -> the same."""
    real = visibility.real_tokens(shape_of(attended)[2])
    if real is None:
        return attended
    return tf.where(real[:, tf.newaxis, :, tf.newaxis], attended, tf.zeros([], attended.dtype))
