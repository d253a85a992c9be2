"""Transformer-XL language model: a block stack with a memory carried from segment to segment."""

import keras
import tensorflow as tf

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax
from txl_tf.layers.position_kinds import POSITIONS, PositionTable
from txl_tf.models import block_stack, memory, named_inputs, recurrent_model, scoring_model
from txl_tf.ops import attention_mask, relative_position
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of, smaller


@keras.saving.register_keras_serializable(package="txl_tf")
class TransformerXL(recurrent_model.RecurrentModel):
    """Transformer-XL (Dai et al. 2019, arXiv 1901.02860) as a function of ids and memory.

    >>> model = txl_tf.TransformerXL(txl_tf.preset("tiny").model)
    >>> ids = np.arange(20, dtype="int32").reshape(2, 10)
    >>> scores, mems = model(ids[:, :4])  # empty memory
    >>> scores, mems = model(ids[:, 4:8], mems)  # continues both rows
    >>> nll, mems = model.nll(ids[:, 8:9], ids[:, 9:], mems)  # the loss; cheap with cut-offs
    >>> scores.shape, nll.shape, mems.length.numpy()
    (TensorShape([2, 4, 256]), TensorShape([2, 1]), array([9, 9], dtype=int32))

    Keras' `fit`, `evaluate` and `predict` take {"token_ids": ids, "lengths": lengths}.

    The model is stateless: memory goes in and comes out, and no gradient flows through it. A built
    model takes any batch size and any segment length.

    Shapes:
      token_ids: [B, T] int32.
      mems: a `Memory` of [B, M, D] states, or lists of its parts, as functional models loaded by
        Keras pass them; None is the same as `initial_mems(B)`.
      lengths: [B] int32, number of real tokens of each row; the rest is right padding, neither
        seen nor remembered. None is all.
      document_start: [B, T] bool, first tokens of documents; a token sees nothing from before its
        own document. None is none.
      dropout_key: a `DropoutKey`, for masks determined by run, step and row; None draws from the
        model's own seed generator. Only read in training.
      returns scores [B, T, V] float32 and the new memory. Scores are logits, or with cut-offs
        log-probabilities; the log-softmax of either is the log-probabilities.

    Args:
      config: the architecture.
      rematerialize: whether training keeps only the input of each layer, and recomputes the rest
        for the gradient: less memory, about a third more time.
      weights_of: another TransformerXL whose layers this one shares; see `with_lengths`.

    Raises:
      ValueError: called eagerly, ids outside the vocabulary, or a memory of another size. Inside a
        tf.function ids are not checked: XLA clamps an invalid id. Check them on the host.
    """

    CONFIG = TransformerXLConfig
    LAYERS = ("embedding", "blocks", "position_tables", "biases", "softmax")

    @property
    def _position(self):
        return POSITIONS[self.config.position]

    def make_layers(self):
        config, policy = self.config, self.dtype_policy
        words = dict(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            d_embed=config.embed_dim,
            cutoffs=config.cutoffs,
            div_val=config.div_val,
            project_same_dim=config.project_same_dim,
            init_std=config.init_std,
            proj_init_std=config.proj_init_std,
            dtype=policy,
        )
        self.embedding = AdaptiveEmbedding(**words, name="embedding")
        self.biases = block_stack.make_biases(config, policy)
        self.blocks = block_stack.make_blocks(config, policy)
        self.position_tables = [
            PositionTable(
                config.num_positions,
                config.d_model,
                config.init_std,
                dtype=policy,
                name=f"position_table_{layer}",
            )
            for layer in range(config.num_layers if self._position.at_layers else 0)
        ]
        self.softmax = AdaptiveSoftmax(
            **words,
            tie_embeddings=config.tie_embeddings,
            tie_projections=config.tie_projections,
            tie_output_projection=config.tie_output_projection,
            name="softmax",
        )

    def build(self, input_shape=None):
        shared = (self.embedding, self.biases, self.softmax)
        block_stack.build((*shared, *self.blocks, *self.position_tables), self.config.d_model)

    @named_inputs.takes_dict
    def call(
        self,
        token_ids,
        mems=None,
        lengths=None,
        document_start=None,
        dropout_key=None,
        training=False,
    ):
        states, mems, key = self._run(
            token_ids, mems, lengths, document_start, dropout_key, training
        )
        hidden = dropouts.dropout(states[-1], self.config.dropout, key, block_stack.FINAL_SITE)
        return self.scores_of(hidden), mems

    def nll(
        self,
        token_ids,
        targets,
        mems=None,
        lengths=None,
        document_start=None,
        dropout_key=None,
        training=False,
    ):
        """Returns the negative log-likelihood of each target, in nats, and the new memory.

        With cut-offs a token costs only the clusters it needs, and [B, T, V] is never built.

        Shapes: targets [B, T] int32, -1 where ignored -> nll [B, T] float32, 0.0 there; the other
        arguments are those of a call. Targets beyond `lengths` are ignored.

        Raises:
          ValueError: called eagerly with ids or targets outside the vocabulary, except -1.
        """
        nll, _, mems = self._nll(
            token_ids, targets, mems, lengths, document_start, dropout_key, training
        )
        return nll, mems

    def _nll(self, token_ids, targets, mems, lengths, document_start, dropout_key, training):
        """Returns the losses of `nll`, the L + 1 states that they are of, and the new memory."""
        block_stack.check_ids("targets", targets, self.config.vocab_size, ignored=-1)
        states, mems, key = self._run(
            token_ids, mems, lengths, document_start, dropout_key, training
        )
        hidden = dropouts.dropout(states[-1], self.config.dropout, key, block_stack.FINAL_SITE)
        return self.nll_of(hidden, targets, lengths), states, mems

    def hidden_states(
        self,
        token_ids,
        mems=None,
        lengths=None,
        document_start=None,
        dropout_key=None,
        training=False,
    ):
        """Returns the embeddings followed by the output of each layer, and the new memory.

        Shapes: returns a tuple of L + 1 tensors [B, T, D], and a Memory.
        """
        states, mems, _ = self._run(token_ids, mems, lengths, document_start, dropout_key, training)
        return tuple(states), mems

    def scores_of(self, hidden):
        """Returns scores of the next token from the last layer's output. [B, T, D] -> [B, T, V]."""
        return self.softmax(hidden, self.embedding.tables, self.embedding.projections)

    def nll_of(self, hidden, targets, lengths=None):
        """Returns losses of targets from the last layer's output; see `nll`. -> [B, T] float32."""
        targets = scoring_model.within(targets, lengths)
        tables, projections = self.embedding.tables, self.embedding.projections
        return self.softmax(hidden, tables, projections, targets=targets)

    def run_layers(self, token_ids, pasts, encodings, visibility, lengths=None, dropout_key=None):
        """Runs embedding and blocks on given keys and values of the memory.

        Shapes:
          token_ids: [B, T] int32.
          pasts: for each layer keys and values of its memory, [B, H, M, K] each.
          encodings: for each layer those that `encodings` returns for S = M + T keys.
          lengths: [B] int32 or None, as in a call.
          returns the residual stream, L + 1 of [B, T, D]; and for each layer keys and values of
            memory and segment, [B, H, S, K] each.
        """
        x = self.embedding(token_ids)
        positions = self._positions(shape_of(token_ids)[1], lengths)  # [B or 1, T]
        if self._position.at_embedding:
            x += tf.cast(relative_position.sinusoids(positions, self.config.d_model), x.dtype)
        x = dropouts.dropout(x, self.config.dropout, dropout_key, block_stack.EMBEDDING_SITE)
        return block_stack.run(
            self.blocks,
            self.biases,
            x,
            pasts,
            encodings,
            visibility=visibility,
            dropout_key=dropout_key,
            rematerialize=self.rematerialize,
            position_embeddings=[table(positions) for table in self.position_tables] or None,
            lengths=lengths,
        )

    def routing(self):
        """Returns routing statistics of the last call, averaged over the layers with experts.

        Shapes: returns [2] float32: the fraction of tokens dropped, and the normalised entropy of
        the experts' shares; None without experts. Inside a graph, of this graph.
        """
        routing = [block.routing[1:] for block in self.blocks if block.routing is not None]
        return tf.reduce_mean(tf.stack(routing), axis=0) if routing else None

    def encodings(self, num_keys, dropout_key=None):
        """Returns each layer's encodings of the distances from the newest of S keys.

        Shapes: returns L of [H, R, K'], farthest first, or of None without position scores.

        Distances from `clamp_len` on share one encoding, which is subtracted from all others and
        left out, R = min(S - 1, clamp_len): softmax is invariant to a constant shift of a query's
        scores. Without clamping, or with dropout of the encodings, R = S.
        """
        clamp_len, rate = self.config.clamp_len, self.config.dropout
        of_sinusoids = self._position.of_sinusoids
        is_dropped = of_sinusoids and dropout_key is not None and rate > 0
        is_short = clamp_len is None or (isinstance(num_keys, int) and num_keys <= clamp_len)
        merges_far = not is_short and not is_dropped
        distances = relative_position.distances(
            smaller(num_keys, clamp_len + 1) if merges_far else num_keys
        )
        if clamp_len is not None:
            distances = tf.minimum(distances, float(clamp_len))
        if of_sinusoids:
            distances = relative_position.sinusoids(distances, self.config.d_model)  # [R, D]
            distances = tf.cast(distances, self.compute_dtype)
            distances = dropouts.dropout(  # once for all layers and rows
                distances, rate, dropout_key, block_stack.POSITIONS_SITE, by_row=False
            )
        encodings = [block.encodings(distances) for block in self.blocks]
        if not merges_far:
            return encodings
        return [None if x is None else x[:, 1:] - x[:, :1] for x in encodings]

    def _positions(self, num_tokens, lengths):
        """Returns each token's clamped distance to the last of its row, [B or 1, T] float32."""
        ends = tf.reshape(num_tokens if lengths is None else lengths, [-1, 1])
        positions = tf.cast(tf.maximum(ends - 1 - tf.range(num_tokens), 0), tf.float32)
        clamp_len = self.config.clamp_len
        return positions if clamp_len is None else tf.minimum(positions, float(clamp_len))

    def _run(self, token_ids, mems, lengths, document_start, dropout_key, training):
        """Returns the L + 1 states [B, T, D] below the softmax, the new memory, the dropout key."""
        config = self.config
        block_stack.check_inputs(
            config.vocab_size, token_ids, lengths=lengths, document_start=document_start
        )
        token_ids = tf.cast(token_ids, tf.int32)
        lengths = None if lengths is None else tf.cast(lengths, tf.int32)
        batch, num_tokens = shape_of(token_ids)
        mems, past, context = self.recalled(mems, batch)
        key = block_stack.dropout_key(dropout_key, self.seed_generator, batch) if training else None
        states, _ = self.run_layers(
            token_ids,
            (block.keys_values(x) for block, x in zip(self.blocks, context, strict=True)),
            self.encodings(context[0].shape[1] + num_tokens, key),
            self.visibility(mems.length, document_start),
            lengths,
            key,
        )

        kept = tuple(memory.remember(p, s, lengths) for p, s in zip(past, states, strict=False))
        length = memory.remembered_after(
            mems.length, config.mem_len, num_tokens, lengths, document_start
        )
        return states, memory.Memory(kept, length), key

    def visibility(self, remembered, document_start=None, ring_index=None):
        """Returns the attention mask of a call.

        Shapes: remembered [B] int32, document_start [B, T] bool or None; ring_index scalar int32,
        for keys in a ring buffer (see `attention_mask.AttentionMask`), or None.
        """
        return attention_mask.AttentionMask(
            remembered=remembered,
            documents=None if document_start is None else _count(document_start),
            attention_span=self.config.attention_span,
            ring_index=ring_index,
        )


def _count(document_start):
    """Returns the number of documents begun up to each token. [B, T] bool -> [B, T] int32."""
    return tf.cumsum(tf.cast(document_start, tf.int32), axis=1)
