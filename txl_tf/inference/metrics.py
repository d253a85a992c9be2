"""Sums of losses, and what they mean: nats, perplexity, bits per byte. No TensorFlow in here."""

import math
from typing import Any, NamedTuple

import numpy as np

from txl_tf.data.text_size import TextSize


def perplexity(nats_per_token: float) -> float:
    """exp(nats_per_token), and infinity where a float ends."""
    return math.exp(nats_per_token) if nats_per_token < 700 else math.inf


def bits_per(nats_per_token: float, tokens: int, units: int) -> float:
    """Bits per byte or character of a text of `tokens` tokens and `units` bytes or characters.

    The first token of a text is never a target. It, and whatever else was not scored, counts as
    costing what the scored tokens cost in the mean, so that all of the text pays for all of its
    bytes: nats_per_token / ln 2 * tokens / units. Where a token is a byte this is exactly
    nats_per_token / ln 2.
    """
    return nats_per_token / math.log(2) * (tokens / units)


class Bits(NamedTuple):
    """Bits of a text, or the reason why they are not known.

    Attributes:
      bits_per_byte, bits_per_character: see `bits_per`; None where they are not known.
      bits_unavailable: the reason; None where both are known.
    """

    bits_per_byte: float | None = None
    bits_per_character: float | None = None
    bits_unavailable: str | None = None


def bits(nats_per_token: float | None, size: TextSize) -> Bits:
    """The bits per byte and per character of a text; `nats_per_token` is None where there is none.

    They are not known where a token stands for text that it does not give back: an unknown word
    costs the same whatever it is, while its bytes would count, so that a model that knows fewer
    words would look the better one.
    """
    if size.unknown:
        reason = (
            f"{size.unknown} of {size.tokens} tokens stand for symbols outside the vocabulary, "
            "whose text they do not give back"
        )
        return Bits(bits_unavailable=reason)
    if nats_per_token is None:
        return Bits(bits_unavailable="no token was scored")
    units = {"bytes": size.bytes, "characters": size.characters}  # binary data may have none
    lacking = " and ".join(name for name, count in units.items() if not count)
    return Bits(
        bits_per(nats_per_token, size.tokens, size.bytes) if size.bytes else None,
        bits_per(nats_per_token, size.tokens, size.characters) if size.characters else None,
        f"the text has no known {lacking}" if lacking else None,
    )


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
    """`values` with None for infinity and NaN, which JSON does not know, at any depth."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
