"""How inference runs a model piece by piece: what it has read is a state that goes in and out."""

import tensorflow as tf

from txl_tf import memory_estimate
from txl_tf.models import memory
from txl_tf.ops import machine
from txl_tf.ops.shapes import larger, shape_of


class HiddenState:
    """Runs a model on the memory that it was trained with: the hidden states of its layers.

    The other modules here know a state by these methods alone, and what passes between them they
    only hand on. Nothing is compiled or checked in here; the callers do both.

    Shapes:
      ids, targets: [B, T] int32; a target of -1 is not scored.
      lengths: [B] int32, how many of the T are real (the first ones, perhaps none); None is all.
      document_start: [B, T] bool, where a document begins that sees nothing before it.

    Args:
      model: a TransformerXL.
      segment_len: tokens that are read at once in most calls; only the check of memory asks.

    Raises:
      ValueError: not even one row fits into the memory of the machine.
    """

    KEEPS_KEYS = False  # or hidden states

    def __init__(self, model, segment_len=128):
        self.model = model
        self.vocab_size = model.config.vocab_size
        self._segment_len = segment_len
        self.check_memory(1)

    def check_memory(self, num_rows, num_tokens=1, num_written=0, **counts):
        """Refuses more than fits into the machine's memory.

        Args:
          num_rows: how many there are to be.
          num_tokens: of a row that are read at once.
          num_written: ids that each row is to write.
          **counts: the arguments that these numbers follow from, for the message.

        Raises:
          ValueError: names the bytes and the numbers that they follow from.
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
            num_written=num_written,
        )
        numbers = counts or {"rows": num_rows, "tokens": num_tokens}
        numbers |= dict(mem_len=config.mem_len, segment_len=self._segment_len)
        machine.check_memory(needed.parts, numbers)

    def _check_call(self, ids):
        """`check_memory` of a call whose sizes are known; in a graph it costs nothing."""
        if None not in ids.shape:
            self.check_memory(*ids.shape)

    def refresh(self):
        """Takes notice that the model's weights have changed."""

    def initial(self, batch_size):
        """The state of rows that have read nothing; a number that is known has to fit in memory."""
        if isinstance(batch_size, int):
            self.check_memory(batch_size)
        return self._empty(batch_size)

    def _empty(self, batch_size):
        return self.model.initial_mems(batch_size)

    def advance(self, ids, state, lengths=None):
        """The state after reading `ids`; no scores are computed."""
        _, state = self._read(ids, state, lengths)
        return state

    def scores(self, ids, state, lengths=None):
        """Scores of what follows each id, [B, T, V]: their softmax is the distribution."""
        hidden, state = self._read(ids, state, lengths)
        return self.model.scores_of(hidden), state

    def nll(self, ids, targets, state, lengths=None, document_start=None):
        """Nats of each target, [B, T] float32, and the state after the ids."""
        hidden, state = self._read(ids, state, lengths, document_start)
        return self.model.nll_of(hidden, targets, lengths), state

    def to_ring_buffer(self, state, rounds=1):
        """The state as a loop inside a graph carries it that reads one token a round.

        Args:
          state: that before the loop.
          rounds: how many a row may stand still and yet go on from `from_ring_buffer`.
        """
        del rounds
        return state

    def from_ring_buffer(self, ring):
        """The state that a loop ended with; inverse of `to_ring_buffer`."""
        return ring

    def next_scores(self, last, ring, lengths=None):
        """Scores of what follows one token of each row, [B, V], and the ring state after it.

        Shapes: last [B] int32; lengths [B] int32, 1, or 0 where a row stands still, as it then does
        to the loop's end.
        """
        scores, ring = self.scores(last[:, tf.newaxis], ring, lengths)
        return scores[:, 0], ring

    def reorder(self, state, rows):
        """The state whose row i is row rows[i] of `state`; rows may repeat."""
        return memory.reorder(state, rows)

    def _read(self, ids, state, lengths, document_start=None):
        """The output of the last layer, [B, T, D], and the state after the ids."""
        self._check_call(ids)
        states, state = self.model.hidden_states(
            ids, state, lengths=lengths, document_start=document_start
        )
        return states[-1], state


class KeyValueState(HiddenState):
    """The same by projected keys and values: nothing that was read is projected again.

    Distances are projected once, for memory and a segment of `segment_len`; a longer segment
    projects its own. Results are those of `HiddenState` up to rounding, as long as the weights are
    those that the state was made with: call `refresh` after they change, and begin anew.

    The state is a `memory.KeyValues`, 2 H K / D times as large as a `Memory`.

    Args:
      model: a TransformerXL.
      segment_len: tokens that are read at once in most calls.
    """

    KEEPS_KEYS = True

    def __init__(self, model, segment_len=128):
        super().__init__(model, segment_len)
        self._known = model.config.mem_len + segment_len  # keys whose distances are kept
        self.encodings = [
            None if x is None else tf.Variable(x, trainable=False, name=f"encodings_{layer}")
            for layer, x in enumerate(model.encodings(self._known))
        ]  # L of [H, R, K'], or of None where attention asks for none

    def refresh(self):
        for variable, x in zip(self.encodings, self.model.encodings(self._known), strict=True):
            if variable is not None:
                variable.assign(x)

    def _empty(self, batch_size):
        """Of nothing read, or of zeros that count as read."""
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
            self.encodings,  # all of them: to cut the scores is cheaper
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
            self._distances(slots + num_tokens),
            model.visibility(state.length, document_start),
            lengths,
        )
        keys, values = (
            tuple(memory.newest(x, slots, axis=2, lengths=lengths) for x in xs)
            for xs in zip(*joined, strict=True)
        )
        length = memory.remembered_after(state.length, slots, num_tokens, lengths, document_start)
        return states[-1], memory.KeyValues(keys, values, length)

    def _distances(self, num_keys):
        """Each layer's projected distances, farthest first: L of [H, R, K'] or of None."""
        if self.encodings[0] is None:
            return self.encodings

        def cut():
            return [x[:, larger(x.shape[1] - num_keys, 0) :] for x in self.encodings]

        def project():
            return self.model.encodings(num_keys)

        if isinstance(num_keys, int):
            return cut() if num_keys <= self._known else project()
        return tf.cond(num_keys <= self._known, cut, project)


STATES = {"kv": KeyValueState, "hidden": HiddenState}


def make(name: str, model, segment_len: int) -> HiddenState:
    """The state named "kv" or "hidden" for segments of mostly this length.

    Raises:
      ValueError: there is no such state.
    """
    if name not in STATES:
        raise ValueError(f"state must be one of {', '.join(STATES)}, got {name!r}")
    return STATES[name](model, segment_len)
