"""Metrics from summed losses: perplexity, bits per byte and per character. No TensorFlow."""

import math
from typing import Any, NamedTuple

import numpy as np

from txl_tf.data.text_size import TextSize


def perplexity(nats_per_token: float) -> float:
    """Returns exp(nats_per_token), or infinity beyond the range of a float."""
    return math.exp(nats_per_token) if nats_per_token < 700 else math.inf


def bits_per(nats_per_token: float, tokens: int, units: int) -> float:
    """Returns bits per byte or character of a text with `tokens` tokens and `units` of these.

    The first token of a text is never a target. It, and any other unscored token, is assigned the
    mean loss of the scored ones, so that the whole text is charged for all of its bytes:
    nats_per_token / ln 2 * tokens / units. If a token is a byte, this is nats_per_token / ln 2.
    """
    return nats_per_token / math.log(2) * (tokens / units)


class Bits(NamedTuple):
    """Bits per byte and character of a text, or the reason why they are undefined.

    Attributes:
      bits_per_byte, bits_per_character: see `bits_per`; None if undefined.
      bits_unavailable: the reason; None if both are defined.
    """

    bits_per_byte: float | None = None
    bits_per_character: float | None = None
    bits_unavailable: str | None = None


def bits(nats_per_token: float | None, size: TextSize) -> Bits:
    """Returns the bits per byte and character of a text; `nats_per_token` None is unscored.

    They are undefined if a token is the unknown symbol: it costs the same for any word, while the
    word's bytes would count, so that a model with a smaller vocabulary would seem better.
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
    """Accumulates losses over batches of any size, and divides once.

    Attributes:
      nats: sum of the losses, float64.
      scored: number of scored targets.
    """

    def __init__(self) -> None:
        self.nats = 0.0
        self.scored = 0

    def add(self, nll: np.ndarray, targets: np.ndarray | None = None) -> None:
        """Adds the losses of targets other than -1. Shapes: both the same."""
        real = np.ones(np.shape(nll), bool) if targets is None else np.asarray(targets) != -1
        self.nats += float(np.sum(nll, where=real, dtype=np.float64))
        self.scored += int(np.count_nonzero(real))

    @property
    def nats_per_token(self) -> float:
        """Mean loss of the scored targets, in nats.

        Raises:
          ValueError: no targets were scored.
        """
        if not self.scored:
            raise ValueError("at least one target must be scored, got none")
        return self.nats / self.scored


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Returns `values` with None for infinity and NaN, which JSON lacks, at any depth."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
