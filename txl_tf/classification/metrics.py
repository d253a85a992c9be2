"""How good predictions of labels are."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Scores:
    """Of some texts.

    Attributes:
      texts: how many.
      accuracy: share of texts whose most probable label is right.
      macro_f1: mean of the F1 of all labels that texts have or are given.
      nats: mean of minus the logarithm of the right label's probability.
    """

    texts: int
    accuracy: float
    macro_f1: float
    nats: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, log_probs: np.ndarray, labels: np.ndarray) -> "Scores":
        """Shapes: log_probs [N, number of labels], labels [N] int32; N at least 1."""
        given = log_probs.argmax(axis=1)
        f1 = []
        for label in np.union1d(given, labels):
            right = np.sum((given == label) & (labels == label))
            f1.append(2 * right / (np.sum(given == label) + np.sum(labels == label)))
        nats = -log_probs[np.arange(len(labels)), labels].mean(dtype=np.float64)
        accuracy = np.mean(given == labels)
        return cls(len(labels), float(accuracy), float(np.mean(f1)), float(nats))
