"""One layer of a Star-Transformer: the ring of tokens, then the relay."""

import keras
import tensorflow as tf

from txl_tf.ops import attention_mask
from txl_tf.ops.shapes import shape_of

_LEAK = 0.01  # slope of the activation below 0


@keras.saving.register_keras_serializable(package="txl_tf")
class StarLayer(keras.layers.Layer):
    """Updates the states of the tokens, each from five keys, and then the relay from all tokens.

    A token attends to its two neighbours and itself, to its own embedding, and to the relay; the
    relay then attends to itself and to all tokens. There is no residual.

    Shapes:
      states: [B, T, D], those of the layer below.
      anchors: [B, T, D], the embeddings.
      relay: [B, D].
      lengths: [B] int32, number of real tokens of each row, at least 1.
      returns states [B, T, D], 0 at padding, and relay [B, D].

    Args:
      d_model, num_heads, head_dim: D, H and K.
      cyclic: see `configs.model.StarTransformerConfig`.
      layer_norm_epsilon: added to variances.
    """

    def __init__(
        self, *, d_model, num_heads, head_dim, cyclic=True, layer_norm_epsilon=1e-6, **kwargs
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.cyclic = cyclic
        self.layer_norm_epsilon = layer_norm_epsilon
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        sizes = dict(d_model=d_model, num_heads=num_heads, head_dim=head_dim)
        self.ring = HeadProjections(**sizes, dtype=self.dtype_policy, name="ring")
        self.star = HeadProjections(**sizes, dtype=self.dtype_policy, name="star")

    def build(self, *_, **__):
        for layer in (self.norm, self.ring, self.star):
            layer.build((None, None, self.d_model))

    def call(self, states, anchors, relay, lengths):
        real = attention_mask.real_tokens(lengths, shape_of(states)[1])  # [B, T]
        states = self._attend_in_ring(states, anchors, relay, lengths)
        relay = self._attend_from_relay(states, relay, real)
        return tf.where(real[..., tf.newaxis], states, tf.zeros([], states.dtype)), relay

    def _attend_in_ring(self, states, anchors, relay, lengths):
        ring, normed = self.ring, self.norm(states)

        def five(project):  # nodes that a token attends to, [B, T or 1, H, K] each
            around = self._with_neighbours(project(normed), lengths)
            nodes = *around, project(anchors), project(relay)[:, tf.newaxis]
            return [ring.heads(node) for node in nodes]

        query = ring.heads(ring.query(normed))  # [B, T, H, K]
        keys, values = five(ring.key), five(ring.value)
        scores = tf.stack([_dot(query, key) for key in keys], axis=-1)  # [B, T, H, 5]
        weights = tf.cast(tf.nn.softmax(ring.scaled(scores)), states.dtype)
        weights = tf.unstack(weights[..., tf.newaxis], axis=3)  # five of [B, T, H, 1]
        attended = tf.add_n([w * value for w, value in zip(weights, values, strict=True)])
        return ring.joined(attended)

    def _with_neighbours(self, x, lengths):
        """Returns the vectors of the previous tokens, of the tokens, and of the next ones."""
        first, last = x[:, :1], tf.maximum(lengths - 1, 0)[:, tf.newaxis]  # [B, 1, N], [B, 1]
        if not self.cyclic:
            zero = tf.zeros_like(first)
            return tf.concat([zero, x[:, :-1]], axis=1), x, tf.concat([x[:, 1:], zero], axis=1)
        previous = tf.concat([tf.gather(x, last, axis=1, batch_dims=1), x[:, :-1]], axis=1)
        following = tf.concat([x[:, 1:], first], axis=1)
        is_last = tf.range(shape_of(x)[1]) == last  # [B, T]
        return previous, x, tf.where(is_last[..., tf.newaxis], first, following)

    def _attend_from_relay(self, states, relay, real):
        star = self.star
        relay = relay[:, tf.newaxis]  # [B, 1, D]
        nodes = tf.concat([relay, states], axis=1)  # [B, 1 + T, D]
        query = star.heads(star.query(relay))
        keys, values = star.heads(star.key(nodes)), star.heads(star.value(nodes))
        visible = tf.pad(real, [[0, 0], [1, 0]], constant_values=True)[..., tf.newaxis]
        scores = star.scaled(_dot(query, keys))  # [B, 1 + T, H]
        scores += tf.where(visible, 0.0, attention_mask.HIDDEN)
        weights = tf.cast(tf.nn.softmax(scores, axis=1), values.dtype)
        attended = tf.reduce_sum(weights[..., tf.newaxis] * values, axis=1, keepdims=True)
        return star.joined(attended)[:, 0]

    def get_config(self):
        own = ("d_model", "num_heads", "head_dim", "cyclic", "layer_norm_epsilon")
        return super().get_config() | {name: getattr(self, name) for name in own}


@keras.saving.register_keras_serializable(package="txl_tf")
class HeadProjections(keras.layers.Layer):
    """Biased projections to queries, keys and values [..., H K], and from the context to D.

    Args:
      d_model, num_heads, head_dim: D, H and K.
    """

    def __init__(self, *, d_model, num_heads, head_dim, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.query, self.key, self.value = (
            keras.layers.Dense(num_heads * head_dim, dtype=self.dtype_policy, name=name)
            for name in ("query", "key", "value")
        )
        self.output_projection = keras.layers.Dense(d_model, dtype=self.dtype_policy, name="output")

    def build(self, input_shape=None):
        for layer in (self.query, self.key, self.value):
            layer.build((None, None, self.d_model))
        self.output_projection.build((None, None, self.num_heads * self.head_dim))

    def heads(self, x):
        """Splits the heads. [B, T, H K] -> [B, T, H, K]."""
        return tf.reshape(x, [*shape_of(x)[:2], self.num_heads, self.head_dim])

    def scaled(self, scores):
        """Returns scores divided by sqrt(K)."""
        return scores * self.head_dim**-0.5

    def joined(self, context):
        """Projects the context of all heads and activates it. [B, T, H, K] -> [B, T, D]."""
        b, t, h, k = shape_of(context)
        return tf.nn.leaky_relu(self.output_projection(tf.reshape(context, [b, t, h * k])), _LEAK)

    def get_config(self):
        own = ("d_model", "num_heads", "head_dim")
        return super().get_config() | {name: getattr(self, name) for name in own}


def _dot(queries, keys):
    """Returns dot products in float32. [B, T or 1, H, K] twice -> [B, T, H]."""
    return tf.reduce_sum(tf.cast(queries * keys, tf.float32), axis=-1)
