"""Transformer-XL's own attention: every visible key counts."""

import keras
import tensorflow as tf

from txl_tf.attention.core import AttentionCore
from txl_tf.ops import positions
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class DenseAttention(AttentionCore):
    """Softmax of ((q + u) . k + (q + v) . r) / sqrt(K) over all visible keys (paper, section 3.3).

    Shapes, arguments: those of `AttentionCore`. Time and memory grow with T * S.
    """

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
        content = tf.einsum("bhtk,bhsk->bhts", content_query, keys)
        scores = tf.cast(content, tf.float32)
        if encodings is not None:
            position = tf.einsum("bhtk,hsk->bhts", position_query, encodings)
            shifted = positions.relative_shift(position)  # [B, H, T, S]
            scores += tf.cast(shifted, tf.float32)
        scores *= content_query.shape[-1] ** -0.5
        _, _, num_queries, num_keys = shape_of(scores)
        visible = visibility.dense(num_queries, num_keys)  # [B, 1, T, S]
        weights = self.weigh(scores, visible, dropout_key)  # [B, H, T, S]
        return tf.einsum("bhts,bhsk->bhtk", tf.cast(weights, values.dtype), values)
