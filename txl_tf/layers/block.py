"""One layer of the model: attention over memory and segment, then the feed-forward net."""

import keras
import tensorflow as tf

from txl_tf import specs
from txl_tf.feed_forward import FEED_FORWARD
from txl_tf.layers.relative_attention import RelativeAttention
from txl_tf.ops import dropout as dropouts

SITES = 4  # places of dropout in a block: attention weights, its output, inside the net, its output


@keras.saving.register_keras_serializable(package="txl_tf")
class Block(keras.layers.Layer):
    """Attention and feed-forward, each with a residual and a LayerNorm.

    The norm stands after the sum, as in the paper, or before each sub-layer (`pre_norm`); then it
    is taken of memory and segment together, and the residual is the plain input.

    Shapes:
      x: [B, T, D], the segment.
      past: [B, M, D], this layer's memory, oldest first.
      encodings: [S, D], sinusoids of the distances, farthest first, S = M + T.
      content_bias, position_bias: [H, K], only where `own_biases` is off.
      returns [B, T, D].

    Args:
      config: the TransformerXLConfig fields that a layer needs, as keywords.
      attention, feed_forward: specs.
      own_biases: whether this layer has its own u and v.
      site: the first of this layer's `SITES` dropout places.
    """

    def __init__(
        self,
        *,
        d_model,
        num_heads,
        head_dim,
        d_inner,
        attention="dense",
        feed_forward="dense",
        own_biases=True,
        pre_norm=False,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.02,
        layer_norm_epsilon=1e-5,
        site=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._own = dict(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            d_inner=d_inner,
            attention=attention,
            feed_forward=feed_forward,
            own_biases=own_biases,
            pre_norm=pre_norm,
            dropout=dropout,
            attention_dropout=attention_dropout,
            init_std=init_std,
            layer_norm_epsilon=layer_norm_epsilon,
            site=site,
        )
        self.pre_norm = pre_norm
        self.dropout = dropout
        self.site = site
        self.attention = RelativeAttention(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            core=attention,
            own_biases=own_biases,
            attention_dropout=attention_dropout,
            site=site,
            init_std=init_std,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.feed_forward = specs.build(
            FEED_FORWARD,
            feed_forward,
            d_model=d_model,
            d_inner=d_inner,
            dropout=dropout,
            site=site + 2,
            init_std=init_std,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.attention_norm = self._norm("attention_norm", layer_norm_epsilon)
        self.feed_forward_norm = self._norm("feed_forward_norm", layer_norm_epsilon)

    def _norm(self, name, epsilon):
        return keras.layers.LayerNormalization(epsilon=epsilon, dtype=self.dtype_policy, name=name)

    def build(self, x_shape, *_, **__):
        shape = (None, None, self._own["d_model"])
        for layer in (
            self.attention,
            self.attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        ):
            layer.build(shape)

    def call(
        self,
        x,
        past,
        encodings,
        content_bias=None,
        position_bias=None,
        *,
        visibility,
        dropout_key=None,
    ):
        context = tf.concat([past, x], axis=1)  # [B, S, D]
        query = x
        if self.pre_norm:
            context = self.attention_norm(context)
            query = context[:, past.shape[1] :]
        attended = self.attention(
            query,
            context,
            encodings,
            content_bias,
            position_bias,
            visibility=visibility,
            dropout_key=dropout_key,
        )
        x += dropouts.dropout(attended, self.dropout, dropout_key, self.site + 1)
        x = x if self.pre_norm else self.attention_norm(x)
        fed = self.feed_forward(
            self.feed_forward_norm(x) if self.pre_norm else x, dropout_key=dropout_key
        )
        x += dropouts.dropout(fed, self.dropout, dropout_key, self.site + 3)
        return x if self.pre_norm else self.feed_forward_norm(x)

    def get_config(self):
        return super().get_config() | self._own
