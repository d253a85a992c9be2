"""Transformer-XL's own attention: every visible key counts."""

import math

import keras
import tensorflow as tf

from txl_tf.attention.core import AttentionCore, scaled
from txl_tf.ops import device, positions
from txl_tf.ops.shapes import shape_of

_CACHE = 2**23  # bytes of float32 scores: they are passed over several times


@keras.saving.register_keras_serializable(package="txl_tf")
class DenseAttention(AttentionCore):
    """Softmax of ((q + u) . k + (q + v) . r) / sqrt(K) over all visible keys (paper, section 3.3).

    Shapes, arguments: those of `AttentionCore`. Time and memory grow with T * S. On a CPU, in
    inference, rows whose scores do not fit into its cache are worked off one after another.
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
        scale = content_query.shape[-1] ** -0.5
        by_row = scaled(content_query, scale), scaled(position_query, scale), keys, values
        rows = _rows_at_once(content_query, keys) if dropout_key is None else None
        if rows is None:
            return self._attend(*by_row, encodings, visibility, dropout_key)
        attended = []
        for first in range(0, content_query.shape[0], rows):
            part = slice(first, first + rows)
            of_part = (x[part] for x in by_row)
            attended.append(self._attend(*of_part, encodings, visibility.of_rows(part), None))
        return tf.concat(attended, axis=0)

    def _attend(
        self, content_query, position_query, keys, values, encodings, visibility, dropout_key
    ):
        num_queries, num_keys = shape_of(content_query)[2], shape_of(keys)[2]
        content = tf.matmul(content_query, keys, transpose_b=True)
        scores = tf.cast(content, tf.float32)  # [B, H, T, S]
        if encodings is not None:
            position = positions.scores_by_key(position_query, encodings, num_keys)
            scores += visibility.by_place(position)
        visible = visibility.dense(num_queries, num_keys)  # [B, 1, T, S]
        weights = self.weigh(scores, visible, dropout_key)  # [B, H, T, S]
        return tf.matmul(tf.cast(weights, values.dtype), values)


def _rows_at_once(queries, keys):
    """How many rows' scores fit into the cache of a CPU; None is all, or where there is none."""
    size = [*queries.shape[:3], keys.shape[2]]
    if None in size or not device.is_cpu():
        return None
    rows = max(_CACHE // (4 * math.prod(size[1:])), 1)
    return rows if rows < size[0] else None
