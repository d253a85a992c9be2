"""A sliding window, and a few tokens that see all and are seen by all."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.attention.base import scaled, without_pads
from txl_tf.attention.local import LocalAttention
from txl_tf.ops import attention_mask, linear, top_k
from txl_tf.ops.shapes import shape_of, smaller


@keras.saving.register_keras_serializable(package="txl_tf")
class LongformerAttention(LocalAttention):
    """Longformer (arXiv 2004.05150): `LocalAttention` with global tokens.

    The first G that `visibility.global_tokens` marks are global: each sees every token and is seen
    by every token, at a cost that is linear in length. Others see them by the ordinary projections,
    and not once more in their windows. What they see themselves goes by projections of their own,
    of the layer's input. Distances have no part in either. Contexts of pads are 0.

    Global tokens see what comes after them, so a causal model has none; without them this is
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
            return without_pads(attended, visibility)
        limit = smaller(self.spec.max_global_tokens, shape_of(marked)[1])
        chosen, found = top_k.first_k_one_hot(marked, limit, x.dtype)  # [B, G, T], [B, G]
        is_global = tf.reduce_any(chosen > 0, axis=1)  # [B, T]
        of_heads = chosen[:, tf.newaxis]  # [B, 1, G, T]
        common = attention_mask.GlobalKeys(
            tf.matmul(of_heads, keys), tf.matmul(of_heads, values), found
        )
        rules = dataclasses.replace(visibility, hidden=is_global, common=common)
        attended = super().call(*arrays, visibility=rules, dropout_key=dropout_key)
        nothing = tf.zeros([], attended.dtype)
        attended = tf.where(is_global[:, tf.newaxis, :, tf.newaxis], nothing, attended)
        seen = self._seen_by_global(x, chosen, visibility, dropout_key)  # [B, H, G, K]
        attended += tf.matmul(of_heads, seen, transpose_a=True)  # each to its place
        return without_pads(attended, visibility)

    def _global_tokens(self, visibility):
        """Real tokens that are marked, [B, T] bool, or None."""
        marked = visibility.global_tokens
        if not self.spec.max_global_tokens or marked is None:
            return None
        real = visibility.real_tokens(shape_of(marked)[1])
        return marked if real is None else marked & real

    def _seen_by_global(self, x, chosen, visibility, dropout_key):
        """Contexts of global tokens. x [B, T, D], chosen [B, G, T] -> [B, H, G, K]."""
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
