"""Transformer block: attention over memory and segment, then the feed-forward net."""

import keras

from txl_tf.feed_forward import make_feed_forward
from txl_tf.layers.configured_layer import ConfiguredLayer
from txl_tf.layers.position_kinds import POSITIONS
from txl_tf.ops import dropout as dropouts
from txl_tf.ops import kv_cache
from txl_tf.ops.shapes import larger, shape_of

SITES = 4  # dropout sites in a block: attention weights, its output, inside the net, its output


@keras.saving.register_keras_serializable(package="txl_tf")
class Block(ConfiguredLayer):
    """Attention and feed-forward, each with a residual and a LayerNorm.

    The norm follows the sum, as in the paper, or precedes each sub-layer (`pre_norm`); then it is
    applied to memory and segment alike, and the residual is the plain input.

    Shapes:
      x: [B, T, D], the segment.
      past_keys, past_values: [B, H, M, K], `keys_values` of this layer's memory, oldest first.
      encodings: [H, R, K'], `encodings` of the distances, farthest first, or None.
      content_bias, position_bias: [H, K], only if all layers share them (`untie_biases` is off).
      real: [B, T] bool, mask of real tokens, for layers that route them; None is all.
      returns [B, T, D]; keys and values of memory and segment, [B, H, S, K] each; and two tuples:
        of the net's `routing` [3] (auxiliary loss, dropped fraction, expert entropy) if it routes
        tokens, and of the attention core's `commitment` and `cluster_sums` if it does, in training;
        else empty.

    Args:
      config: the `LayerConfig`.
      site: the first of this layer's `SITES` dropout sites.
    """

    def __init__(self, config, *, site=0, **kwargs):
        super().__init__(config, site=site, **kwargs)
        self.routing = None  # of the last call, if the net routes tokens
        self.cluster_sums = None  # of the last call in training, if attention routes them
        self.attention = self.attention_class()(
            config, site=site, dtype=self.dtype_policy, name="attention"
        )
        self.feed_forward = make_feed_forward(
            config.feed_forward,
            d_model=config.d_model,
            d_inner=config.d_inner,
            dropout=config.dropout,
            site=site + 2,
            init_std=config.init_std,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.attention_norm = self._norm("attention_norm")
        self.feed_forward_norm = self._norm("feed_forward_norm")

    def attention_class(self):
        """Returns the class of the attention layer."""
        return POSITIONS[self.config.position].attention

    def _norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def build(self, x_shape, *_, **__):
        shape = (None, None, self.config.d_model)
        for layer in (
            self.attention,
            self.attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        ):
            layer.build(shape)

    def keys_values(self, x):
        """Projects inputs of this layer to keys and values. [B, T, D] -> twice [B, H, T, K]."""
        return self.attention.keys_values(self.attention_norm(x) if self.config.pre_norm else x)

    def encodings(self, distances, num_later=0):
        """Projects relative position encodings for attention, [H, R, K'] or None.

        Shapes: distances [R] or [R, D], descending by 1, the last `num_later` negative; those
        beyond the spec's reach are cropped.
        """
        reach = self.config.attention.reach
        if reach is not None:
            rows = shape_of(distances)[0]
            first = rows - num_later - 1 - reach
            last = rows - larger(num_later - reach, 0)
            distances = distances[larger(first, 0) : last]
        return self.attention.encodings(distances)

    def call(
        self,
        x,
        past_keys,
        past_values,
        encodings=None,
        content_bias=None,
        position_bias=None,
        *,
        visibility,
        dropout_key=None,
        real=None,
    ):
        normed = self.attention_norm(x) if self.config.pre_norm else x
        new_keys, new_values = self.attention.keys_values(normed)
        keys = kv_cache.join(past_keys, new_keys, visibility.ring_index)  # [B, H, S, K]
        values = kv_cache.join(past_values, new_values, visibility.ring_index)
        x, routing, clusters = self.sublayers(
            x,
            normed,
            keys,
            values,
            encodings,
            content_bias,
            position_bias,
            visibility=visibility,
            dropout_key=dropout_key,
            real=real,
        )
        return x, keys, values, routing, clusters

    def sublayers(
        self,
        x,
        normed,
        keys,
        values,
        encodings=None,
        content_bias=None,
        position_bias=None,
        *,
        dropout_key=None,
        real=None,
        **attention_arguments,
    ):
        """Runs attention and the net on given keys and values.

        Shapes: normed [B, T, D], x as attention reads it; keys, values [B, H, S, K]; the other
        arguments are those of a call, `attention_arguments` those of the attention layer. Returns
        [B, T, D], and the two tuples of a call.
        """
        core = self.attention.attend
        attended = self.attention(
            normed if self.attention.NORMS_QUERIES else x,
            keys,
            values,
            encodings,
            content_bias,
            position_bias,
            dropout_key=dropout_key,
            normed=normed,
            **({"real": real} if core.ROUTES else {}),
            **attention_arguments,
        )
        x += dropouts.dropout(attended, self.config.dropout, dropout_key, self.site + 1)
        x = x if self.config.pre_norm else self.attention_norm(x)
        output = self.feed_forward(
            self.feed_forward_norm(x) if self.config.pre_norm else x,
            dropout_key=dropout_key,
            **({"real": real} if self.feed_forward.ROUTES else {}),
        )
        x += dropouts.dropout(output, self.config.dropout, dropout_key, self.site + 3)
        routing = (self.feed_forward.routing,) if self.feed_forward.ROUTES else ()
        is_counted = core.ROUTES and dropout_key is not None
        clusters = (core.commitment, core.cluster_sums) if is_counted else ()
        x = x if self.config.pre_norm else self.feed_forward_norm(x)
        return x, routing, clusters
