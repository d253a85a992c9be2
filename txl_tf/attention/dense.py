"""Transformer-XL's own attention: every visible key counts."""

import keras
import tensorflow as tf

from txl_tf.attention.core import AttentionCore, scaled
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
        num_queries, num_keys = shape_of(content_query)[2], shape_of(keys)[2]
        scale = content_query.shape[-1] ** -0.5
        content = tf.matmul(scaled(content_query, scale), keys, transpose_b=True)
        scores = tf.cast(content, tf.float32)  # [B, H, T, S]
        if encodings is not None:
            query = scaled(position_query, scale)
            position = positions.scores_by_key(query, encodings, num_keys)
            scores += visibility.by_place(position)
        visible = visibility.dense(num_queries, num_keys)  # [B, 1, T, S]
        weights = self.weigh(scores, visible, dropout_key)  # [B, H, T, S]
        return tf.matmul(tf.cast(weights, values.dtype), values)
