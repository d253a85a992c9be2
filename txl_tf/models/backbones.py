"""Backbones for task heads: encoders, or a causal model read in segments."""

import dataclasses
from typing import Any

import tensorflow as tf

from txl_tf.models import block_stack
from txl_tf.models.encoder import Encoder
from txl_tf.models.star_transformer import StarTransformer
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.models.xlnet import XLNet
from txl_tf.ops import dropout as dropouts


class EncoderBackbone:
    """Backbone that reads a text at once, an `Encoder`.

    Shapes of `read`: those of `Encoder`; lengths are required.
    """

    MODEL: type = Encoder

    def __init__(self, config, segment_len, dtype):
        if segment_len is not None:
            raise ValueError(
                f"segment_len must be none for an encoder, which reads a text at once, "
                f"got {segment_len}"
            )
        self.model = self.MODEL(config, dtype=dtype, name="backbone")

    def read(self, token_ids, lengths, global_tokens, dropout_key):
        return self.model(
            token_ids,
            lengths=lengths,
            global_tokens=global_tokens,
            dropout_key=dropout_key,
            training=dropout_key is not None,
        )


class StarBackbone(EncoderBackbone):
    """Backbone that reads a text at once, a `StarTransformer`.

    Returns the mean of each token's state and the relay, of which the maximum over the tokens is
    the paper's vector of a text.
    """

    MODEL = StarTransformer

    def read(self, token_ids, lengths, global_tokens, dropout_key):
        if global_tokens is not None:
            self.model.config.check_global_tokens()
        states, relay = self.model(
            token_ids, lengths=lengths, dropout_key=dropout_key, training=dropout_key is not None
        )
        return (states + relay[:, tf.newaxis]) / 2


class XLNetBackbone(EncoderBackbone):
    """Backbone that reads a text at once, the content stream of an `XLNet` without memory."""

    MODEL = XLNet

    def __init__(self, config, segment_len, dtype):
        if not config.bidirectional:
            raise ValueError("bidirectional must be true for an XLNet with a head, got False")
        super().__init__(dataclasses.replace(config, mem_len=0), segment_len, dtype)
        # Unused by heads: the query stream, and segments, of which a text has one.
        self.model.softmax.trainable = self.model.query_embedding.trainable = False
        for block in self.model.blocks:
            attention = block.attention
            attention.segment_bias.trainable = attention.segment_embedding.trainable = False

    def read(self, token_ids, lengths, global_tokens, dropout_key):
        config = self.model.config
        if global_tokens is not None:
            config.check_global_tokens()
        streams = self.model.hidden_states(
            token_ids, lengths=lengths, dropout_key=dropout_key, training=dropout_key is not None
        )
        states = streams.content[-1]
        return dropouts.dropout(states, config.dropout, dropout_key, block_stack.FINAL_SITE)


class RecurrentBackbone:
    """Causal backbone that reads a text segment by segment with a memory, a `TransformerXL`.

    The loop is unrolled: the graph grows with the number of segments. No gradient flows through
    the memory, only through each segment's own states.
    """

    def __init__(self, config, segment_len, dtype):
        if segment_len is None or segment_len < 1:
            raise ValueError(
                "segment_len must be at least 1 for a causal backbone, which reads a text in "
                f"segments, got {segment_len}"
            )
        self._segment_len = segment_len
        self.model = TransformerXL(config, dtype=dtype, name="backbone")
        self.model.softmax.trainable = False  # unused by heads

    def read(self, token_ids, lengths, global_tokens, dropout_key):
        if global_tokens is not None:
            raise ValueError("global_tokens must be none for a causal backbone, got some")
        num_tokens = token_ids.shape[1]
        if num_tokens is None:
            raise ValueError("token_ids must have a static length for a causal backbone, got none")
        mems, parts = None, []
        for start in range(0, num_tokens, self._segment_len):
            segment = token_ids[:, start : start + self._segment_len]
            key = dropout_key
            if key is not None:  # independent masks for each segment
                key = key.fold_in(start)
            states, mems = self.model.hidden_states(
                segment,
                mems,
                lengths=tf.clip_by_value(lengths - start, 0, segment.shape[1]),
                dropout_key=key,
                training=key is not None,
            )
            rate = self.model.config.dropout
            parts.append(dropouts.dropout(states[-1], rate, key, block_stack.FINAL_SITE))
        return tf.concat(parts, axis=1)  # [B, T, D]


BACKBONES: dict[str, Any] = {
    "encoder": EncoderBackbone,
    "causal": RecurrentBackbone,
    "xlnet": XLNetBackbone,
    "star": StarBackbone,
}
