"""When a run has stopped getting better."""

import math
from collections.abc import Iterable, Mapping
from typing import Any


class EarlyStop:
    """Counts the validations since the best one.

    What is known of a run that goes on comes from the lines of its metrics.jsonl up to the
    checkpoint, so the count is that of a run that was never stopped. Without that file it starts
    anew.

    nats       2.0  1.5  1.6  1.5      of two validations as good the first is the best
    since_best  0    0    1    2

    Args:
      limit: validations in a row without a better one that end the run; None is never.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._best = math.inf
        self._since_best = 0

    def note(self, nats: float) -> None:
        """Takes note of a validation."""
        if nats < self._best:
            self._best, self._since_best = nats, 0
        else:
            self._since_best += 1

    def note_all(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Takes note of the validations among the lines of a metrics.jsonl."""
        for line in lines:
            if line.get("split") == "valid":
                nats = line.get("nats")
                self.note(math.inf if nats is None else nats)

    @property
    def is_due(self) -> bool:
        """Whether the run is to end."""
        return self._limit is not None and self._since_best >= self._limit

    def __str__(self) -> str:
        return f"no better validation than nats={self._best:.4g} since {self._since_best} of them"
