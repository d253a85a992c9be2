"""The language model: a stack of blocks that carries a memory from segment to segment."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.configs.validation import from_dict
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax
from txl_tf.layers.position_kinds import POSITIONS, PositionTable
from txl_tf.models import block_stack, memory, named_inputs, scoring_model
from txl_tf.ops import attention_mask, relative_position
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of, smaller

_UNCHANGED: Any = object()


@keras.saving.register_keras_serializable(package="txl_tf")
class TransformerXL(scoring_model.ScoringModel):
    """Transformer-XL (Dai et al. 2019, arXiv 1901.02860) as a function of ids and memory.

        scores, mems = model(token_ids)                     # a fresh memory
        scores, mems = model(next_ids, mems)                # reads on
        nll, mems = model.nll(token_ids, targets, mems)     # the loss; cheap with cut-offs
        model.fit({"token_ids": ids, "lengths": lengths}, targets)  # also predict, evaluate

    Nothing is kept inside: memory goes in and comes out, and no gradient flows through it. A built
    model takes any batch size and any segment length.

    Shapes:
      token_ids: [B, T] int32.
      mems: a `Memory` of [B, M, D] states, or lists of its parts, as functional models that Keras
        has loaded pass them; None is the same as `initial_mems(B)`.
      lengths: [B] int32, how many tokens of each row are real; the rest is right padding, neither
        seen nor remembered. None is all.
      document_start: [B, T] bool, where a document begins; a token sees nothing from before its
        own document. None is nowhere.
      dropout_key: a `DropoutKey`, for masks that follow from run, step and row; None draws from
        the model's own seed generator. Only read in training.
      returns scores [B, T, V] float32 and the new memory. Scores are logits, or with cut-offs
        log-probabilities; the log-softmax of either is the log-probabilities.

    Args:
      config: the architecture.
      rematerialize: whether training keeps of each layer its input alone, and computes the rest
        again for the gradient: less memory, about a third more time.
      weights_of: another TransformerXL whose layers this one shares; see `with_lengths`.

    Raises:
      ValueError: called eagerly, ids outside the vocabulary, or a memory of another size. Inside a
        tf.function ids are not checked: XLA clamps a wrong id. Check them on the host.
    """

    def __init__(
        self, config: TransformerXLConfig, *, rematerialize=False, weights_of=None, **kwargs
    ):
        if weights_of is not None:
            kwargs.setdefault("dtype", weights_of.dtype_policy)
        if not isinstance(config, TransformerXLConfig):
            raise ValueError(f"config must be a TransformerXLConfig, got a {type(config).__name__}")
        super().__init__(**kwargs)
        self.config = config
        self.rematerialize = rematerialize
        self._position = POSITIONS[config.position]
        self.seed_generator = keras.random.SeedGenerator()
        if weights_of is None:
            self._make_layers()
        else:
            self.embedding = weights_of.embedding
            self.blocks = weights_of.blocks
            self.position_tables = weights_of.position_tables
            self.biases = weights_of.biases
            self.softmax = weights_of.softmax
        self.build()

    def _make_layers(self):
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
        """Negative log-likelihood of each target, in nats, and the new memory.

        With cut-offs a token never costs the whole vocabulary, and [B, T, V] is never built.

        Shapes: targets [B, T] int32, -1 where ignored -> nll [B, T] float32, 0.0 there, in token
        order; the other arguments are those of a call. What lies beyond `lengths` is ignored.

        Raises:
          ValueError: called eagerly with ids or targets outside the vocabulary, -1 excepted.
        """
        block_stack.check_ids("targets", targets, self.config.vocab_size, ignored=-1)
        states, mems, key = self._run(
            token_ids, mems, lengths, document_start, dropout_key, training
        )
        hidden = dropouts.dropout(states[-1], self.config.dropout, key, block_stack.FINAL_SITE)
        return self.nll_of(hidden, targets, lengths), mems

    def hidden_states(
        self,
        token_ids,
        mems=None,
        lengths=None,
        document_start=None,
        dropout_key=None,
        training=False,
    ):
        """The residual stream: the embeddings, then the output of each layer, and the new memory.

        Shapes: returns a tuple of L + 1 tensors [B, T, D], and a Memory.
        """
        states, mems, _ = self._run(token_ids, mems, lengths, document_start, dropout_key, training)
        return tuple(states), mems

    def scores_of(self, hidden):
        """Scores of what follows, from the output of the last layer. [B, T, D] -> [B, T, V]."""
        return self.softmax(hidden, self.embedding.tables, self.embedding.projections)

    def nll_of(self, hidden, targets, lengths=None):
        """Nats of targets, from the output of the last layer; see `nll`. -> [B, T] float32."""
        targets = scoring_model.within(targets, lengths)
        tables, projections = self.embedding.tables, self.embedding.projections
        return self.softmax(hidden, tables, projections, targets=targets)

    def run_layers(self, token_ids, pasts, encodings, visibility, lengths=None, dropout_key=None):
        """All that stands below the softmax, on whatever the layers remember.

        Shapes:
          token_ids: [B, T] int32.
          pasts: for each layer keys and values of what it remembers, [B, H, M, K] each.
          encodings: for each layer what `encodings` gives for S = M + T keys.
          lengths: [B] int32 or None, as in a call.
          returns the residual stream, L + 1 of [B, T, D]; and for each layer keys and values of
            memory and segment, [B, H, S, K] each.
        """
        x = self.embedding(token_ids)
        places = self._places(shape_of(token_ids)[1], lengths)  # [B or 1, T]
        if self._position.at_embedding:
            x += tf.cast(relative_position.sinusoids(places, self.config.d_model), x.dtype)
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
            places=[table(places) for table in self.position_tables] or None,
            lengths=lengths,
        )

    def routing(self):
        """How experts were used in the last call, over the layers that have some.

        Returns [2] float32: the share of tokens dropped, and the entropy of the experts' shares as
        a part of the greatest; or None where no layer has experts. Inside a graph, of this graph.
        """
        found = [block.routing[1:] for block in self.blocks if block.routing is not None]
        return tf.reduce_mean(tf.stack(found), axis=0) if found else None

    def encodings(self, num_keys, dropout_key=None):
        """What each layer's attention makes of the distances from the newest of S keys.

        Returns L of [H, R, K'], farthest first, or of None where distances have no part in scores.
        Distances from `clamp_len` on count alike: they are one row, which is taken from all others
        and left out, R = min(S - 1, clamp_len). What all keys of a query have in common is nothing
        to a softmax. Without clamping, or where distances are dropped one by one, R = S.
        """
        clamp_len, rate = self.config.clamp_len, self.config.dropout
        of_sinusoids = self._position.of_sinusoids
        is_dropped = of_sinusoids and dropout_key is not None and rate > 0
        is_short = clamp_len is None or (isinstance(num_keys, int) and num_keys <= clamp_len)
        as_one = not is_short and not is_dropped
        distances = relative_position.distances(
            smaller(num_keys, clamp_len + 1) if as_one else num_keys
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
        if not as_one:
            return encodings
        return [None if x is None else x[:, 1:] - x[:, :1] for x in encodings]

    def _places(self, num_tokens, lengths):
        """How far each token stands before the last of its row, clamped. [B or 1, T] float32."""
        ends = tf.reshape(num_tokens if lengths is None else lengths, [-1, 1])
        places = tf.cast(tf.maximum(ends - 1 - tf.range(num_tokens), 0), tf.float32)
        clamp_len = self.config.clamp_len
        return places if clamp_len is None else tf.minimum(places, float(clamp_len))

    def initial_mems(self, batch_size):
        """The memory of a stream that has read nothing.

        With `config.attend_to_initial_zeros` its zeros count as read and take attention mass.
        """
        config = self.config
        return memory.initial(
            batch_size,
            config.num_layers,
            config.mem_len,
            config.d_model,
            self.compute_dtype,
            config.attend_to_initial_zeros,
        )

    def reset(self, mems, rows):
        """Gives the rows where `rows` ([B] bool) is true exactly `initial_mems`."""
        rows = tf.convert_to_tensor(rows, tf.bool)
        mems = memory.as_memory(mems)
        return memory.reset(mems, rows, self.initial_mems(shape_of(mems.length)[0]))

    def with_lengths(
        self, mem_len=_UNCHANGED, clamp_len=_UNCHANGED, attention_span=_UNCHANGED
    ) -> "TransformerXL":
        """The same weights with other lengths, for evaluation; what is left out stays as it is.

        A memory does not pass between models of different `mem_len`.
        """
        given = dict(mem_len=mem_len, clamp_len=clamp_len, attention_span=attention_span)
        changes = {name: value for name, value in given.items() if value is not _UNCHANGED}
        return TransformerXL(dataclasses.replace(self.config, **changes), weights_of=self)

    def _run(self, token_ids, mems, lengths, document_start, dropout_key, training):
        """Everything below the softmax: L + 1 states [B, T, D], the new memory, the dropout key."""
        config = self.config
        block_stack.check_inputs(
            config.vocab_size, token_ids, lengths=lengths, document_start=document_start
        )
        token_ids = tf.cast(token_ids, tf.int32)
        lengths = None if lengths is None else tf.cast(lengths, tf.int32)
        batch, num_tokens = shape_of(token_ids)
        # Nothing remembered: its slots would be masked, so the blocks need not even compute them.
        blank = mems is None and not config.attend_to_initial_zeros
        mems = self.initial_mems(batch) if mems is None else self._check_mems(mems, batch)
        key = block_stack.dropout_key(dropout_key, self.seed_generator, batch) if training else None

        past = [tf.stop_gradient(tf.cast(s, self.compute_dtype)) for s in mems.states]
        read = [s[:, :0] for s in past] if blank else past
        states, _ = self.run_layers(
            token_ids,
            (block.keys_values(seen) for block, seen in zip(self.blocks, read, strict=True)),
            self.encodings(read[0].shape[1] + num_tokens, key),
            self.visibility(mems.length, document_start),
            lengths,
            key,
        )

        kept = tuple(memory.remember(p, s, lengths) for p, s in zip(past, states, strict=False))
        length = memory.remembered_after(
            mems.length, config.mem_len, num_tokens, lengths, document_start
        )
        return states, memory.Memory(kept, length), key

    def visibility(self, remembered, document_start=None, place=None):
        """Who sees whom.

        Shapes: remembered [B] int32, document_start [B, T] bool or None; place, where the keys are
        a ring, a scalar (see `attention_mask.AttentionMask`), or None.
        """
        return attention_mask.AttentionMask(
            remembered=remembered,
            documents=None if document_start is None else _count(document_start),
            attention_span=self.config.attention_span,
            place=place,
        )

    def _check_mems(self, mems, batch):
        config, mems = self.config, memory.as_memory(mems)
        if len(mems.states) != config.num_layers:
            raise ValueError(
                f"mems must hold a state for each of {config.num_layers} layers, "
                f"got {len(mems.states)}"
            )
        for part in (*mems.states, mems.length):
            known = isinstance(batch, int) and part.shape[0] is not None
            if known and part.shape[0] != batch:
                raise ValueError(
                    f"mems must have the batch size of token_ids, {batch}, got {part.shape[0]}; "
                    "start from initial_mems"
                )
        for state in mems.states:
            if state.shape[1] != config.mem_len or state.shape[2] != config.d_model:
                raise ValueError(
                    f"mems must have mem_len {config.mem_len} and width {config.d_model}, got "
                    f"mem_len {state.shape[1]} and width {state.shape[2]}; start from initial_mems"
                )
        return mems

    def scores_in(self, outputs):
        scores, _ = outputs
        return scores

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}

    @classmethod
    def from_config(cls, config):
        return cls(from_dict(TransformerXLConfig, config.pop("config")), **config)


def _count(document_start):
    """How many documents have begun up to each token. [B, T] bool -> [B, T] int32."""
    return tf.cumsum(tf.cast(document_start, tf.int32), axis=1)
