"""Multi-head attention with relative positions and memory (arXiv 1901.02860, section 3.3)."""

import keras
import tensorflow as tf

from txl_tf import specs
from txl_tf.attention import ATTENTION


@keras.saving.register_keras_serializable(package="txl_tf")
class RelativeAttention(keras.layers.Layer):
    """Projections around an attention core: queries of the segment, keys of memory and segment.

    Keys, values and encodings come in projected, by `keys_values` and `encodings` of this layer, so
    that what does not change from call to call need not be projected anew.

    Shapes:
      x: [B, T, D], the segment.
      keys, values: [B, H, S, K], of memory and segment, S = M + T.
      encodings: [H, S, K], projected distances, farthest first.
      content_bias, position_bias: [H, K], u and v, only where `own_biases` is off.
      returns [B, T, D]; the caller drops it and adds the residual.

    Args:
      d_model: D. num_heads: H. head_dim: K; H * K need not be D.
      core: spec of the attention core, such as "dense".
      own_biases: whether u and v are weights of this layer, not handed in by the caller.
      attention_dropout: rate on attention weights.
      site: the number of that place; see `ops.dropout`.
      init_std: deviation of the initialiser of all weights.
    """

    def __init__(
        self,
        *,
        d_model,
        num_heads,
        head_dim,
        core="dense",
        own_biases=True,
        attention_dropout=0.0,
        site=0,
        init_std=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.core = core
        self.own_biases = own_biases
        self.attention_dropout = attention_dropout
        self.site = site
        self.init_std = init_std
        self.attend = specs.build(
            ATTENTION, core, dropout=attention_dropout, site=site, dtype=self.dtype_policy
        )

    def build(self, x_shape, *_, **__):
        heads = (self.num_heads, self.head_dim)
        self.query_kernel = self._weight("query_kernel", (self.d_model, *heads))
        self.key_kernel = self._weight("key_kernel", (self.d_model, *heads))
        self.value_kernel = self._weight("value_kernel", (self.d_model, *heads))
        self.position_kernel = self._weight("position_kernel", (self.d_model, *heads))
        self.output_kernel = self._weight("output_kernel", (*heads, self.d_model))
        if self.own_biases:
            self.content_bias = self._weight("content_bias", heads)
            self.position_bias = self._weight("position_bias", heads)
        self.attend.built = True

    def _weight(self, name, shape):
        # One initialiser a weight: a Keras initialiser draws the same values at every call.
        return self.add_weight(
            shape, keras.initializers.RandomNormal(stddev=self.init_std), name=name
        )

    def keys_values(self, context):
        """Keys and values of a memory or a segment. [B, S, D] -> twice [B, H, S, K]."""
        kernels = (
            tf.cast(kernel, context.dtype) for kernel in (self.key_kernel, self.value_kernel)
        )
        return tuple(tf.einsum("bsd,dhk->bhsk", context, kernel) for kernel in kernels)

    def encodings(self, table):
        """Projected sinusoids of distances. [S, D] -> [H, S, K]."""
        return tf.einsum("sd,dhk->hsk", table, tf.cast(self.position_kernel, table.dtype))

    def call(
        self,
        x,
        keys,
        values,
        encodings,
        content_bias=None,
        position_bias=None,
        *,
        visibility,
        dropout_key=None,
    ):
        if self.own_biases:
            content_bias, position_bias = self.content_bias, self.position_bias
        query = tf.einsum("btd,dhk->bhtk", x, self.query_kernel)
        attended = self.attend(
            query + content_bias[:, tf.newaxis],
            query + position_bias[:, tf.newaxis],
            keys,
            values,
            encodings,
            visibility=visibility,
            dropout_key=dropout_key,
        )  # [B, H, T, K]
        return tf.einsum("bhtk,hkd->btd", attended, self.output_kernel)

    def get_config(self):
        own = ("d_model", "num_heads", "head_dim", "core", "own_biases", "attention_dropout")
        own += ("site", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in own}
