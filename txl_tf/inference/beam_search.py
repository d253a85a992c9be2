"""Beam search: the most probable continuations, each with its own memory state."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from txl_tf.inference import sampling as samplings
from txl_tf.ops.attention_mask import HIDDEN
from txl_tf.ops.shapes import shape_of
from txl_tf.ops.token_ids import check_ids

_LARGEST_PENALTY = 10  # a length of 1000 to this power is still a float32


@dataclasses.dataclass(frozen=True)
class Beam:
    """A continuation and its log-probability, in nats."""

    ids: np.ndarray
    log_prob: float


class _Beams(NamedTuple):
    """W hypotheses a row. A beam with a total near HIDDEN is empty."""

    last: Any  # [B, W] int32
    state: Any  # of B * W rows
    ids: Any  # [B, W, N] int32
    lengths: Any  # [B, W] int32
    totals: Any  # [B, W] float32, log-probabilities
    finished: Any  # [B, W] bool


class BeamSearch:
    """Beam search over ids: keeps the W best hypotheses of each row at every step.

    Hypotheses are ranked by log-probability / length ** length_penalty. After a stop id one is
    finished: it is not extended and keeps its score. With enough beams the search is exhaustive.

    An instance can be reused: it is compiled once for each number of rows and of beams, for any
    length.

    Args:
      state: a HiddenState, or an object with its methods.
      stop_ids: ids that finish a hypothesis.
      banned_ids: ids that are never generated.
    """

    def __init__(self, state, *, stop_ids=(), banned_ids=()):
        check_ids("stop_ids", stop_ids, state.vocab_size)
        check_ids("banned_ids", banned_ids, state.vocab_size)
        self._state = state
        self._stop_ids = tuple(stop_ids)
        self._banned_ids = tuple(banned_ids)
        self._run = tf.function(self._loop, autograph=False)

    def search(
        self, last: np.ndarray, state, length: int, *, num_beams: int, length_penalty: float = 0.0
    ) -> list[list[Beam]]:
        """Returns the beams of each row, best first, of `length` ids or up to their stop id.

        Args:
          last: [B], the newest id of each row.
          state: the state of the rows before it.
          length: maximum number of ids.
          num_beams: W.
          length_penalty: 0 ranks by the total log-probability, 1 by the mean per id; no effect
            without a stop id, as all hypotheses have the same length.

        Raises:
          ValueError: an argument breaks a rule.
        """
        if num_beams < 1:
            raise ValueError(f"num_beams must be at least 1, got {num_beams}")
        if not 0 <= length_penalty <= _LARGEST_PENALTY:
            raise ValueError(
                f"length_penalty must be at least 0 and at most {_LARGEST_PENALTY}, "
                f"got {length_penalty}"
            )
        beams = self._run(
            tf.constant(last, tf.int32),
            state,
            tf.constant(length, tf.int32),
            tf.constant(length_penalty, tf.float32),
            num_beams,
        )
        rows = zip(*(np.array(x) for x in (beams.ids, beams.lengths, beams.totals)), strict=True)
        return [
            [
                Beam(ids[:size], float(total))
                for ids, size, total in zip(*row, strict=True)
                if total > HIDDEN / 2
            ]
            for row in rows
        ]

    def _loop(self, last, state, length, length_penalty, width):
        batch = last.shape[0]
        beams = _Beams(
            last=tf.repeat(last[:, tf.newaxis], width, axis=1),
            state=self._state.reorder(state, tf.repeat(tf.range(batch), width)),
            ids=tf.zeros([batch, width, length], tf.int32),
            lengths=tf.zeros([batch, width], tf.int32),
            # All beams are equal at first: only one is active.
            totals=tf.where(tf.range(width) == 0, tf.zeros([batch, width]), HIDDEN),
            finished=tf.zeros([batch, width], tf.bool),
        )
        return tf.while_loop(
            lambda step, beams: (step < length) & ~tf.reduce_all(beams.finished),
            lambda step, beams: (step + 1, self._extend(step, beams, length_penalty)),
            (0, beams),
        )[1]

    def _extend(self, step, beams, length_penalty):
        """Extends every hypothesis by every id and keeps the best W of a row."""
        batch, width, length = shape_of(beams.ids)
        last = tf.reshape(beams.last, [batch * width, 1])
        scores, state = self._state.scores(last, beams.state)
        log_probs = samplings.ban(tf.nn.log_softmax(scores[:, 0]), self._banned_ids)  # [B * W, V]
        vocab_size = log_probs.shape[-1]
        log_probs = tf.reshape(log_probs, [batch, width, vocab_size])
        # A finished hypothesis has a single extension of log-probability 0, which is not written.
        unextended = tf.where(tf.range(vocab_size) == 0, 0.0, HIDDEN)  # [V]
        log_probs = tf.where(beams.finished[:, :, tf.newaxis], unextended, log_probs)
        totals = beams.totals[:, :, tf.newaxis] + log_probs  # [B, W, V]
        lengths = beams.lengths + tf.cast(~beams.finished, tf.int32)  # [B, W]
        norms = tf.cast(lengths, tf.float32) ** length_penalty
        ranks = tf.reshape(totals / norms[:, :, tf.newaxis], [batch, width * vocab_size])
        _, best = tf.math.top_k(ranks, width)  # [B, W]
        parent, chosen = best // vocab_size, best % vocab_size

        def of_parent(x):
            return tf.gather(x, parent, batch_dims=1)

        finished = of_parent(beams.finished)
        is_written = (tf.range(length) == step) & ~finished[:, :, tf.newaxis]  # [B, W, N]
        rows = tf.reshape(parent + width * tf.range(batch)[:, tf.newaxis], [batch * width])
        return _Beams(
            last=tf.where(finished, of_parent(beams.last), chosen),
            state=self._state.reorder(state, rows),
            ids=tf.where(is_written, chosen[:, :, tf.newaxis], of_parent(beams.ids)),
            lengths=of_parent(lengths),
            totals=tf.gather(tf.reshape(totals, [batch, -1]), best, batch_dims=1),
            finished=finished | self._stops(chosen),
        )

    def _stops(self, ids):
        stops = tf.constant(self._stop_ids, tf.int32, [len(self._stop_ids)])
        return tf.reduce_any(ids[..., tf.newaxis] == stops, axis=-1)
