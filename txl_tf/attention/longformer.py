"""Sliding-window attention with global tokens."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.attention.base import scaled, zero_padding
from txl_tf.attention.local import LocalAttention
from txl_tf.ops import attention_mask, linear, top_k
from txl_tf.ops.shapes import shape_of, smaller


@keras.saving.register_keras_serializable(package="txl_tf")
class LongformerAttention(LocalAttention):
    """Longformer (arXiv 2004.05150): `LocalAttention` with global tokens.

    The first G that `visibility.global_tokens` marks are global: each sees every token and is seen
    by every token, at a cost linear in length. Other tokens attend to them with the ordinary
    projections, once, not again within the window. Global tokens attend with separate projections
    of the layer's input. Neither uses distances. Outputs of padding are 0.

    Global tokens see later tokens, so a causal model has none; without them this is
    `LocalAttention`, with memory.

    Options: those of `configs.layer_specs.Longformer`.
    """

    TAKES_INPUT = True

    def select(self, scores):
        return scores

    def build_weights(self, d_model, num_heads, head_dim, init_std):
        if not self.spec.max_global_tokens:
            return
        self.global_query_kernel, self.global_key_kernel, self.global_value_kernel = (
            self.add_weight(
                (d_model, num_heads, head_dim),
                keras.initializers.RandomNormal(stddev=init_std),
                name=f"global_{name}_kernel",
            )
            for name in ("query", "key", "value")
        )

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
        x=None,
    ):
        arrays = content_query, position_query, keys, values, encodings
        marked = self._global_tokens(visibility)
        if marked is None:
            attended = super().call(*arrays, visibility=visibility, dropout_key=dropout_key)
            return zero_padding(attended, visibility)
        limit = smaller(self.spec.max_global_tokens, shape_of(marked)[1])
        chosen, exists = top_k.first_k_one_hot(marked, limit, x.dtype)  # [B, G, T], [B, G]
        is_global = tf.reduce_any(chosen > 0, axis=1)  # [B, T]
        select = chosen[:, tf.newaxis]  # [B, 1, G, T]
        global_keys = attention_mask.GlobalKeys(
            tf.matmul(select, keys), tf.matmul(select, values), exists
        )
        mask = dataclasses.replace(visibility, hidden=is_global, global_keys=global_keys)
        attended = super().call(*arrays, visibility=mask, dropout_key=dropout_key)
        zero = tf.zeros([], attended.dtype)
        attended = tf.where(is_global[:, tf.newaxis, :, tf.newaxis], zero, attended)
        outputs = self._global_outputs(x, chosen, visibility, dropout_key)  # [B, H, G, K]
        attended += tf.matmul(select, outputs, transpose_a=True)  # scattered to their positions
        return zero_padding(attended, visibility)

    def _global_tokens(self, visibility):
        """Returns the mask of marked tokens without padding, [B, T] bool, or None."""
        marked = visibility.global_tokens
        if not self.spec.max_global_tokens or marked is None:
            return None
        real = visibility.real_tokens(shape_of(marked)[1])
        return marked if real is None else marked & real

    def _global_outputs(self, x, chosen, visibility, dropout_key):
        """Computes the outputs of global tokens. x [B, T, D], chosen [B, G, T] -> [B, H, G, K]."""
        query = linear.project_to_heads(tf.matmul(chosen, x), self.global_query_kernel)
        query = scaled(query, query.shape[-1] ** -0.5)
        keys = linear.project_to_heads(x, self.global_key_kernel)
        values = linear.project_to_heads(x, self.global_value_kernel)
        scores = tf.cast(tf.matmul(query, keys, transpose_b=True), tf.float32)  # [B, H, G, T]
        real = visibility.real_tokens(shape_of(x)[1])
        visible = True if real is None else real[:, tf.newaxis, tf.newaxis]
        key = None if dropout_key is None else dropout_key.fold_in(len(self.spec.dilations))
        weights = self.drop(self.softmax(scores, visible), key)
        return tf.matmul(tf.cast(weights, values.dtype), values)
