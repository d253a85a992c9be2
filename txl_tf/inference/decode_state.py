"""States of inference: run a model segment by segment, with its memory passed in and out."""

import tensorflow as tf

from txl_tf import memory_estimate
from txl_tf.configs.objectives import Causal, Objective, Permutation
from txl_tf.models import memory, objectives
from txl_tf.ops import machine
from txl_tf.ops.dropout import DropoutKey
from txl_tf.ops.shapes import larger, shape_of

_CAUSAL = Causal()


class HiddenState:
    """Runs a model on the memory that it was trained with: the hidden states of its layers.

    Other modules treat the state as opaque and use only these methods. Callers compile them and
    check their inputs.

    Shapes:
      ids, targets: [B, T] int32; a target of -1 is not scored.
      lengths: [B] int32, number of real tokens, the first ones, 0 allowed; None is all.
      document_start: [B, T] bool, first tokens of documents, which see nothing before them.

    Args:
      model: a TransformerXL.
      segment_len: usual number of tokens of a call; used only by `check_memory`.

    Raises:
      ValueError: the machine has too little memory for one row.
    """

    KEEPS_KEYS = False  # whether the state is keys and values, not hidden states

    def __init__(self, model, segment_len=128):
        self.model = model
        self.vocab_size = model.config.vocab_size
        self._segment_len = segment_len
        self.check_memory(1)

    def check_memory(self, num_rows, num_tokens=1, num_generated=0, **counts):
        """Raises if a job needs more than the machine's memory.

        Args:
          num_rows: number of rows.
          num_tokens: tokens of a row read at once.
          num_generated: ids to generate for each row.
          **counts: the arguments that determine these numbers, for the message.

        Raises:
          ValueError: names the bytes and the arguments.
        """
        config = self.model.config
        keeps_keys = self.KEEPS_KEYS
        needed = memory_estimate.inference_estimate(
            config,
            num_rows,
            num_tokens,
            num_encodings=config.mem_len + self._segment_len if keeps_keys else 0,
            compute=tf.as_dtype(self.model.compute_dtype).size,
            keeps_keys=keeps_keys,
            num_generated=num_generated,
        )
        numbers = counts or {"rows": num_rows, "tokens": num_tokens}
        numbers |= dict(mem_len=config.mem_len, segment_len=self._segment_len)
        machine.check_memory(needed.parts, numbers)

    def _check_call(self, ids):
        """Checks the memory of a call of static shape; in a graph this is free."""
        if None not in ids.shape:
            self.check_memory(*ids.shape)

    def refresh(self):
        """Updates cached values after a change of the model's weights."""

    def initial(self, batch_size):
        """Returns the initial state; a static batch size is checked against the memory."""
        if isinstance(batch_size, int):
            self.check_memory(batch_size)
        return self._empty(batch_size)

    def _empty(self, batch_size):
        return self.model.initial_mems(batch_size)

    def advance(self, ids, state, lengths=None):
        """Returns the state after reading `ids`, without computing scores."""
        _, state = self._read(ids, state, lengths)
        return state

    def scores(self, ids, state, lengths=None):
        """Returns scores of the token after each id, [B, T, V], and the new state."""
        hidden, state = self._read(ids, state, lengths)
        return self.model.scores_of(hidden), state

    def nll(self, ids, targets, state, lengths=None, document_start=None):
        """Returns the loss of each target in nats, [B, T] float32, and the state after the ids."""
        hidden, state = self._read(ids, state, lengths, document_start)
        return self.model.nll_of(hidden, targets, lengths), state

    def evaluate(self, ids, targets, state, document_start, row_ids):
        """Returns the losses and the targets of the objective, [B, N], and the new state.

        Shapes: row_ids [B] int32, an id of each row of each batch, of which draws are a function;
        the others as for `nll`.
        """
        del row_ids
        nll, state = self.nll(ids, targets, state, document_start=document_start)
        return nll, targets, state

    def to_ring_buffer(self, state, rounds=1):
        """Converts the state to the layout of the in-graph decoding loop.

        Args:
          state: the state before the loop.
          rounds: maximum number of iterations after a row has finished.
        """
        del rounds
        return state

    def from_ring_buffer(self, ring):
        """Converts the state back from the layout of the decoding loop."""
        return ring

    def next_scores(self, last, ring, lengths=None):
        """Returns scores of the token after the last one, [B, V], and the new ring state.

        Shapes: last [B] int32; lengths [B] int32, 1, or 0 for rows that have finished, from then on
        to the loop's end.
        """
        scores, ring = self.scores(last[:, tf.newaxis], ring, lengths)
        return scores[:, 0], ring

    def reorder(self, state, rows):
        """Gathers rows of a state; rows may repeat."""
        return memory.reorder(state, rows)

    def _read(self, ids, state, lengths, document_start=None):
        """Returns the output of the last layer, [B, T, D], and the state after the ids."""
        self._check_call(ids)
        states, state = self.model.hidden_states(
            ids, state, lengths=lengths, document_start=document_start
        )
        return states[-1], state


class KeyValueState(HiddenState):
    """Runs a model on cached keys and values: each token is projected once.

    Distances are projected once, for memory and a segment of `segment_len`; a longer segment
    projects its own. Results equal those of `HiddenState` up to rounding while the weights stay the
    same: after a change call `refresh` and start from `initial`.

    The state is a `memory.KeyValues`, 2 H K / D times as large as a `Memory`.

    Args:
      model: a TransformerXL.
      segment_len: usual number of tokens of a call.
    """

    KEEPS_KEYS = True

    def __init__(self, model, segment_len=128):
        super().__init__(model, segment_len)
        self._num_cached = model.config.mem_len + segment_len  # keys whose encodings are cached
        self.encodings = [
            None if x is None else tf.Variable(x, trainable=False, name=f"encodings_{layer}")
            for layer, x in enumerate(model.encodings(self._num_cached))
        ]  # L of [H, R, K'], or of None without position scores

    def refresh(self):
        for variable, x in zip(self.encodings, self.model.encodings(self._num_cached), strict=True):
            if variable is not None:
                variable.assign(x)

    def _empty(self, batch_size):
        """Returns an empty state, or with `attend_to_initial_zeros` one of zero states."""
        config, model = self.model.config, self.model
        shape = [batch_size, config.num_heads, config.mem_len, config.head_dim]
        keys = values = [tf.zeros(shape, model.compute_dtype)] * config.num_layers
        if config.attend_to_initial_zeros:
            zero = tf.zeros([1, 1, config.d_model], model.compute_dtype)
            pairs = [block.keys_values(zero) for block in model.blocks]
            keys, values = (
                [tf.broadcast_to(x, shape) for x in xs] for xs in zip(*pairs, strict=True)
            )
        length = config.mem_len if config.attend_to_initial_zeros else 0
        return memory.KeyValues(tuple(keys), tuple(values), tf.fill([batch_size], length))

    def to_ring_buffer(self, state, rounds=1):
        return memory.to_ring(state, rounds)

    def from_ring_buffer(self, ring):
        return memory.from_ring(ring, self.model.config.mem_len)

    def next_scores(self, last, ring, lengths=None):
        model = self.model
        keys, values, length, write_index, stale = ring
        states, joined = model.run_layers(
            last[:, tf.newaxis],
            zip(keys, values, strict=True),
            self.encodings,  # uncropped: cropping the scores is cheaper
            model.visibility(length, ring_index=write_index),
        )
        keys, values = zip(*joined, strict=True)
        real = tf.ones_like(length) if lengths is None else lengths
        length = tf.minimum(length + real, model.config.mem_len)
        write_index = (write_index + 1) % keys[0].shape[2]
        ring = memory.Ring(keys, values, length, write_index, stale + 1 - real)
        return model.scores_of(states[-1])[:, 0], ring

    def _read(self, ids, state, lengths, document_start=None):
        self._check_call(ids)
        model, slots = self.model, self.model.config.mem_len
        num_tokens = shape_of(ids)[1]
        states, joined = model.run_layers(
            ids,
            zip(state.keys, state.values, strict=True),
            self._encodings(slots + num_tokens),
            model.visibility(state.length, document_start),
            lengths,
        )
        keys, values = (
            tuple(memory.newest(x, slots, axis=2, lengths=lengths) for x in xs)
            for xs in zip(*joined, strict=True)
        )
        length = memory.remembered_after(state.length, slots, num_tokens, lengths, document_start)
        return states[-1], memory.KeyValues(keys, values, length)

    def _encodings(self, num_keys):
        """Returns each layer's encodings, farthest first: L of [H, R, K'], or of None."""
        if self.encodings[0] is None:
            return self.encodings

        def cropped():
            return [x[:, larger(x.shape[1] - num_keys, 0) :] for x in self.encodings]

        def projected():
            return self.model.encodings(num_keys)

        if isinstance(num_keys, int):
            return cropped() if num_keys <= self._num_cached else projected()
        return tf.cond(num_keys <= self._num_cached, cropped, projected)


class PermutationState(HiddenState):
    """Runs an XLNet by its objective, for evaluation.

    Args:
      model: an XLNet.
      segment_len: usual number of tokens of a call.
      objective: the `configs.objectives.Permutation`.
    """

    def __init__(self, model, segment_len, objective):
        super().__init__(model, segment_len)
        self._objective = objectives.make(objective)

    def evaluate(self, ids, targets, state, document_start, row_ids):
        self._check_call(ids)
        key = DropoutKey(tf.zeros([2], tf.int32), row_ids)
        inputs, targets = self._objective.examples(ids, targets, document_start, key)
        nll, state = self.model.nll(**inputs, targets=targets, mems=state)
        return nll, targets, state


STATES = {"kv": KeyValueState, "hidden": HiddenState}


def make(name: str, model, segment_len: int, objective: Objective = _CAUSAL) -> HiddenState:
    """Returns the state named "kv" or "hidden" for segments of usually this length.

    A model of another objective than "causal" has a state of its own, whatever the name.

    Raises:
      ValueError: the name is unknown.
    """
    if name not in STATES:
        raise ValueError(f"state must be one of {', '.join(STATES)}, got {name!r}")
    if isinstance(objective, Permutation):
        return PermutationState(model, segment_len, objective)
    return STATES[name](model, segment_len)
