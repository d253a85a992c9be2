"""Decoding: prompts are read by segments, new ids generated one by one in a graph."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.inference import sampling as samplings
from txl_tf.inference import segments
from txl_tf.ops.token_ids import check_ids

CHUNK = 32  # maximum number of ids that one call of the compiled loop generates


class Decoder:
    """Compiled reading and writing of ids, shared by any number of sessions.

    Reading runs segments of at most `segment_len` ids through the state. Writing is an in-graph
    loop that feeds the newest id and samples the next.

    Args:
      state: a HiddenState, or an object with its methods.
      sampling: a Sampling.
      stop_ids: ids that finish a row.
      segment_len: ids read at once.
    """

    def __init__(self, state, sampling, *, stop_ids=(), segment_len=128):
        if segment_len < 1:
            raise ValueError(f"segment_len must be at least 1, got {segment_len}")
        check_ids("stop_ids", stop_ids, state.vocab_size)
        check_ids("banned_ids", sampling.banned_ids, state.vocab_size)
        self.state = state
        self.sampling = sampling
        self.stop_ids = tuple(stop_ids)
        self.segment_len = segment_len
        self._advance = tf.function(state.advance, autograph=False, reduce_retracing=True)
        self.enter = tf.function(
            lambda state: self.state.to_ring_buffer(state, CHUNK), autograph=False
        )
        self.write = tf.function(self._write, autograph=False)
        self.leave = tf.function(self.state.from_ring_buffer, autograph=False)

    def read(self, rows: Sequence[np.ndarray], state):
        """Returns the state after each row has read its ids, which may differ in number."""
        for ids, lengths in segments.cut(rows, self.segment_len):
            state = self._advance(tf.constant(ids), state, tf.constant(lengths))
        return state

    def _write(self, last, state, finished, seeds, position, count):
        """Generates `count` ids, within the CHUNK-aligned block that holds `position`.

        `state` is in the loop's layout, made by `enter` and converted back by `leave`. With stop
        ids, each call needs a newly entered state.

        A finished row writes -1 and its state is unchanged.

        Shapes: last, finished [B]; seeds [B, 2]; position, count scalar -> ids and their
        log-probabilities [CHUNK, B]; the number of valid steps among the CHUNK, less than `count`
        once all rows have finished; last; state; finished.
        """
        batch, offset = last.shape[0], position % CHUNK
        greedy = self.sampling.greedy
        uniforms = None if greedy else samplings.uniforms(seeds, position // CHUNK, CHUNK)
        ids = tf.TensorArray(tf.int32, CHUNK, element_shape=[batch])
        log_probs = tf.TensorArray(tf.float32, CHUNK, element_shape=[batch])

        def write_one(step, last, state, finished, ids, log_probs):
            lengths = tf.cast(~finished, tf.int32) if self.stop_ids else None
            scores, state = self.state.next_scores(last, state, lengths)  # [B, V]
            uniform = None if greedy else uniforms[:, offset + step]
            chosen = samplings.choose(scores, uniform, self.sampling)  # [B]
            log_prob = tf.gather(tf.nn.log_softmax(scores), chosen, batch_dims=1)  # [B]
            ids = ids.write(step, tf.where(finished, -1, chosen))
            log_probs = log_probs.write(step, tf.where(finished, 0.0, log_prob))
            last = tf.where(finished, last, chosen)
            return step + 1, last, state, finished | self._stops(last), ids, log_probs

        steps, last, state, finished, ids, log_probs = tf.while_loop(
            lambda step, last, state, finished, *_: (step < count) & ~tf.reduce_all(finished),
            write_one,
            (0, last, state, finished, ids, log_probs),
            maximum_iterations=CHUNK,
        )
        return ids.stack(), log_probs.stack(), steps, last, state, finished

    def _stops(self, ids):
        stops = tf.constant(self.stop_ids, tf.int32, [len(self.stop_ids)])
        return tf.reduce_any(ids[:, tf.newaxis] == stops, axis=1)  # [B]


class Session:
    """Rows of ids that are read and generated in turns, with a persistent state.

    The ids of a row are a function of those read, the seed and its sample index (see `branch`),
    independent of other rows and of how generation is split into calls.

    Args:
      decoder: a Decoder.
      batch_size: number of rows.
      start_id: first id of a row without a prompt; it counts as read, not as written.
      seed: of sampling; 0..2**31-1.
    """

    def __init__(self, decoder, batch_size: int, *, start_id: int = 0, seed: int = 0):
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed must lie in 0..{2**31 - 1}, got {seed}")
        self._decoder = decoder
        self._start_id = start_id
        self._seeds = np.array([[seed, 0]] * batch_size, np.int32)
        self._state = decoder.state.initial(batch_size)
        self._loop_state: Any = None  # the newer state, if not None
        self._last: np.ndarray | None = None  # [B], not yet in the state
        self._finished = np.zeros([batch_size], bool)
        self._written = 0

    def read(self, rows: Sequence[np.ndarray]) -> None:
        """Appends ids to each row, possibly none; finished rows become active again.

        Raises:
          ValueError: an id is outside the vocabulary.
        """
        for row in rows:
            check_ids("prompt ids", row, self._decoder.state.vocab_size)
        empty = np.zeros([len(rows), 0], np.int32)
        lasts = empty if self._last is None else self._last[:, np.newaxis]  # [B, 0 or 1]
        unread = [np.concatenate(pair).astype(np.int32) for pair in zip(lasts, rows, strict=True)]
        unread = [row if row.size else np.array([self._start_id]) for row in unread]
        self._state = self._decoder.read([row[:-1] for row in unread], self._left_state())
        self._last = np.array([row[-1] for row in unread], np.int32)
        self._finished[:] = False

    def branch(self, copies: int) -> None:
        """Repeats each row `copies` times, side by side: samples 0, 1, ... of the same prompt."""
        rows = np.repeat(np.arange(len(self._seeds)), copies)
        self._state = self._decoder.state.reorder(self._left_state(), rows)
        self._seeds, self._finished = self._seeds[rows], self._finished[rows]
        self._seeds[:, 1] = np.tile(np.arange(copies), len(rows) // copies)
        self._last = None if self._last is None else self._last[rows]

    def write(self, length: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Continues each row by `length` ids, or to a stop id; yields them in chunks.

        Shapes: ids [B, n] int32, -1 after a row's stop id, and log-probabilities [B, n], 0 there,
        under the model itself: without temperature, top-k, top-p or bans.
        """
        if self._last is None:
            self.read(list(np.zeros([len(self._seeds), 0], np.int32)))
        end = self._written + length
        while self._written < end and not self._finished.all():
            if self._loop_state is None:
                self._loop_state = self._decoder.enter(self._state)
            count = min(end - self._written, CHUNK - self._written % CHUNK)
            ids, log_probs, steps, last, self._loop_state, finished = self._decoder.write(
                tf.constant(self._last),
                self._loop_state,
                tf.constant(self._finished),
                tf.constant(self._seeds),
                tf.constant(self._written),
                tf.constant(count),
            )
            self._last, self._finished = np.array(last), np.array(finished)
            self._written += int(steps)
            if self._decoder.stop_ids:
                self._left_state()
            yield np.array(ids)[:steps].T, np.array(log_probs)[:steps].T

    @property
    def pending(self) -> tuple[Any, Any]:
        """The newest id of each row, [B], and the state before it, for a beam search."""
        return self._last, self._left_state()

    def _left_state(self):
        """Leaves the loop's layout and returns the state."""
        if self._loop_state is not None:
            self._state, self._loop_state = self._decoder.leave(self._loop_state), None
        return self._state
