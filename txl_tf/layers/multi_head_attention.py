"""Multi-head attention with memory: content-only, and with relative positions."""

import keras
import tensorflow as tf

from txl_tf.attention import make_core
from txl_tf.layers.configured_layer import ConfiguredLayer
from txl_tf.ops import linear


@keras.saving.register_keras_serializable(package="txl_tf")
class Attention(ConfiguredLayer):
    """Projections around an attention core: queries of the segment, keys of memory and segment.

    Keys, values and encodings are arguments, projected by `keys_values` and `encodings` of this
    layer, so that callers can cache them. Here scores are q . k / sqrt(K): positions have to be in
    the inputs (arXiv 1706.03762). Subclasses add position scores.

    Shapes:
      x: [B, T, D], the segment.
      keys, values: [B, H, S, K], of memory and segment, S = M + T.
      encodings: [H, R, K'], the result of `encodings`, farthest first; keys beyond the table get a
        position score of 0. None without position scores.
      content_bias, position_bias: [H, K], only for kinds that use them, unless owned by the layer.
      real: [B, T] bool, mask of real tokens, for cores that route them; None is all.
      normed: [B, T, D], the input of keys and values, if not x.
      returns [B, T, D]; the caller applies dropout and adds the residual.

    Args:
      config: the `LayerConfig`; with `untie_biases`, the biases u and v are weights of this layer
        rather than arguments of a call.
      site: the dropout site of the attention weights; see `ops.dropout`.
    """

    # With pre-norm: whether queries are projected from the normed input, or, as in the original
    # code's absolute kinds, from the input itself.
    NORMS_QUERIES = False

    def __init__(self, config, *, site=0, **kwargs):
        super().__init__(config, site=site, **kwargs)
        self.attend = make_core(
            config.attention,
            dropout=config.attention_dropout,
            site=site,
            dtype=self.dtype_policy,
            name="core",  # part of the names of its weights in checkpoints
        )

    def build(self, x_shape, *_, **__):
        d_model, width = self.config.d_model, self.config.head_dim
        size = (self.config.num_heads, width)
        query_size = (self.config.attention.num_query_heads(self.config.num_heads), width)
        self.query_kernel = self._weight("query_kernel", (d_model, *query_size))
        self.key_kernel = self._weight("key_kernel", (d_model, *size))
        self.value_kernel = self._weight("value_kernel", (d_model, *size))
        self._build_positions(query_size)
        self.output_kernel = self._weight("output_kernel", (*size, d_model))
        self._build_biases(query_size)
        self.attend.build_weights(d_model, *size, self.config.init_std)
        self.attend.built = True

    def _build_positions(self, size):
        """Creates the weights of position scores, if any."""

    def _build_biases(self, size):
        """Creates the biases that are added to queries, if any."""

    def _weight(self, name, shape):
        # One initializer a weight: a Keras initializer draws the same values at every call.
        return self.add_weight(
            shape, keras.initializers.RandomNormal(stddev=self.config.init_std), name=name
        )

    def keys_values(self, context):
        """Returns the keys and values of a memory or segment. [B, S, D] -> twice [B, H, S, K]."""
        return linear.project_to_heads(context, self.key_kernel), linear.project_to_heads(
            context, self.value_kernel
        )

    def encodings(self, distances):
        """Projects distances to the encodings of position scores, [H, R, K'], or None."""
        del distances

    def queries(self, query, content_bias, position_bias):
        """Returns the content and position queries. [B, H, T, K] -> the same, [B, H, T, K']."""
        del content_bias, position_bias
        return query, query

    def call(
        self,
        x,
        keys,
        values,
        encodings=None,
        content_bias=None,
        position_bias=None,
        *,
        visibility,
        dropout_key=None,
        normed=None,
        real=None,
    ):
        query = linear.project_to_heads(x, self.query_kernel)
        attended = self.attend(
            *self.queries(query, content_bias, position_bias),
            keys,
            values,
            encodings,
            visibility=visibility,
            dropout_key=dropout_key,
            **({"x": x if normed is None else normed} if self.attend.TAKES_INPUT else {}),
            **({"real": real} if self.attend.ROUTES else {}),
        )  # [B, H, T, K]
        return linear.project_from_heads(attended, self.output_kernel)


@keras.saving.register_keras_serializable(package="txl_tf")
class RelativeAttention(Attention):
    """The paper's attention: scores ((q + u) . k + (q + v) . r) / sqrt(K), r a projected sinusoid.

    Shapes, arguments: those of `Attention`; content_bias is u, position_bias is v.
    """

    NORMS_QUERIES = True

    def _build_positions(self, size):
        self.position_kernel = self._weight("position_kernel", (self.config.d_model, *size))

    def _build_biases(self, size):
        if self.config.untie_biases:
            self.content_bias = self._weight("content_bias", size)
            self.position_bias = self._weight("position_bias", size)

    def encodings(self, distances):
        """Projects sinusoids of distances. [R, D] -> [H, R, K]."""
        kernel = tf.cast(self.position_kernel, distances.dtype)
        return tf.einsum("sd,dhk->hsk", distances, kernel)

    def queries(self, query, content_bias, position_bias):
        if self.config.untie_biases:
            content_bias, position_bias = self.content_bias, self.position_bias
        heads = query.shape[1]
        content_bias, position_bias = content_bias[:heads], position_bias[:heads]
        return query + content_bias[:, tf.newaxis], query + position_bias[:, tf.newaxis]


@keras.saving.register_keras_serializable(package="txl_tf")
class LearnedRelativeAttention(Attention):
    """Attention with scores ((q + u) . k + q . e + b) / sqrt(K), e and b learned by distance.

    The Shaw-style kind of the original PyTorch code (its attn_type 1), with u of its own. Its
    tables have `num_positions` rows: the last is distance 0, the first all distances from
    num_positions - 1 on.

    Shapes, arguments: those of `Attention`, encodings [H, R, K + 1].
    """

    NORMS_QUERIES = True

    def _build_positions(self, size):
        num_heads, width = size
        rows = self.config.num_positions
        self.distance_table = self._weight("distance_table", (rows, num_heads, width))
        self.distance_bias = self.add_weight((rows, num_heads), "zeros", name="distance_bias")

    def _build_biases(self, size):
        self.content_bias = self._weight("content_bias", size)

    def encodings(self, distances):
        """Looks up distances; the bias is a further column. [R] float32 -> [H, R, K + 1]."""
        last = self.config.num_positions - 1
        rows = last - tf.minimum(tf.cast(distances, tf.int32), last)  # [S]
        vectors = tf.gather(tf.convert_to_tensor(self.distance_table), rows)  # [S, H, K]
        biases = tf.gather(tf.convert_to_tensor(self.distance_bias), rows)  # [S, H]
        joined = tf.concat([vectors, biases[..., tf.newaxis]], axis=-1)
        return tf.cast(tf.transpose(joined, [1, 0, 2]), self.compute_dtype)  # heads first

    def queries(self, query, content_bias, position_bias):
        del content_bias, position_bias
        ones = tf.ones_like(query[..., :1])  # factor of the bias
        return query + self.content_bias[:, tf.newaxis], tf.concat([query, ones], axis=-1)


@keras.saving.register_keras_serializable(package="txl_tf")
class SharedBiases(keras.layers.Layer):
    """The biases u and v shared by all layers when tied: `content`, `position` [H, K]."""

    def __init__(self, num_heads, head_dim, init_std=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.init_std = init_std

    def build(self, input_shape=None):
        shape = (self.num_heads, self.head_dim)
        self.content = self._weight("content", shape)
        self.position = self._weight("position", shape)

    def _weight(self, name, shape):
        return self.add_weight(
            shape, keras.initializers.RandomNormal(stddev=self.init_std), name=name
        )

    def get_config(self):
        own = dict(num_heads=self.num_heads, head_dim=self.head_dim, init_std=self.init_std)
        return super().get_config() | own
