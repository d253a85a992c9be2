"""Sums of losses, and what they mean: nats, perplexity, bits per byte. No TensorFlow in here."""

import math
from typing import Any

import numpy as np


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


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with None for infinity and NaN, which JSON does not know."""

    def is_odd(value: Any) -> bool:
        return isinstance(value, float) and not math.isfinite(value)

    return {name: None if is_odd(value) else value for name, value in values.items()}
