"""Attention masks: which keys a query may see."""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.ops.shapes import shape_of

HIDDEN = -1e30  # the score of a hidden key: finite, so that no softmax makes NaN


def real_tokens(lengths, num_tokens):
    """Returns the padding mask, True at real tokens. [B] int32 -> [B, T] bool; None -> None."""
    return None if lengths is None else tf.range(num_tokens) < lengths[:, tf.newaxis]


class GlobalKeys(NamedTuple):
    """Keys and values of global tokens, visible to every query; their scores use no distance."""

    keys: Any  # [B, H, G, K]
    values: Any  # [B, H, G, K]
    visible: Any  # [B, G] bool, False at unused slots

    def for_rows(self, part):
        return GlobalKeys(*(x[part] for x in self))

    def repeated(self, times):
        """Repeats each row `times` times, side by side."""
        return self if times == 1 else GlobalKeys(*(tf.repeat(x, times, axis=0) for x in self))

    def for_heads(self, part):
        return self._replace(keys=self.keys[:, part], values=self.values[:, part])


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionMask:
    """A mask in declarative form; each core materialises it in its own layout.

    Keys are M memory slots, newest last, then the T tokens of the segment. Query i (token i of
    the segment) sees key j if all of these hold:

      * j is not in the future: j <= M + i + `lookahead`;
      * j is a token of the segment, or one of the `remembered` newest slots;
      * j is among the `attention_span` keys that end with the query itself;
      * the distance of i and j, M + i - j, is a multiple of `stride`;
      * j is in the query's document;
      * j is a memory slot, or `pairs` is true for i and j.

    M = 2, T = 3, remembered 1, attention_span 3 (# = seen):

        key      m m 0 1 2
        query 0  . # # . .
        query 1  . # # # .
        query 2  . . # # #

    Causal attention needs no padding mask: pads come last, so only pads see them. Bidirectional
    attention hides them from all queries.

    Attributes:
      remembered: [B] int32, number of valid slots, the newest ones.
      documents: [B, T] int32, number of documents begun in the segment up to each token; None
        ignores documents. Memory belongs to document 0.
      attention_span: maximum number of keys up to the query, itself included; None is no limit.
      lookahead: number of later tokens that a query sees; None is all.
      lengths: [B] int32, number of real tokens where a query looks ahead; None is all T.
      pairs: [B, T, T] bool, tokens of the segment that each token sees; None is all. Only for cores
        whose spec `has_pair_masks`.
      segments: [B, T] int32, segment of each token, for segment encodings; memory belongs to
        segment 0. None is no segment encodings.
      bias: [B, H or 1, T, S] float32, a further term of scores, for the cores that support `pairs`;
        None is none.
      hidden: [B, T] bool, further tokens to hide from all queries; None is none.
      stride: only distances that are multiples of it are visible.
      global_tokens: [B, T] bool, tokens that see all and are seen by all; read only by cores with
        global attention.
      global_keys: a `GlobalKeys`, or None.
      ring_index: scalar int32, for keys in a ring buffer and one query: the index of its own key;
        older keys precede it, cyclically. None means keys in order, oldest first.
    """

    remembered: Any
    documents: Any = None
    attention_span: int | None = None
    lookahead: int | None = 0
    lengths: Any = None
    pairs: Any = None
    segments: Any = None
    bias: Any = None
    hidden: Any = None
    stride: int = 1
    global_tokens: Any = None
    global_keys: Any = None
    ring_index: Any = None

    def dense(self, num_queries, num_keys):
        """Returns the mask over all pairs, without `global_keys`.

        Shapes: returns [B, 1, T, S] bool for T queries and S = M + T keys.
        """
        if self.ring_index is not None:
            return self._dense_ring(num_keys)
        slots = num_keys - num_queries  # M
        distance = slots + tf.range(num_queries)[:, tf.newaxis] - tf.range(num_keys)  # [T, S]
        real = self._real_keys(num_queries, num_keys)  # [B, S]
        seen = self.in_reach(distance) & real[:, tf.newaxis]  # [B, T, S]
        if self.documents is not None:
            key_documents = tf.pad(self.documents, [[0, 0], [slots, 0]])  # [B, S]
            seen &= self.documents[:, :, tf.newaxis] == key_documents[:, tf.newaxis]
        if self.pairs is not None:
            seen &= tf.pad(self.pairs, [[0, 0], [0, 0], [slots, 0]], constant_values=True)
        return seen[:, tf.newaxis]  # [B, 1, T, S]

    def _real_keys(self, num_queries, num_keys):
        """Returns the mask of valid keys, [B, S] bool: filled slots, and tokens but for padding."""
        slots, key = num_keys - num_queries, tf.range(num_keys)
        real = key >= slots - self.remembered[:, tf.newaxis]  # [B, S]
        if self.lengths is not None:
            real &= key < slots + self.lengths[:, tf.newaxis]
        if self.hidden is not None:
            real &= ~tf.pad(self.hidden, [[0, 0], [slots, 0]])
        return real

    def real_tokens(self, num_tokens):
        """Returns the padding mask of `lengths`, [B, T] bool, or None."""
        return real_tokens(self.lengths, num_tokens)

    def key_documents(self, num_queries, num_keys):
        """Returns the document of each key, [B, S] int32: -1 at invalid keys, 0 without documents.

        The last T are those of the queries.
        """
        real = self._real_keys(num_queries, num_keys)
        if self.documents is None:
            return tf.where(real, 0, -1)
        slots = num_keys - num_queries
        return tf.where(real, tf.pad(self.documents, [[0, 0], [slots, 0]]), -1)

    def in_reach(self, distance):
        """Returns whether distances are visible, whatever the key. int32 -> bool, same shape."""
        unbounded = self.lookahead is None
        seen = tf.ones_like(distance, tf.bool) if unbounded else distance >= -self.lookahead
        if self.attention_span is not None:
            seen &= distance < self.attention_span
        return seen if self.stride == 1 else seen & (distance % self.stride == 0)

    def for_block(self, block, num_queries, num_keys):
        """Returns the keys that a block of queries may see, and the mask between the two.

        Only for causal masks without documents or pairs.

        Args:
          block: a slice of the T queries.
          num_queries, num_keys: T and S.

        Returns a slice of the S keys, and an AttentionMask.
        """
        if block == slice(None):
            return block, self
        slots = num_keys - num_queries
        first = 0
        if self.attention_span is not None:
            first = max(slots + block.start - self.attention_span + 1, 0)
        # Tokens of the segment before the block act as memory.
        remembered, keys = self.remembered + block.start, slice(first, slots + block.stop)
        bias = None if self.bias is None else self.bias[:, :, block, keys]
        return keys, dataclasses.replace(self, remembered=remembered, bias=bias)

    def for_rows(self, part):
        """Returns the mask restricted to a slice of the batch."""
        if part == slice(None):
            return self
        names = ("remembered", "documents", "lengths", "hidden", "global_tokens")
        by_row = {name: getattr(self, name) for name in (*names, "pairs", "segments", "bias")}
        sliced = {name: None if x is None else x[part] for name, x in by_row.items()}
        global_keys = None if self.global_keys is None else self.global_keys.for_rows(part)
        return dataclasses.replace(self, **sliced, global_keys=global_keys)

    def for_heads(self, part):
        """Returns the mask restricted to a slice of the heads."""
        if self.global_keys is None:
            return self
        return dataclasses.replace(self, global_keys=self.global_keys.for_heads(part))

    def to_ring_order(self, scores):
        """Rotates scores from oldest-first into ring-buffer order. [B, H, T, S] -> the same."""
        if self.ring_index is None:
            return scores
        first = shape_of(scores)[3] - 1 - self.ring_index  # column of the key at index 0
        return tf.concat([scores[..., first:], scores[..., :first]], axis=3)

    def from_ring_order(self, scores):
        """Inverse of `to_ring_order`: the key at S - 1 is the query's own. [..., S] -> the same."""
        if self.ring_index is None:
            return scores
        first = self.ring_index + 1
        return tf.concat([scores[..., first:], scores[..., :first]], axis=-1)

    def to_ring_indices(self, indices, num_keys):
        """Returns the index in the ring buffer of keys counted from the oldest. int32 -> int32."""
        if self.ring_index is None:
            return indices
        return (indices + self.ring_index + 1) % num_keys

    def _dense_ring(self, num_keys):
        age = (self.ring_index - tf.range(num_keys)) % num_keys  # [S]: tokens since it was written
        seen = self.in_reach(age) & (age <= self.remembered[:, tf.newaxis])  # [B, S]
        return seen[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, S]
