"""XLNet: permutation language modelling with two streams over Transformer-XL's layers."""

import dataclasses
import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf.configs.model import XLNetConfig
from txl_tf.configs.validation import check
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax
from txl_tf.layers.two_stream_block import TwoStreamBlock
from txl_tf.models import block_stack, memory, named_inputs, recurrent_model, scoring_model
from txl_tf.ops import attention_mask
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of, smaller

_QUERY_STREAM = 3  # number that its dropout key is derived by; those of sites are others


class Streams(NamedTuple):
    """Outputs of the layers, and the memory after them."""

    content: tuple[Any, ...]  # L + 1 of [B, T, D]: the embedding, then the output of each layer
    query: tuple[Any, ...]  # L + 1 of [B, P, D]; empty without targets
    mems: memory.Memory


@keras.saving.register_keras_serializable(package="txl_tf")
class XLNet(recurrent_model.RecurrentModel):
    """XLNet (Yang et al. 2019, arXiv 1906.08237) as a function of ids and memory.

    >>> config = txl_tf.XLNetConfig(vocab_size=32, num_layers=2, d_model=16, num_heads=2)
    >>> model = txl_tf.XLNet(config)
    >>> ids = np.arange(8, dtype="int32").reshape(2, 4)
    >>> order = np.array([0, 3, 1, 2])  # a permutation: each token sees those before it
    >>> visible = np.broadcast_to(order[:, np.newaxis] > order, [2, 4, 4])
    >>> positions = np.array([[1, 3], [1, 3]])
    >>> scores, mems = model(ids, visible=visible, target_positions=positions)
    >>> scores.shape
    TensorShape([2, 2, 32])

    The content stream reads all tokens. With `target_positions`, a query stream predicts the tokens
    there: it knows their positions, and what `visible` lets them see, but not the tokens. Without,
    scores are those of the content stream: for `bidirectional=False`, of the next token.

    The model is stateless: memory goes in and comes out, and no gradient flows through it. A built
    model takes any batch size and any segment length.

    Shapes:
      token_ids: [B, T] int32.
      mems: a `Memory` of [B, M, D] states; None is the same as `initial_mems(B)`.
      lengths: [B] int32, number of real tokens of each row; the rest is right padding, neither
        seen nor remembered. None is all.
      segments: [B, T] int32, the segment of each token; memory belongs to segment 0. None is no
        segment encodings.
      visible: [B, T, T] bool, whether token i may see token j of the segment; tokens of the content
        stream also see themselves. None is all; required with `target_positions`.
      target_positions: [B, P] int32, positions of the tokens to predict, -1 where unused.
      dropout_key: a `DropoutKey`, for masks determined by run, step and row; None draws from the
        model's own seed generator. Only read in training.
      returns logits float32 and the new memory: [B, P, V] with targets, else [B, T, V].

    Args:
      config: the architecture.
      rematerialize: whether training keeps only the input of each layer, and recomputes the rest
        for the gradient: less memory, about a third more time.
      weights_of: another XLNet whose layers this one shares; see `with_lengths`.

    Raises:
      ValueError: targets without `visible`; called eagerly, ids or positions out of range, or a
        memory of another size. Inside a tf.function these are not checked.
    """

    CONFIG = XLNetConfig
    LAYERS = ("embedding", "query_embedding", "blocks", "softmax")

    def make_layers(self):
        config, policy = self.config, self.dtype_policy
        words = dict(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            d_embed=config.d_model,
            init_std=config.init_std,
            dtype=policy,
        )
        self.embedding = AdaptiveEmbedding(**words, scale=1.0, name="embedding")
        self.query_embedding = AdaptiveEmbedding(
            **(words | dict(vocab_size=1)), scale=1.0, name="query_embedding"
        )
        self.blocks = block_stack.make_blocks(config, policy, TwoStreamBlock)
        self.softmax = AdaptiveSoftmax(**words, name="softmax")

    def build(self, input_shape=None):
        layers = (self.embedding, self.query_embedding, *self.blocks, self.softmax)
        block_stack.build(layers, self.config.d_model)

    @named_inputs.takes_dict
    def call(
        self,
        token_ids,
        mems=None,
        lengths=None,
        segments=None,
        visible=None,
        target_positions=None,
        dropout_key=None,
        training=False,
    ):
        hidden, mems = self._hidden(
            token_ids, mems, lengths, segments, visible, target_positions, dropout_key, training
        )
        return self.softmax(hidden, self.embedding.tables, self.embedding.projections), mems

    def nll(
        self,
        token_ids,
        targets,
        mems=None,
        lengths=None,
        segments=None,
        visible=None,
        target_positions=None,
        dropout_key=None,
        training=False,
    ):
        """Returns the negative log-likelihood of each target, in nats, and the new memory.

        Shapes: targets [B, P] int32, the tokens at `target_positions`, -1 where ignored; without
        positions [B, T], -1 also beyond `lengths` -> nll, the same, float32, 0.0 where ignored. The
        other arguments are those of a call.

        Raises:
          ValueError: called eagerly with ids or targets outside the vocabulary, except -1.
        """
        block_stack.check_ids("targets", targets, self.config.vocab_size, ignored=-1)
        hidden, mems = self._hidden(
            token_ids, mems, lengths, segments, visible, target_positions, dropout_key, training
        )
        targets = scoring_model.within(targets, lengths if target_positions is None else None)
        tables, projections = self.embedding.tables, self.embedding.projections
        return self.softmax(hidden, tables, projections, targets=targets), mems

    def hidden_states(
        self,
        token_ids,
        mems=None,
        lengths=None,
        segments=None,
        visible=None,
        target_positions=None,
        dropout_key=None,
        training=False,
    ):
        """Returns the `Streams` of a call."""
        streams, _ = self._run(
            token_ids, mems, lengths, segments, visible, target_positions, dropout_key, training
        )
        return streams

    def routing(self):
        """Returns routing statistics as `TransformerXL` does: none, as no layer has experts."""

    def _hidden(self, *inputs):
        """Returns the last states of the stream that predicts, and the new memory."""
        streams, key = self._run(*inputs)
        states = (streams.query or streams.content)[-1]
        dropped = dropouts.dropout(states, self.config.dropout, key, block_stack.FINAL_SITE)
        return dropped, streams.mems

    def _run(
        self,
        token_ids,
        mems,
        lengths,
        segments,
        visible,
        target_positions,
        dropout_key,
        training,
    ):
        """Returns the `Streams` of a call, and the dropout key of the stream that predicts."""
        config = self.config
        _check_inputs(config, token_ids, lengths, segments, visible, target_positions)
        token_ids = tf.cast(token_ids, tf.int32)
        lengths = None if lengths is None else tf.cast(lengths, tf.int32)
        batch, num_tokens = shape_of(token_ids)
        mems, past, context = self.recalled(mems, batch)
        key = block_stack.dropout_key(dropout_key, self.seed_generator, batch) if training else None
        num_keys = shape_of(context[0])[1] + num_tokens
        encodings = block_stack.sinusoid_encodings(
            config,
            self.blocks,
            num_keys,
            num_tokens - 1 if config.bidirectional else 0,
            self.compute_dtype,
            key,
        )
        mask = attention_mask.AttentionMask(
            remembered=mems.length,
            lookahead=None if config.bidirectional else 0,
            attention_span=config.attention_span,
            lengths=lengths if config.bidirectional else None,
            segments=None if segments is None else tf.cast(segments, tf.int32),
        )
        content, query, query_key = self._run_streams(
            token_ids, context, encodings, mask, visible, target_positions, key
        )
        mems = self._remember(past, content, mems.length, num_tokens, lengths)
        return Streams(content, query, mems), query_key if query else key

    def _run_streams(
        self, token_ids, context, encodings, mask, visible, target_positions, dropout_key
    ):
        """Returns the states of both streams, and the dropout key of the query stream."""
        num_tokens = shape_of(token_ids)[1]
        visible = None if visible is None else tf.cast(visible, tf.bool)
        x = self._embedded(self.embedding, token_ids, dropout_key)
        content, query, query_arguments, query_inputs = [x], [], {}, ()
        query_key = None if dropout_key is None else dropout_key.fold_in(_QUERY_STREAM)
        if target_positions is not None:
            zeros = tf.zeros_like(target_positions, tf.int32)
            query.append(self._embedded(self.query_embedding, zeros, query_key))
            query_inputs = (tf.one_hot(target_positions, num_tokens, dtype=self.compute_dtype),)
            query_arguments = dict(
                query_visibility=dataclasses.replace(mask, pairs=visible), query_key=query_key
            )
        if visible is not None:
            visible |= tf.eye(num_tokens, dtype=tf.bool)
        for block, state, layer_encodings in zip(self.blocks, context, encodings, strict=True):
            run_block = functools.partial(
                block,
                visibility=dataclasses.replace(mask, pairs=visible),
                dropout_key=dropout_key,
                **query_arguments,
            )
            if self.rematerialize and dropout_key is not None:
                run_block = tf.recompute_grad(run_block)
            outputs = run_block(
                content[-1],
                *block.keys_values(state),
                layer_encodings,
                *query[-1:],
                *query_inputs,
            )
            for stream, output in zip((content, query), outputs, strict=False):
                stream.append(output)
        return tuple(content), tuple(query), query_key

    def _embedded(self, embedding, ids, dropout_key):
        rate = self.config.dropout
        return dropouts.dropout(embedding(ids), rate, dropout_key, block_stack.EMBEDDING_SITE)

    def _remember(self, past, content, remembered, num_tokens, lengths):
        """Returns the memory after a segment, of which the first `reuse_len` tokens enter."""
        config = self.config
        if config.reuse_len is not None:
            num_tokens = smaller(num_tokens, config.reuse_len)
            lengths = None if lengths is None else tf.minimum(lengths, num_tokens)
        kept = tuple(
            memory.remember(p, s[:, :num_tokens], lengths)
            for p, s in zip(past, content, strict=False)
        )
        length = memory.remembered_after(remembered, config.mem_len, num_tokens, lengths)
        return memory.Memory(kept, length)

    def lengths_in(self, inputs):
        return None if "target_positions" in inputs else super().lengths_in(inputs)


def _check_inputs(config, token_ids, lengths, segments, visible, target_positions):
    """Raises if inputs disagree, or, when eager, if an id or a position is out of range."""
    block_stack.check_inputs(config.vocab_size, token_ids, lengths=lengths, segments=segments)
    batch, num_tokens = block_stack.static_shape(token_ids)
    if visible is not None:
        expected, actual = [batch, num_tokens, num_tokens], block_stack.static_shape(visible)
        check(actual.is_compatible_with(expected), "visible", f"be of shape {expected}", actual)
    if target_positions is not None:
        check(visible is not None, "visible", "be given with target_positions", None)
        if num_tokens is not None:
            block_stack.check_ids("target_positions", target_positions, num_tokens, ignored=-1)
