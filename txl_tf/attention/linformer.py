"""Linformer: attention to a fixed number of learned mixtures of keys and values."""

import keras
import tensorflow as tf

from txl_tf.attention.base import AttentionCore, scaled
from txl_tf.ops import linear
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class LinformerAttention(AttentionCore):
    """Linformer (arXiv 2006.04768): softmax(q (E K)^T / sqrt(d)) (F V), at a cost linear in length.

    E and F [k, n] mix the keys and the values of a text to k each, and every query attends to
    these. A text of T < n tokens uses the first T columns; a longer one is refused. A mixture holds
    tokens of the whole text, so it has no distance, and no query can be kept from seeing later
    tokens. Keys and values of padding are zeroed before they are mixed; the k scores are of the
    mixtures, and none is masked.

    A matrix shared by the layers of a stack is a weight of the first of them.

    Options: those of `configs.layer_specs.Linformer`.
    """

    def __init__(self, spec, **kwargs):
        super().__init__(spec, **kwargs)
        self._owner = None  # the core whose mixtures this one shares; None is its own

    def share_weights(self, earlier):
        if self.spec.sharing == "layerwise":
            self._owner = next((core for core in earlier if core.spec == self.spec), None)

    def build_weights(self, d_model, num_heads, head_dim, init_std):
        if self._owner is not None:
            return
        shape = (num_heads if self.spec.sharing == "none" else 1, self.spec.k, self.spec.max_tokens)
        self.key_mixture = self._weight("key_mixture", shape)
        if self.spec.sharing in ("none", "headwise"):
            self.value_mixture = self._weight("value_mixture", shape)

    def _weight(self, name, shape):
        bound = self.spec.k**-0.5
        return self.add_weight(shape, keras.initializers.RandomUniform(-bound, bound), name=name)

    def mixtures(self):
        """Returns E and F, [H or 1, k, n] each."""
        if self._owner is not None:
            return self._owner.mixtures()
        return self.key_mixture, getattr(self, "value_mixture", self.key_mixture)

    def call(
        self,
        content_query,
        position_query,
        keys,
        values,
        encodings,
        *,
        visibility,
        dropout_key=None,
    ):
        del position_query, encodings  # a mixture has no distance
        num_tokens = shape_of(keys)[2]
        if isinstance(num_tokens, int) and num_tokens > self.spec.max_tokens:
            raise ValueError(
                f"text must have at most the {self.spec.max_tokens} tokens of linformer's "
                f"max_tokens, got {num_tokens}"
            )
        real = visibility.real_tokens(num_tokens)
        mixed_keys, mixed_values = (  # [B, H, K, k]
            _mix(x, mixture, real)
            for x, mixture in zip((keys, values), self.mixtures(), strict=True)
        )
        query = scaled(content_query, content_query.shape[-1] ** -0.5)
        scores = tf.cast(tf.matmul(query, mixed_keys), tf.float32)  # [B, H, T, k]
        weights = self.drop(tf.nn.softmax(scores), dropout_key)
        return tf.matmul(tf.cast(weights, values.dtype), mixed_values, transpose_b=True)


def _mix(x, mixture, real):
    """Mixes the tokens of a text. [B, H, T, K], [H or 1, k, n], real [B, T] -> [B, H, K, k]."""
    if real is not None:
        x = tf.where(real[:, tf.newaxis, :, tf.newaxis], x, tf.zeros([], x.dtype))
    mixture = tf.cast(mixture, x.dtype)[..., : shape_of(x)[2]]
    return linear.matmul_per_head(tf.transpose(x, [0, 1, 3, 2]), mixture)
