"""Counts of steps without an update; ends a run after too many skipped ones."""

import math

from absl import logging

from txl_tf.training.step import Metrics

_FINITE = ("loss", "auxiliary", "gradient_norm", "weight_bound")  # in a good step


class NonFiniteError(ValueError):
    """Raised after too many steps in a row whose loss, gradients or update are not finite."""


class SkippedSteps:
    """Steps that were skipped because of NaN or infinity, and steps without a target.

    Args:
      train_steps: of the whole run.
      most_in_a_row: number of consecutive skipped steps that is tolerated.

    Attributes:
      skipped, without_targets: of the whole run so far.
    """

    def __init__(self, train_steps: int, most_in_a_row: int) -> None:
        self.skipped = self.without_targets = 0
        self._train_steps = train_steps
        self._most_in_a_row = most_in_a_row
        self._in_a_row = 0

    def note(self, step: int, metrics: Metrics) -> None:
        """Counts a step, given its metrics as Python numbers.

        Raises:
          NonFiniteError: too many steps in a row were skipped, or all steps of the run.
        """
        if not metrics.skipped:
            self._in_a_row = 0
            if not metrics.tokens:
                self.without_targets += 1
                logging.info("step=%d has no targets: weights unchanged", step)
            return
        self.skipped += 1
        self._in_a_row += 1
        name, value = _cause(metrics)
        all_skipped = self._in_a_row >= step == self._train_steps
        if self._in_a_row > self._most_in_a_row or all_skipped:
            raise NonFiniteError(
                f"{name} must be finite, got {value} at step {step}, number {self._in_a_row} in a "
                "row; checkpoints are unchanged: resume with a lower learning_rate"
            )
        logging.warning("step=%d skipped: %s=%s, weights and memory unchanged", step, name, value)


def _cause(metrics: Metrics) -> tuple[str, float]:
    """Returns the first value that is NaN or infinite, and its name."""
    values = ((name, getattr(metrics, name)) for name in _FINITE)
    return next((name, value) for name, value in values if not math.isfinite(value))
