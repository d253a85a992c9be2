"""Text scoring with a model; see `text_scorer` for the procedure."""

from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from txl_tf.data import text
from txl_tf.data.tokenizers.tokenizer import Tokenizer
from txl_tf.inference import decode_state as states
from txl_tf.inference import text_scorer


class Scorer(text_scorer.TextScorer):
    """Scores texts with a model, each from an empty memory.

    >>> loaded = txl_tf.load("model")
    >>> scorer = txl_tf.Scorer(loaded.model, loaded.tokenizer)
    >>> score = scorer.score("Once upon a time")
    >>> len(score.log_probs), score.nats > 0
    (16, True)

    Args:
      model: a TransformerXL.
      tokenizer: the one it was trained with.
      segment_len: tokens read at once.
      batch_size: lines scored at once by `score_each`.
      invalid_utf8: "error", or "replace" by U+FFFD.
      state: kind of memory, "kv" (keys and values) or "hidden".

    Raises:
      ValueError: an argument breaks a rule, or the machine has too little memory for one text.

    Attributes:
      progress: called after each step; None by default.
    """

    def __init__(
        self,
        model,
        tokenizer: Tokenizer,
        *,
        segment_len: int = 128,
        batch_size: int = 16,
        invalid_utf8: str = "error",
        state: str = "kv",
    ):
        reader = _ModelReader(model, state, segment_len)
        super().__init__(
            reader,
            tokenizer,
            segment_len=segment_len,
            batch_size=batch_size,
            invalid_utf8=invalid_utf8,
        )
        self._check_memory = reader.check_memory

    def score_each(
        self, pieces: Iterable[text.Piece], *, summary: bool = False
    ) -> Iterator[text_scorer.Score]:
        """Scores texts in order, as in `TextScorer`.

        Raises:
          ValueError: the machine has too little memory for `batch_size` rows.
        """
        self._check_memory(self._batch_size)
        return super().score_each(pieces, summary=summary)


class _ModelReader:
    """A `text_scorer.Reader` that runs a model's state in a compiled step."""

    def __init__(self, model, state: str, segment_len: int):
        self._state = states.make(state, model, segment_len)
        self._step = tf.function(self._state.nll, autograph=False, reduce_retracing=True)
        self.vocab_size = self._state.vocab_size
        self.initial = self._state.initial

    def check_memory(self, batch_size: int) -> None:
        self._state.check_memory(batch_size, batch_size=batch_size)

    def nll(self, ids: np.ndarray, targets: np.ndarray, state, lengths: np.ndarray):
        ids, targets, lengths = map(tf.constant, (ids, targets, lengths))
        nll, state = self._step(ids, targets, state, lengths)
        return nll.numpy(), state
