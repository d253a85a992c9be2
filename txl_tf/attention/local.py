"""Sliding-window attention, at a cost linear in length."""

import dataclasses
import itertools
from typing import NamedTuple

import keras
import tensorflow as tf

from txl_tf.attention.base import scaled, with_global_keys
from txl_tf.attention.dense import DenseAttention
from txl_tf.ops import block_layout, relative_position, top_k
from txl_tf.ops.shapes import shape_of

_BLOCK = 64  # maximum number of queries that share a slice of keys


@keras.saving.register_keras_serializable(package="txl_tf")
class LocalAttention(DenseAttention):
    """Sliding window: a query sees itself, `window` keys before it and, if bidirectional, after.

    The sliding window of Longformer (arXiv 2004.05150) with Transformer-XL's positions and memory,
    computed exactly; a window wider than the memory is cut to it. Queries are processed in blocks
    of b with the blocks of keys that cover their windows: scores are at most [T, window + 2 b],
    bidirectional at most [T, 2 window + 3 b], in a few large matmuls. Where this would cost more,
    as for a single token, attention is computed densely.

    Heads can be dilated: with `dilations` (1, 2), the second half of them sees `window` keys at
    distances 2, 4, ..., computed as a plain window over every second position.

    Options: those of `configs.layer_specs.Local`.
    """

    def select(self, scores):
        return scores if self.spec.k is None else top_k.mask_below_top_k(scores, self.spec.k)

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
        by_head = content_query, position_query, keys, values
        groups = self._groups(content_query.shape[1])
        if len(groups) == 1:
            ((_, dilation),) = groups
            return self._attend_dilated(*by_head, encodings, visibility, dropout_key, dilation)
        attended = []
        for index, (heads, dilation) in enumerate(groups):
            key = None if dropout_key is None else dropout_key.fold_in(index)
            arrays = (x[:, heads] for x in by_head)
            rows = None if encodings is None else encodings[heads]
            mask = visibility.for_heads(heads)
            attended.append(self._attend_dilated(*arrays, rows, mask, key, dilation))
        return tf.concat(attended, axis=1)

    def _groups(self, num_heads):
        """Returns (slice of heads, dilation) of each run of heads with equal dilation."""
        size = num_heads // len(self.spec.dilations)
        runs = itertools.groupby(range(num_heads), lambda head: self.spec.dilations[head // size])
        groups = [(dilation, list(heads)) for dilation, heads in runs]
        return [(slice(heads[0], heads[-1] + 1), dilation) for dilation, heads in groups]

    def _attend_dilated(
        self,
        content_query,
        position_query,
        keys,
        values,
        encodings,
        visibility,
        dropout_key,
        dilation,
    ):
        """Attends with the heads of one dilation. Shapes: those of a call."""
        mask = _with_window(visibility, self.spec.window * dilation, dilation)
        num_queries, num_keys = content_query.shape[2], keys.shape[2]
        plan = self._plan(num_queries, num_keys, dilation, mask)
        if plan is not None:
            queries = content_query, position_query
            return self._in_blocks(*queries, keys, values, encodings, mask, dropout_key, plan)
        if mask.lookahead:
            if encodings is not None:
                num_later = relative_position.num_negative_distances(encodings)
                later, earlier = shape_of(content_query)[2] - 1, shape_of(keys)[2]
                encodings = relative_position.resized(encodings, num_later, earlier, later)
        elif None not in (num_queries, num_keys) and mask.ring_index is None:
            first = max(num_keys - num_queries - self.spec.window * dilation, 0)
            keys, values = keys[:, :, first:], values[:, :, first:]  # those some query sees
        return super().call(
            content_query,
            position_query,
            keys,
            values,
            encodings,
            visibility=mask,
            dropout_key=dropout_key,
        )

    def _plan(self, num_queries, num_keys, dilation, mask):
        """Returns the block plan, or None if impossible or more expensive than dense attention."""
        if None in (num_queries, num_keys) or mask.ring_index is not None:
            return None
        block = self.spec.block or min(_BLOCK, 2 ** (self.spec.window - 1).bit_length())
        around = -(-self.spec.window // block)  # blocks that cover the window
        plan = _Plan(
            stride=dilation,
            block=block,
            blocks=-(-num_queries // (block * dilation)),
            earlier=around,
            later=around if mask.lookahead else 0,
        )
        remembered = num_keys - num_queries
        dense = num_queries * (num_queries + min(remembered, self.spec.window * dilation))
        return plan if plan.num_scores < dense else None

    def _in_blocks(
        self,
        content_query,
        position_query,
        keys,
        values,
        encodings,
        mask,
        dropout_key,
        plan,
    ):
        rows, num_heads, num_queries, width = shape_of(content_query)
        stride, block, num_keys = plan.stride, plan.block, plan.keys_of_block
        scale = content_query.shape[-1] ** -0.5

        def query_layout(x):  # [B * d, H, n * b, ...], as scores
            x = tf.pad(x, [[0, 0], [0, 0], [0, plan.num_queries - num_queries], [0, 0]])
            return block_layout.interleaved(x, stride)

        def key_layout(x):  # [B * d * H, n, W, K]
            x = block_layout.interleaved(plan.aligned(x, num_queries, axis=2), stride)
            x = tf.reshape(x, [rows * stride * num_heads, -1, width])
            return block_layout.windows(x, block, plan.earlier + 1 + plan.later)

        query = query_layout(scaled(content_query, scale))
        shape = shape_of(query)[:3]  # [B * d, H, n * b]
        query = tf.reshape(query, [shape[0] * num_heads, plan.blocks, block, width])
        scores = tf.matmul(query, key_layout(keys), transpose_b=True)  # [B * d * H, n, b, W]
        scores = tf.cast(tf.reshape(scores, [*shape, num_keys]), tf.float32)
        if encodings is not None:
            scores += relative_position.scores_in_blocks(
                query_layout(scaled(position_query, scale)),
                self._block_encodings(encodings, mask, plan),
                block,
                num_keys,
            )
        visible = _visible(mask, plan, num_queries, shape_of(keys)[2])
        global_keys = mask.global_keys
        if global_keys is not None:
            global_keys = global_keys.repeated(stride)
            query = tf.reshape(query, [*shape, width])
            scores, visible = with_global_keys(scores, visible, query, global_keys)
        weights = self.softmax(scores, visible)  # [B * d, H, n * b, W + G]
        columns = shape_of(weights)[3]
        weights = tf.reshape(weights, [rows, stride * num_heads, shape[2], columns])
        weights = tf.cast(self.drop(weights, dropout_key), values.dtype)
        near = tf.reshape(weights[..., :num_keys], [-1, plan.blocks, block, num_keys])
        attended = tf.matmul(near, key_layout(values))  # [B * d * H, n, b, K]
        attended = tf.reshape(attended, [*shape, width])
        if global_keys is not None:
            weights = tf.reshape(weights, [*shape, columns])
            attended += tf.matmul(weights[..., num_keys:], global_keys.values)
        return block_layout.joined(attended, stride)[:, :, :num_queries]

    def _block_encodings(self, encodings, mask, plan):
        """Returns encodings of a block's distances to its keys. [H, R, K] -> [H, W + b - 1, K]."""
        num_later = relative_position.num_negative_distances(encodings) if mask.lookahead else 0
        first = (encodings.shape[1] - num_later - 1) % plan.stride  # a multiple of the stride
        return relative_position.resized(
            encodings[:, first :: plan.stride],
            num_later // plan.stride,
            (plan.earlier + 1) * plan.block,
            (plan.later + 1) * plan.block - 1,
        )


class _Plan(NamedTuple):
    """Sizes of the block layout: `stride` interleaved sequences, each in blocks of `block`."""

    stride: int  # d
    block: int  # b
    blocks: int  # n, of queries
    earlier: int  # blocks of keys before the query block
    later: int  # blocks of keys after it

    @property
    def num_queries(self):
        """Number of queries after padding."""
        return self.stride * self.blocks * self.block

    @property
    def keys_of_block(self):
        """Number of keys of a block of queries, W."""
        return (self.earlier + 1 + self.later) * self.block

    @property
    def num_scores(self):
        return self.num_queries * self.keys_of_block

    def aligned(self, x, num_queries, axis, value=0):
        """Crops or pads `x` along the keys to whole blocks.

        The memory is cropped or padded in front, so that the phase of the stride is kept.

        Shapes: x [..., M + T, ...], M + T on `axis` -> the same with d * (earlier + n + later) * b.
        """
        slots = x.shape[axis] - num_queries
        before = self.stride * self.earlier * self.block
        x = x[(slice(None),) * axis + (slice(max(slots - before, 0), None),)]
        after = self.num_queries - num_queries + self.stride * self.later * self.block
        paddings = [[0, 0] for _ in x.shape]
        paddings[axis] = [max(before - slots, 0), after]
        return tf.pad(x, paddings, constant_values=value)


def _with_window(visibility, window, stride):
    """Returns the mask further restricted to a window of `window` keys and a stride."""
    span, ahead = visibility.attention_span, visibility.lookahead
    return dataclasses.replace(
        visibility,
        attention_span=window + 1 if span is None else min(span, window + 1),
        lookahead=window if ahead is None else min(ahead, window),
        stride=stride,
    )


def _visible(mask, plan, num_queries, num_keys):
    """Returns the mask in the block layout, [B * d, 1, n * b, W] bool."""
    block, stride = plan.block, plan.stride
    documents = mask.key_documents(num_queries, num_keys)
    documents = plan.aligned(documents, num_queries, axis=1, value=-1)
    first = stride * plan.earlier * block
    queries = block_layout.interleaved(documents[:, first : first + plan.num_queries], stride)
    keys = block_layout.interleaved(documents, stride)
    keys = block_layout.windows(keys, block, plan.earlier + 1 + plan.later)  # [B * d, n, W]
    queries = tf.reshape(queries, [-1, plan.blocks, block, 1])
    query = plan.earlier * block + tf.range(block)[:, tf.newaxis]
    near = mask.in_reach(stride * (query - tf.range(plan.keys_of_block)))  # [b, W]
    visible = near & (keys >= 0)[:, :, tf.newaxis]  # [B * d, n, 1 or b, W]
    if mask.documents is not None:
        visible &= queries == keys[:, :, tf.newaxis]
    return tf.reshape(visible, [-1, 1, plan.blocks * block, plan.keys_of_block])
