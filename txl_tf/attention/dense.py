"""Dense attention with relative positions: Transformer-XL's own."""

import math

import keras
import tensorflow as tf

from txl_tf.attention.base import AttentionCore, scaled, with_global_keys
from txl_tf.ops import linear, relative_position
from txl_tf.ops.shapes import shape_of

_CACHE = 2**23  # bytes of float32 scores kept in cache: they are read several times
_BLOCK = 128  # queries that share a slice of keys: enough for an efficient matmul


@keras.saving.register_keras_serializable(package="txl_tf")
class DenseAttention(AttentionCore):
    """Softmax of ((q + u) . k + (q + v) . r) / sqrt(K) over all visible keys (paper, section 3.3).

    Shapes, arguments: those of `AttentionCore`. Time and memory grow with T * S. In inference, a
    long segment is processed in blocks of queries, each with the keys that any of them may see, so
    that with an `attention_span` the cost of a token does not grow with T; on a CPU, rows are
    processed in groups whose scores fit into its cache.
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
        queries = scaled(content_query, scale), scaled(position_query, scale)
        if dropout_key is not None:
            return self._attend(*queries, keys, values, encodings, visibility, dropout_key)
        num_queries, num_keys = content_query.shape[2], keys.shape[2]
        is_causal = visibility.lookahead == 0
        by_pair = visibility.documents is not None or visibility.pairs is not None
        unsplit = num_keys is None or by_pair or not is_causal
        blocks = []
        for block in _slices(num_queries, None if unsplit else _BLOCK):
            key_slice, mask = visibility.for_block(block, num_queries, num_keys)
            parts = [
                *(_slice(x, block, 2) for x in queries),
                *(_slice(x, key_slice, 2) for x in (keys, values)),
            ]
            rows = [
                self._attend(
                    *(_slice(x, row, 0) for x in parts), encodings, mask.for_rows(row), None
                )
                for row in _slices(content_query.shape[0], _rows_at_once(parts[0], parts[2]))
            ]
            blocks.append(_join(rows, 0))
        return _join(blocks, 2)

    def _attend(
        self, content_query, position_query, keys, values, encodings, visibility, dropout_key
    ):
        num_queries, num_keys = shape_of(content_query)[2], shape_of(keys)[2]
        content = tf.matmul(content_query, keys, transpose_b=True)
        scores = tf.cast(content, tf.float32)  # [B, H, T, S]
        if visibility.bias is not None:
            scores += visibility.bias
        if encodings is not None:
            later = 0 if visibility.lookahead == 0 else shape_of(encodings)[1] - num_keys
            position = relative_position.scores_by_key(position_query, encodings, num_keys, later)
            scores += visibility.to_ring_order(position)
        visible = visibility.dense(num_queries, num_keys)  # [B, 1, T, S]
        global_keys = visibility.global_keys
        if global_keys is not None:
            scores, visible = with_global_keys(scores, visible, content_query, global_keys)
        weights = self.drop(self.softmax(scores, visible), dropout_key)  # [B, H, T, S + G]
        weights = tf.cast(weights, values.dtype)
        if global_keys is None:
            return tf.matmul(weights, values)
        attended = tf.matmul(weights[..., :num_keys], values)
        return attended + tf.matmul(weights[..., num_keys:], global_keys.values)


_WHOLE = slice(None)


def _rows_at_once(queries, keys):
    """Returns the number of rows whose scores fit into a CPU's cache; None is no limit."""
    size = [*queries.shape[1:3], keys.shape[2]]
    if None in size or not linear.is_cpu():
        return None
    return max(_CACHE // (4 * math.prod(size)), 1)


def _slices(size, step):
    """Returns slices of `step` that cover `size`; one full slice if either is unknown."""
    if size is None or step is None or size <= step:
        return [_WHOLE]
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def _slice(x, part, axis):
    return x if part == _WHOLE else x[(_WHOLE,) * axis + (part,)]


def _join(parts, axis):
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis)
