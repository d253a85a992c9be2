"""Metrics of classification."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Scores:
    """Metrics over a set of texts.

    Attributes:
      texts: number of texts.
      accuracy: fraction of texts whose most probable label is correct.
      macro_f1: mean F1 of all labels that are true or predicted for some text.
      nats: mean cross-entropy.
    """

    texts: int
    accuracy: float
    macro_f1: float
    nats: float

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, log_probs: np.ndarray, labels: np.ndarray) -> "Scores":
        """Computes metrics. Shapes: log_probs [N, number of labels], labels [N] int32, N >= 1."""
        predicted = log_probs.argmax(axis=1)
        f1 = []
        for label in np.union1d(predicted, labels):
            correct = np.sum((predicted == label) & (labels == label))
            f1.append(2 * correct / (np.sum(predicted == label) + np.sum(labels == label)))
        nats = -log_probs[np.arange(len(labels)), labels].mean(dtype=np.float64)
        accuracy = np.mean(predicted == labels)
        return cls(len(labels), float(accuracy), float(np.mean(f1)), float(nats))
