"""Which keys a query may see."""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.ops.shapes import shape_of

HIDDEN = -1e30  # the score of a hidden key: finite, so that no softmax makes NaN


def real_tokens(lengths, num_tokens):
    """Which of T tokens are no pads, None where all are. [B] int32 or None -> [B, T] bool."""
    return None if lengths is None else tf.range(num_tokens) < lengths[:, tf.newaxis]


class GlobalKeys(NamedTuple):
    """Keys that every query sees, wherever it stands, besides those of a call.

    Distances have no part in their scores.
    """

    keys: Any  # [B, H, G, K]
    values: Any  # [B, H, G, K]
    visible: Any  # [B, G] bool, which of them there are

    def for_rows(self, part):
        return GlobalKeys(*(x[part] for x in self))

    def repeated(self, times):
        """Each row's `times` times, one after the other."""
        return self if times == 1 else GlobalKeys(*(tf.repeat(x, times, axis=0) for x in self))

    def for_heads(self, part):
        return self._replace(keys=self.keys[:, part], values=self.values[:, part])


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionMask:
    """The rules of one call; a core turns them into a mask of the shape that it works on.

    Keys are M memory slots, newest last, and then the T tokens of the segment. Query i (the
    segment's token i) sees key j where all of these hold:

      * j is not in the future: j <= M + i, or with `lookahead` not too far ahead;
      * j is a token of the segment, or one of the `remembered` newest slots;
      * j is among the `attention_span` keys that end with the query itself;
      * the distance of i and j, M + i - j, is a multiple of `stride`;
      * j is in the query's document.

    M = 2, T = 3, remembered 1, attention_span 3 (# = seen):

        key      m m 0 1 2
        query 0  . # # . .
        query 1  . # # # .
        query 2  . . # # #

    Right padding needs no rule where nothing looks ahead: pads come last, so only pads see them.
    Elsewhere they are hidden from all.

    Attributes:
      remembered: [B] int32, how many of the newest slots are real.
      documents: [B, T] int32, how many documents have begun in the segment up to each token;
        None where documents do not matter. Memory belongs to document 0.
      attention_span: most keys that a query sees up to itself, itself included; None is no limit.
      lookahead: how many later tokens a query sees; None is all.
      lengths: [B] int32, how many of the T are real, where a query looks ahead; None is all.
      hidden: [B, T] bool, other tokens that none sees; None is none.
      stride: of the distances that count; 1 is all.
      global_tokens: [B, T] bool, which tokens see all and are seen by all, for cores that know
        such; others take no notice.
      common: a `Common`, or None.
      place: scalar int32, where the keys are a ring that one query is added to: the place of its
        own key; older ones stand before it, cyclically. None is a row, oldest first.
    """

    remembered: Any
    documents: Any = None
    attention_span: int | None = None
    lookahead: int | None = 0
    lengths: Any = None
    hidden: Any = None
    stride: int = 1
    global_tokens: Any = None
    common: Any = None
    place: Any = None

    def dense(self, num_queries, num_keys):
        """The mask over all pairs.

        Shapes: returns [B, 1, T, S] bool for T queries and S = M + T keys; `common` has no part.
        """
        if self.place is not None:
            return self._of_ring(num_keys)
        slots = num_keys - num_queries  # M
        distance = slots + tf.range(num_queries)[:, tf.newaxis] - tf.range(num_keys)  # [T, S]
        real = self._real(num_queries, num_keys)  # [B, S]
        seen = self.within(distance) & real[:, tf.newaxis]  # [B, T, S]
        if self.documents is not None:
            of_key = tf.pad(self.documents, [[0, 0], [slots, 0]])  # [B, S]
            seen &= self.documents[:, :, tf.newaxis] == of_key[:, tf.newaxis]
        return seen[:, tf.newaxis]  # [B, 1, T, S]

    def _real(self, num_queries, num_keys):
        """Which keys are real, [B, S] bool: slots that hold something, tokens that are no pads."""
        slots, key = num_keys - num_queries, tf.range(num_keys)
        real = key >= slots - self.remembered[:, tf.newaxis]  # [B, S]
        if self.lengths is not None:
            real &= key < slots + self.lengths[:, tf.newaxis]
        if self.hidden is not None:
            real &= ~tf.pad(self.hidden, [[0, 0], [slots, 0]])
        return real

    def real_tokens(self, num_tokens):
        """As the function of this name, by `lengths`."""
        return real_tokens(self.lengths, num_tokens)

    def marks(self, num_queries, num_keys):
        """Each key's document, 0 where these do not matter; -1 where it is not real. [B, S] int32.

        A query is marked as the key that it is.
        """
        real = self._real(num_queries, num_keys)
        if self.documents is None:
            return tf.where(real, 0, -1)
        slots = num_keys - num_queries
        return tf.where(real, tf.pad(self.documents, [[0, 0], [slots, 0]]), -1)

    def within(self, distance):
        """Which distances count, whatever the key. int32 -> bool of the same shape."""
        is_open = self.lookahead is None
        seen = tf.ones_like(distance, tf.bool) if is_open else distance >= -self.lookahead
        if self.attention_span is not None:
            seen &= distance < self.attention_span
        return seen if self.stride == 1 else seen & (distance % self.stride == 0)

    def for_block(self, block, num_queries, num_keys):
        """The keys that some queries may see, and the rules between these.

        Not where queries look ahead, nor where documents matter.

        Args:
          block: a slice of the T queries.
          num_queries, num_keys: T and S.

        Returns a slice of the S keys, and a AttentionMask.
        """
        if block == slice(None):
            return block, self
        slots = num_keys - num_queries
        first = 0
        if self.attention_span is not None:
            first = max(slots + block.start - self.attention_span + 1, 0)
        # Tokens of the segment that stand before the block are to it as remembered ones.
        rules = dataclasses.replace(self, remembered=self.remembered + block.start)
        return slice(first, slots + block.stop), rules

    def for_rows(self, part):
        """The rules of some rows, a slice."""
        if part == slice(None):
            return self
        by_row = {
            name: getattr(self, name)
            for name in ("remembered", "documents", "lengths", "hidden", "global_tokens")
        }
        cut = {name: None if x is None else x[part] for name, x in by_row.items()}
        common = None if self.common is None else self.common.for_rows(part)
        return dataclasses.replace(self, **cut, common=common)

    def for_heads(self, part):
        """The rules of some heads, a slice."""
        if self.common is None:
            return self
        return dataclasses.replace(self, common=self.common.for_heads(part))

    def to_ring_order(self, scores):
        """Scores of keys that are oldest first, each moved to its key. [B, H, T, S] -> the same."""
        if self.place is None:
            return scores
        first = shape_of(scores)[3] - 1 - self.place  # of the key in place 0
        return tf.concat([scores[..., first:], scores[..., :first]], axis=3)

    def _of_ring(self, num_keys):
        age = (self.place - tf.range(num_keys)) % num_keys  # [S]: tokens since it was written
        seen = self.within(age) & (age <= self.remembered[:, tf.newaxis])  # [B, S]
        return seen[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, S]
