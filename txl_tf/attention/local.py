"""Attention to the neighbourhood, at a cost that is linear in length."""

import dataclasses
import itertools
from typing import NamedTuple

import keras
import tensorflow as tf

from txl_tf.attention.base import scaled, with_common
from txl_tf.attention.dense import DenseAttention
from txl_tf.ops import block_layout, relative_position, top_k
from txl_tf.ops.shapes import shape_of

_BLOCK = 64  # queries, at most, that share a stretch of keys


@keras.saving.register_keras_serializable(package="txl_tf")
class LocalAttention(DenseAttention):
    """A query sees itself, `window` keys before it and, where it looks ahead, as many after it.

    The sliding window of Longformer (arXiv 2004.05150) with Transformer-XL's positions and memory,
    exactly; of a window that is wider than the memory a query sees what there is. Queries go in
    blocks of b, each with the blocks of keys that hold its windows: scores are
    [T, window + 2 b] at most, or half as many again where queries look ahead, and all is a few
    large products. What would cost more in this way, such as a single token, is computed densely.

    Heads may look in strides: with `dilations` (1, 2), the second half of them sees `window` keys
    at the distances 2, 4, ... Every second place alone, that is a plain window again.

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
            (dilation,) = set(self.spec.dilations)
            return self._attend_to(*by_head, encodings, visibility, dropout_key, dilation)
        attended = []
        for index, (heads, dilation) in enumerate(groups):
            key = None if dropout_key is None else dropout_key.fold_in(index)
            of_group = (x[:, heads] for x in by_head)
            rows = None if encodings is None else encodings[heads]
            rules = visibility.for_heads(heads)
            attended.append(self._attend_to(*of_group, rows, rules, key, dilation))
        return tf.concat(attended, axis=1)

    def _groups(self, num_heads):
        """(heads, dilation) of each group: slices, with equal neighbours as one."""
        size = num_heads // len(self.spec.dilations)
        runs = itertools.groupby(range(num_heads), lambda head: self.spec.dilations[head // size])
        numbers = [(dilation, list(heads)) for dilation, heads in runs]
        return [(slice(heads[0], heads[-1] + 1), dilation) for dilation, heads in numbers]

    def _attend_to(
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
        """Heads of one dilation. Shapes: those of a call."""
        rules = _narrowed(visibility, self.spec.window * dilation, dilation)
        num_queries, num_keys = content_query.shape[2], keys.shape[2]
        plan = self._plan(num_queries, num_keys, dilation, rules)
        if plan is not None:
            queries = content_query, position_query
            return self._in_blocks(*queries, keys, values, encodings, rules, dropout_key, plan)
        if rules.lookahead:
            if encodings is not None:
                num_later = relative_position.num_negative_distances(encodings)
                later, earlier = shape_of(content_query)[2] - 1, shape_of(keys)[2]
                encodings = relative_position.resized(encodings, num_later, earlier, later)
        elif None not in (num_queries, num_keys) and rules.place is None:
            first = max(num_keys - num_queries - self.spec.window * dilation, 0)
            keys, values = keys[:, :, first:], values[:, :, first:]  # what one of them sees
        return super().call(
            content_query,
            position_query,
            keys,
            values,
            encodings,
            visibility=rules,
            dropout_key=dropout_key,
        )

    def _plan(self, num_queries, num_keys, dilation, rules):
        """How to cut, or None where that is not possible or costs more."""
        if None in (num_queries, num_keys) or rules.place is not None:
            return None
        block = self.spec.block or min(_BLOCK, 2 ** (self.spec.window - 1).bit_length())
        around = -(-self.spec.window // block)  # blocks that hold the window
        plan = _Plan(
            stride=dilation,
            block=block,
            blocks=-(-num_queries // (block * dilation)),
            earlier=around,
            later=around if rules.lookahead else 0,
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
        rules,
        dropout_key,
        plan,
    ):
        rows, num_heads, num_queries, width = shape_of(content_query)
        stride, block, num_keys = plan.stride, plan.block, plan.keys_of_block
        scale = content_query.shape[-1] ** -0.5

        def of_queries(x):  # in the form of scores, [B * d, H, n * b, ...]
            x = tf.pad(x, [[0, 0], [0, 0], [0, plan.num_queries - num_queries], [0, 0]])
            return block_layout.interleaved(x, stride)

        def of_keys(x):  # [B * d * H, n, W, K]
            x = block_layout.interleaved(plan.aligned(x, num_queries, axis=2), stride)
            x = tf.reshape(x, [rows * stride * num_heads, -1, width])
            return block_layout.windows(x, block, plan.earlier + 1 + plan.later)

        query = of_queries(scaled(content_query, scale))
        shape = shape_of(query)[:3]  # [B * d, H, n * b]
        query = tf.reshape(query, [shape[0] * num_heads, plan.blocks, block, width])
        scores = tf.matmul(query, of_keys(keys), transpose_b=True)  # [B * d * H, n, b, W]
        scores = tf.cast(tf.reshape(scores, [*shape, num_keys]), tf.float32)
        if encodings is not None:
            scores += relative_position.scores_in_blocks(
                of_queries(scaled(position_query, scale)),
                self._of_block(encodings, rules, plan),
                block,
                num_keys,
            )
        visible = _visible(rules, plan, num_queries, shape_of(keys)[2])
        common = rules.common
        if common is not None:
            common = common.repeated(stride)
            query = tf.reshape(query, [*shape, width])
            scores, visible = with_common(scores, visible, query, common)
        weights = self.softmax(scores, visible)  # [B * d, H, n * b, W + G]
        columns = shape_of(weights)[3]
        weights = tf.reshape(weights, [rows, stride * num_heads, shape[2], columns])
        weights = tf.cast(self.drop(weights, dropout_key), values.dtype)
        near = tf.reshape(weights[..., :num_keys], [-1, plan.blocks, block, num_keys])
        attended = tf.matmul(near, of_keys(values))  # [B * d * H, n, b, K]
        attended = tf.reshape(attended, [*shape, width])
        if common is not None:
            weights = tf.reshape(weights, [*shape, columns])
            attended += tf.matmul(weights[..., num_keys:], common.values)
        return block_layout.joined(attended, stride)[:, :, :num_queries]

    def _of_block(self, encodings, rules, plan):
        """Encodings of the distances within a block and its keys. [H, R, K] -> [H, W + b - 1, K]"""
        num_later = relative_position.num_negative_distances(encodings) if rules.lookahead else 0
        first = (encodings.shape[1] - num_later - 1) % plan.stride  # of those that count
        return relative_position.resized(
            encodings[:, first :: plan.stride],
            num_later // plan.stride,
            (plan.earlier + 1) * plan.block,
            (plan.later + 1) * plan.block - 1,
        )


class _Plan(NamedTuple):
    """Sizes: tokens go in `stride` sequences, each in blocks of `block`."""

    stride: int  # d
    block: int  # b
    blocks: int  # n, of queries
    earlier: int  # blocks of keys before that of the queries
    later: int  # and after it

    @property
    def num_queries(self):
        """Tokens, padded."""
        return self.stride * self.blocks * self.block

    @property
    def keys_of_block(self):
        """Keys that a block of queries meets, W."""
        return (self.earlier + 1 + self.later) * self.block

    @property
    def num_scores(self):
        return self.num_queries * self.keys_of_block

    def aligned(self, x, num_queries, axis, value=0):
        """Keys, or what goes with them, that begin and end with whole blocks.

        The memory is cut or padded in front: its end, and so the phase of a stride, stays.

        Shapes: x [..., M + T, ...], M + T on `axis` -> the same with d * (earlier + n + later) * b.
        """
        slots = x.shape[axis] - num_queries
        wanted = self.stride * self.earlier * self.block
        x = x[(slice(None),) * axis + (slice(max(slots - wanted, 0), None),)]
        behind = self.num_queries - num_queries + self.stride * self.later * self.block
        paddings = [[0, 0] for _ in x.shape]
        paddings[axis] = [max(wanted - slots, 0), behind]
        return tf.pad(x, paddings, constant_values=value)


def _narrowed(visibility, window, stride):
    """The rules, and those of the window."""
    span, ahead = visibility.attention_span, visibility.lookahead
    return dataclasses.replace(
        visibility,
        attention_span=window + 1 if span is None else min(span, window + 1),
        lookahead=window if ahead is None else min(ahead, window),
        stride=stride,
    )


def _visible(rules, plan, num_queries, num_keys):
    """Who sees whom within blocks. Returns [B * d, 1, n * b, W] bool."""
    block, stride = plan.block, plan.stride
    marks = plan.aligned(rules.marks(num_queries, num_keys), num_queries, axis=1, value=-1)
    first = stride * plan.earlier * block
    of_queries = block_layout.interleaved(marks[:, first : first + plan.num_queries], stride)
    of_keys = block_layout.interleaved(marks, stride)
    of_keys = block_layout.windows(of_keys, block, plan.earlier + 1 + plan.later)  # [B * d, n, W]
    of_queries = tf.reshape(of_queries, [-1, plan.blocks, block, 1])
    query = plan.earlier * block + tf.range(block)[:, tf.newaxis]
    near = rules.within(stride * (query - tf.range(plan.keys_of_block)))  # [b, W]
    seen = near & (of_keys >= 0)[:, :, tf.newaxis]  # [B * d, n, 1 or b, W]
    if rules.documents is not None:
        seen &= of_queries == of_keys[:, :, tf.newaxis]
    return tf.reshape(seen, [-1, 1, plan.blocks * block, plan.keys_of_block])
