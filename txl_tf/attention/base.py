"""Base class of attention cores, and operations that several of them share."""

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
      encodings: [H, R, K'], projected distances R - 1, ..., 1, 0, K' the width of position_query;
        keys beyond the table get a position score of 0. Bidirectional: distances N, ..., -N,
        without gaps; of dense cores S - 1, ..., 1 - T. None without position scores.
      returns [B, H, T, K].

    Call arguments by keyword: `visibility` (an `attention_mask.AttentionMask`), `dropout_key` (None
    for no dropout); if `TAKES_INPUT`, `x` [B, T, D], the input of the queries; and if `ROUTES`,
    `real` [B, T] bool, the mask of real tokens, None is all.

    Of the H heads of keys, `spec.num_query_heads(H)`, the first, have queries and encodings.

    Args:
      spec: the kind's `configs.layer_specs.LayerSpec`.
      dropout: rate on attention weights.
      site: dropout site of the weights; see `ops.dropout`.
    """

    TAKES_INPUT = False  # whether `call` takes `x`
    ROUTES = False  # whether tokens compete for clusters; see `attention.routing`

    def __init__(self, spec, *, dropout=0.0, site=0, **kwargs):
        super().__init__(**kwargs)
        self.spec = spec
        self.dropout = dropout
        self.site = site

    def build_weights(self, d_model, num_heads, head_dim, init_std):
        """Creates the core's own weights, if any."""

    def share_weights(self, earlier):
        """Hook: takes the weights that all layers share from the cores of earlier layers."""

    def softmax(self, scores, visible):
        """Returns attention weights in float32. Scores and visible [..., T, S] -> the same."""
        # Additive masking: the [B, 1, T, S] mask is shared by all heads and layers, cheaper than
        # tf.where on the scores.
        return tf.nn.softmax(self.select(scores + tf.where(visible, 0.0, attention_mask.HIDDEN)))

    def select(self, scores):
        """Hook: lets a subclass mask further scores. [..., T, S] float32 -> the same."""
        return scores

    def drop(self, weights, dropout_key):
        """Applies dropout to weights, with a mask for each row. [B, ...] -> the same."""
        return dropouts.dropout(weights, self.dropout, dropout_key, self.site)

    def get_config(self):
        own = dict(spec=str(self.spec), dropout=self.dropout, site=self.site)
        return super().get_config() | own

    @classmethod
    def from_config(cls, config):
        spec = layer_specs.parse(layer_specs.ATTENTION, config["spec"])
        return cls(**{**config, "spec": spec})


def scaled(queries, scale):
    """Returns queries times `scale`, rounded once."""
    if math.frexp(scale)[0] == 0.5:  # a power of two is exact
        return queries * tf.cast(scale, queries.dtype)
    return tf.cast(tf.cast(queries, tf.float32) * scale, queries.dtype)


def with_global_keys(scores, visible, queries, global_keys):
    """Appends the scores of global keys, and their mask.

    Shapes: scores [B, H, T, S], visible [B, 1, T, S], queries [B, H, T, K], global_keys an
    `attention_mask.GlobalKeys` of G -> [B, H, T, S + G], [B, 1, T, S + G].
    """
    global_scores = tf.cast(tf.matmul(queries, global_keys.keys, transpose_b=True), tf.float32)
    mask = global_keys.visible[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, G]
    mask = tf.broadcast_to(mask, [*shape_of(visible)[:3], shape_of(mask)[3]])
    return tf.concat([scores, global_scores], axis=-1), tf.concat([visible, mask], axis=-1)


def zero_padding(attended, visibility):
    """Zeroes the outputs of padding tokens. [B, H, T, K] -> the same."""
    real = visibility.real_tokens(shape_of(attended)[2])
    if real is None:
        return attended
    return tf.where(real[:, tf.newaxis, :, tf.newaxis], attended, tf.zeros([], attended.dtype))
