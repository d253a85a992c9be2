"""The loss of a model on a split: nats, perplexity, bits per byte and per character."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.inference import state as states
from txl_tf.ops.ids import check_ids

Progress = Callable[[int, int, "Totals"], None]  # (batches done, batches in all, so far)


def perplexity(nats_per_token: float) -> float:
    """exp(nats_per_token), and infinity where a float ends."""
    return math.exp(nats_per_token) if nats_per_token < 700 else math.inf


def bits_per(nats_per_token: float, tokens: int, units: int) -> float | None:
    """Bits per byte or character of a text of `tokens` tokens and `units` bytes or characters.

    The first token of a text is never a target. It, and whatever else was not scored, counts as
    costing what the scored tokens cost in the mean, so that all of the text pays for all of its
    bytes: nats_per_token / ln 2 * tokens / units. Where a token is a byte this is exactly
    nats_per_token / ln 2. None where there are no units, or they are not known.
    """
    return nats_per_token / math.log(2) * (tokens / units) if units else None


class Totals:
    """Sums losses over batches of any size, and divides once.

    Attributes:
      nats: sum of the losses, float64.
      scored: how many targets they belong to.
    """

    def __init__(self) -> None:
        self.nats = 0.0
        self.scored = 0

    def add(self, nll: np.ndarray, targets: np.ndarray | None = None) -> None:
        """Adds the nats of each target, but for targets of -1. Shapes: both the same."""
        real = np.ones(np.shape(nll), bool) if targets is None else np.asarray(targets) != -1
        self.nats += float(np.sum(nll, where=real, dtype=np.float64))
        self.scored += int(np.count_nonzero(real))

    @property
    def nats_per_token(self) -> float:
        """The mean over all targets.

        Raises:
          ValueError: there was none.
        """
        if not self.scored:
            raise ValueError("scored targets must be at least 1, got 0")
        return self.nats / self.scored


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
      split: the name of the split.
      targets: how many there are: all of its tokens but the first.
      scored: how many of them were scored; all in the contiguous layout.
      nats: sum of their losses.
      nats_per_token, perplexity: of a scored target in the mean.
      bits_per_byte, bits_per_character: see `bits_per`; None where the text's size is not known.
    """

    split: str
    targets: int
    scored: int
    nats: float
    nats_per_token: float
    perplexity: float
    bits_per_byte: float | None
    bits_per_character: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain(dataclasses.asdict(self))


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with None for infinity and NaN, which JSON does not know."""

    def is_odd(value: Any) -> bool:
        return isinstance(value, float) and not math.isfinite(value)

    return {name: None if is_odd(value) else value for name, value in values.items()}


class Evaluator:
    """Evaluates as often as asked; its step is traced once for a shape of batches.

    Rows carry their memory from batch to batch; it is forgotten where a batch says that its rows
    restart. Ids and targets are checked on the host, before the compiled step.

    Args:
      model: a TransformerXL; `with_lengths` gives it other lengths for evaluation.
      reset_memory_at_documents: whether a document sees nothing of the one before it.
      jit: whether XLA compiles the step.
    """

    def __init__(self, model, *, reset_memory_at_documents: bool = False, jit: bool = False):
        self._state = states.HiddenState(model)
        self._reset_at_documents = reset_memory_at_documents
        self._step = tf.function(self._nll, jit_compile=jit, autograph=False)

    def evaluate(
        self, batches, *, max_batches: int | None = None, progress: Progress | None = None
    ) -> Evaluation:
        """Scores every target of `batches` (a data.batches.Batches), or of its first ones.

        Raises:
          ValueError: the data has a vocabulary of another size, an id or target lies outside it,
            or nothing was scored.
        """
        batches.metadata.check_vocabulary(self._state.vocab_size)
        totals = Totals()
        steps = batches.steps_per_epoch
        steps = steps if max_batches is None else min(steps, max_batches)
        state: Any = None
        dataset = batches.dataset(epochs=1).take(steps)
        for done, batch in enumerate(dataset.as_numpy_iterator(), start=1):
            check_ids("ids", batch.ids, self._state.vocab_size)
            check_ids("targets", batch.targets, self._state.vocab_size, ignored=-1)
            if state is None or batch.restart:
                state = self._state.initial(len(batch.ids))
            ids, targets, starts = (tf.constant(x) for x in batch[:3])
            nll, state = self._step(ids, targets, starts, state)
            totals.add(nll.numpy(), batch.targets)
            if progress is not None:
                progress(done, steps, totals)
        return _report(totals, batches)

    def _nll(self, ids, targets, document_start, state):
        starts = document_start if self._reset_at_documents else None
        return self._state.nll(ids, targets, state, document_start=starts)


def evaluate(
    model,
    batches,
    *,
    reset_memory_at_documents: bool = False,
    max_batches: int | None = None,
    jit: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates once; see `Evaluator`, which is for more than once."""
    evaluator = Evaluator(model, reset_memory_at_documents=reset_memory_at_documents, jit=jit)
    return evaluator.evaluate(batches, max_batches=max_batches, progress=progress)


def _report(totals: Totals, batches) -> Evaluation:
    nats_per_token = totals.nats_per_token
    split = batches.split_metadata
    return Evaluation(
        split=batches.split,
        targets=batches.pairs,
        scored=totals.scored,
        nats=totals.nats,
        nats_per_token=nats_per_token,
        perplexity=perplexity(nats_per_token),
        bits_per_byte=bits_per(nats_per_token, split.tokens, split.bytes),
        bits_per_character=bits_per(nats_per_token, split.tokens, split.characters),
    )
