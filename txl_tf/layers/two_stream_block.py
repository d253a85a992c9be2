"""XLNet's block: attention with segment encodings, shared by a content and a query stream."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.attention.base import scaled
from txl_tf.layers.block import Block
from txl_tf.layers.multi_head_attention import RelativeAttention
from txl_tf.ops import attention_mask, linear
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class SegmentAttention(RelativeAttention):
    """Relative attention whose scores also say whether query and key are in the same segment.

    Scores are ((q + u) . k + (q + v) . r + (q + w) . s) / sqrt(K), where s is the first row of
    `segment_embedding` within a segment, and the second between segments (arXiv 1906.08237,
    section 2.5). Without `visibility.segments` the last term is left out.

    A query that sees no key attends to all tokens of the segment and valid memory slots alike.

    Shapes: those of `Attention`; with `at`, x is [B, P, D], queries at positions of the segment.
      at: [B, P, T], one-hot positions of the queries, zeros where unused; None with T queries.
      returns [B, P, D], or [B, T, D] without `at`.
    """

    def _build_biases(self, size):
        super()._build_biases(size)
        self.segment_bias = self._weight("segment_bias", size)
        self.segment_embedding = self._weight("segment_embedding", (2, *size))

    def call(
        self,
        x,
        keys,
        values,
        encodings,
        content_bias=None,
        position_bias=None,
        *,
        visibility,
        dropout_key=None,
        normed=None,
        at=None,
    ):
        del normed  # dense cores do not read it
        query = linear.project_to_heads(x, self.query_kernel)
        if at is not None:
            query = tf.einsum("bhpk,bpt->bhtk", query, at)
        bias = self._bias(query, visibility, shape_of(keys)[2])
        attended = self.attend(
            *self.queries(query, content_bias, position_bias),
            keys,
            values,
            encodings,
            visibility=dataclasses.replace(visibility, bias=bias),
            dropout_key=dropout_key,
        )  # [B, H, T, K]
        if at is not None:
            attended = tf.einsum("bhtk,bpt->bhpk", attended, at)
        return linear.project_from_heads(attended, self.output_kernel)

    def _bias(self, query, visibility, num_keys):
        """Returns the terms of scores besides content and position, float32, or None.

        Shapes: returns [B, H, T, S], or without segments [B, 1, T, S].
        """
        num_queries = shape_of(query)[2]
        slots = num_keys - num_queries
        bias = None
        if visibility.segments is not None:
            key_segments = tf.pad(visibility.segments, [[0, 0], [slots, 0]])
            same = visibility.segments[:, :, tf.newaxis] == key_segments[:, tf.newaxis]
            scores = self._segment_scores(query)  # [B, H, T, 2]
            bias = tf.where(same[:, tf.newaxis], scores[..., :1], scores[..., 1:])
        if not isinstance(slots, int) or slots:
            # Masked twice: below the keys of a query that sees none.
            empty = tf.range(num_keys) < slots - visibility.remembered[:, tf.newaxis]  # [B, S]
            masked = tf.where(empty, attention_mask.HIDDEN, 0.0)[:, tf.newaxis, tf.newaxis]
            bias = masked + (tf.zeros([num_queries, 1]) if bias is None else bias)
        return bias

    def _segment_scores(self, query):
        """Returns the score of a key in the same and in another segment, [B, H, T, 2] float32."""
        scale = query.shape[-1] ** -0.5
        rows = tf.transpose(tf.cast(self.segment_embedding, query.dtype), [1, 0, 2])  # [H, 2, K]
        biased = scaled(query + self.segment_bias[:, tf.newaxis], scale)
        return tf.cast(linear.matmul_per_head(biased, rows), tf.float32)


@keras.saving.register_keras_serializable(package="txl_tf")
class TwoStreamBlock(Block):
    """Block that a content stream and, if given, a query stream run through (arXiv 1906.08237).

    Keys and values are those of memory and content stream. A query knows its position but not its
    token, which it is to predict. Both streams share all weights.

    Shapes:
      x: [B, T, D], the content stream.
      past_keys, past_values, encodings: those of `Block`.
      query, at: [B, P, D], the query stream, and its one-hot positions [B, P, T].
      returns [B, T, D], and with a query stream [B, P, D].

    Call arguments by keyword: `visibility`, an `AttentionMask` of the content stream;
    `query_visibility`, that of the query stream; their dropout keys `dropout_key` and `query_key`.
    """

    def attention_class(self):
        return SegmentAttention

    def call(
        self,
        x,
        past_keys,
        past_values,
        encodings,
        query=None,
        at=None,
        *,
        visibility,
        query_visibility=None,
        dropout_key=None,
        query_key=None,
    ):
        content, keys, values, *_ = super().call(
            x, past_keys, past_values, encodings, visibility=visibility, dropout_key=dropout_key
        )
        if query is None:
            return (content,)
        normed = self.attention_norm(query) if self.config.pre_norm else query
        query, *_ = self.sublayers(
            query,
            normed,
            keys,
            values,
            encodings,
            visibility=query_visibility,
            dropout_key=query_key,
            at=at,
        )
        return content, query
