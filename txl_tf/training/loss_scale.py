"""Dynamic loss scaling: what keeps small gradients above the least number of float16."""

import tensorflow as tf

_FIRST = 2.0**15
_LEAST = 1.0
_PATIENCE = 2000  # good steps before the scale is doubled


class LossScale(tf.Module):
    """The factor of the loss (arXiv 1710.03740): a bad step halves it, many good ones double it.

    Attributes:
      factor: float32 scalar.
    """

    def __init__(self) -> None:
        super().__init__(name="loss_scale")
        self.factor = _variable(_FIRST, "factor")
        self._good_steps = _variable(0, "good_steps")

    def update(self, good) -> None:
        """Takes notice of a step; `good` is whether its gradients were finite, on all replicas."""
        count = tf.where(good, self._good_steps + 1, 0)
        grown = count >= _PATIENCE
        factor = tf.where(grown, self.factor * 2.0, self.factor)
        factor = tf.where(good, factor, tf.maximum(self.factor / 2.0, _LEAST))
        self.factor.assign(factor)
        self._good_steps.assign(tf.where(grown, 0, count))


def _variable(value, name):
    # All replicas assign the same.
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(value, trainable=False, aggregation=first, name=name)
