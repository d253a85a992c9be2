"""Evaluation of a model on a split: nats, perplexity, bits per byte and per character."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.configs.objectives import Causal, Objective
from txl_tf.data import prefetch
from txl_tf.inference import decode_state as states
from txl_tf.inference import metrics as sums
from txl_tf.inference import reuse
from txl_tf.inference.metrics import Totals
from txl_tf.ops.token_ids import check_ids

CAUSAL = Causal()
Progress = Callable[[int, int, Totals], None]  # (batches done, number of batches, sums so far)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Result of an evaluation.

    Attributes:
      split: name of the split.
      targets: number of targets: all tokens of the split but the first.
      scored: number of scored targets; all in the contiguous layout, if the objective predicts all.
      unknown: number of tokens of the split that stand for symbols outside the vocabulary.
      nats: sum of the losses.
      nats_per_token, perplexity: mean over the scored targets.
      bits_per_byte, bits_per_character, bits_unavailable: see `metrics.bits`.
    """

    split: str
    targets: int
    scored: int
    unknown: int
    nats: float
    nats_per_token: float
    perplexity: float
    bits_per_byte: float | None
    bits_per_character: float | None
    bits_unavailable: str | None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return sums.plain(dataclasses.asdict(self))


class Evaluator:
    """Reusable evaluation; its step is traced once for each shape of batches.

    Rows carry their memory from batch to batch; it is reset at a batch with `restart`. Ids and
    targets are checked on the host, before the compiled step.

    Args:
      model: a TransformerXL; `with_lengths` gives it other lengths for evaluation.
      segment_len: usual number of tokens of a row in a batch; only affects speed.
      reset_memory_at_documents: whether a document sees nothing of the one before it.
      state: kind of memory, "kv" (keys and values) or "hidden"; an XLNet's is always "hidden".
      jit: whether XLA compiles the step.
      objective: what the model predicts. Permutations are drawn from the position in the data, the
        same in each evaluation.
    """

    def __init__(
        self,
        model,
        *,
        segment_len: int = 128,
        reset_memory_at_documents: bool = False,
        state: str = "kv",
        jit: bool = False,
        objective: Objective = CAUSAL,
    ):
        self._state = states.make(state, model, segment_len, objective)
        self._objective = objective
        self._reset_at_documents = reset_memory_at_documents
        self._step = tf.function(self._nll, jit_compile=jit, autograph=False)

    def evaluate(
        self, batches, *, max_batches: int | None = None, progress: Progress | None = None
    ) -> Evaluation:
        """Scores every target of `batches` (a data.batches.Batches), or of the first max_batches.

        Raises:
          ValueError: the data has a vocabulary of another size, an id or target is outside it,
            no target was scored, or the machine has too little memory for the rows.
        """
        batches.metadata.check_vocabulary(self._state.vocab_size)
        self._state.check_memory(batches.batch_size, batch_size=batches.batch_size)
        self._state.refresh()
        totals = Totals()
        steps = batches.steps_per_epoch
        steps = steps if max_batches is None else min(steps, max_batches)
        state: Any = None
        with prefetch.prefetched(batches.arrays(epochs=1)) as read:
            for done, batch in enumerate(itertools.islice(read, steps), start=1):
                check_ids("ids", batch.ids, self._state.vocab_size)
                check_ids("targets", batch.targets, self._state.vocab_size, ignored=-1)
                if state is None or batch.restart:
                    state = self._initial(len(batch.ids))
                row_ids = (done - 1) * batches.batch_size + np.arange(len(batch.ids))
                nll, targets, state = self._read(batch, row_ids.astype(np.int32), state)
                totals.add(nll, targets)
                if progress is not None:
                    progress(done, steps, totals)
        return _report(totals, batches, self._objective)

    def _initial(self, num_rows):
        return self._state.initial(num_rows)

    def _read(self, batch, row_ids, state):
        """Returns the losses of a batch in nats, their targets, [B, N], and the state after it."""
        nll, targets, state = self._step(*map(tf.constant, (*batch[:3], row_ids)), state)
        return nll.numpy(), targets.numpy(), state

    def _nll(self, ids, targets, document_start, row_ids, state):
        starts = document_start if self._reset_at_documents else None
        return self._state.evaluate(ids, targets, state, starts, row_ids)


def evaluate(
    model,
    batches,
    *,
    reset_memory_at_documents: bool = False,
    max_batches: int | None = None,
    state: str = "kv",
    jit: bool = False,
    objective: Objective = CAUSAL,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates a model; see `Evaluator`. Later calls with the same settings compile nothing.

    >>> model = txl_tf.load("model").model
    >>> batches = txl_tf.Batches("data", "valid", batch_size=2, segment_len=8, mode="eval")
    >>> evaluation = txl_tf.evaluate(model, batches)
    >>> evaluation.scored == batches.pairs
    True
    """
    evaluator = reuse.kept(
        model,
        (Evaluator, batches.segment_len, reset_memory_at_documents, state, jit, objective),
        lambda: Evaluator(
            model,
            segment_len=batches.segment_len,
            reset_memory_at_documents=reset_memory_at_documents,
            state=state,
            jit=jit,
            objective=objective,
        ),
    )
    return evaluator.evaluate(batches, max_batches=max_batches, progress=progress)


def _report(totals: Totals, batches, objective: Objective) -> Evaluation:
    nats_per_token = totals.nats_per_token
    size = batches.split_metadata.size
    if objective.predicts_all:
        bits = sums.bits(nats_per_token, size)
    else:
        bits = sums.Bits(bits_unavailable="the objective predicts only some of the tokens")
    return Evaluation(
        split=batches.split,
        targets=batches.pairs,
        scored=totals.scored,
        unknown=size.unknown,
        nats=totals.nats,
        nats_per_token=nats_per_token,
        perplexity=sums.perplexity(nats_per_token),
        **bits._asdict(),
    )
