"""Adam, its learning rate schedule, gradient clipping and loss scale."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.configs.run import TrainConfig


@keras.saving.register_keras_serializable(package="txl_tf")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate schedule: linear warm-up to the peak, then half a cosine down to a floor.

    With peak 8, 4 warm-up steps, 8 in all and a floor of 1/8:

        step  0  1  2  3  4  5     6    7     8  9 ...
        rate  0  2  4  6  8  6.97  4.5  2.03  1  1

    As in the original TensorFlow code, the cosine begins where the warm-up ends.

    Args:
      peak: the highest rate.
      warmup_steps: steps before the peak; 0 starts at the peak.
      train_steps: the step at which the floor is reached.
      floor_ratio: the floor as a fraction of the peak.
    """

    def __init__(
        self, peak: float, warmup_steps: int, train_steps: int, floor_ratio: float
    ) -> None:
        if not 0 <= warmup_steps < train_steps:
            raise ValueError(
                f"warmup_steps must be at least 0 and below train_steps {train_steps}, "
                f"got {warmup_steps}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.train_steps = train_steps
        self.floor_ratio = floor_ratio

    def __call__(self, step: Any) -> tf.Tensor:
        step = tf.cast(step, tf.float32)  # exact up to 16,777,216
        rising = step / max(self.warmup_steps, 1)
        progress = (step - self.warmup_steps) / (self.train_steps - self.warmup_steps)
        cosine = 0.5 * (1.0 + tf.cos(math.pi * tf.minimum(progress, 1.0)))
        falling = (1.0 - self.floor_ratio) * cosine + self.floor_ratio
        return self.peak * tf.where(step < self.warmup_steps, rising, falling)

    def get_config(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "train_steps": self.train_steps,
            "floor_ratio": self.floor_ratio,
        }


def make_schedule(config: TrainConfig) -> WarmupCosine:
    """Returns the learning rate schedule of a run."""
    return WarmupCosine(
        peak=config.learning_rate,
        warmup_steps=config.warmup_steps,
        train_steps=config.train_steps,
        floor_ratio=config.min_lr_ratio,
    )


class Adam(keras.optimizers.Adam):
    """Keras' Adam, with an update that can be skipped: then only the step count changes.

    Weights and slots are updated by TensorFlow's fused op, in one pass.
    """

    _good = None  # of the current step

    def bound(self, norm, variables) -> tf.Tensor:
        """Returns an upper bound of all weights after an update by gradients of this global norm.

        It is infinite or NaN wherever the update would make a weight so; it reads weights and
        momentums once. With finite gradients and options within `TrainConfig`'s bounds the slots
        stay
        finite: both are running means.
        """
        step = tf.cast(self.iterations + 1, tf.float32)
        rate = tf.cast(self.learning_rate, tf.float32)
        rate *= tf.sqrt(1.0 - self.beta_2**step) / (1.0 - self.beta_1**step)
        momentum = tf.maximum(norm, _norm(self._momentums))  # the new momentum is between the two
        return _norm(variables) + rate * momentum / min(self.epsilon, 1.0)

    def apply_if(self, good, gradients, variables) -> None:
        """Applies the gradients if `good`, a boolean scalar; otherwise weights and slots stay."""
        self._good = good
        self.apply(gradients, variables)
        self._good = None

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        slots = self._momentums[index], self._velocities[index]
        weight, momentum, velocity = (_handle(v) for v in (variable, *slots))
        step = tf.cast(self.iterations + 1, tf.float32)

        def update():
            tf.raw_ops.ResourceApplyAdam(
                var=weight,
                m=momentum,
                v=velocity,
                beta1_power=self.beta_1**step,
                beta2_power=self.beta_2**step,
                lr=tf.cast(learning_rate, tf.float32),
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=tf.cast(gradient, tf.float32),
            )

        if self._good is None:
            update()
        else:
            tf.cond(self._good, update, lambda: None)


def _norm(variables):
    return tf.linalg.global_norm([tf.convert_to_tensor(v.value) for v in variables])


def _handle(variable):
    """Returns the handle of a variable, or of its copy on the device being updated."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle


def make_optimizer(config: TrainConfig) -> Adam:
    """Returns Adam with the warm-up and cosine schedule.

    Epsilon is added before bias correction ("epsilon hat" of Adam), as in the original TensorFlow
    code: w -= rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon), t = 1 at first.
    """
    return Adam(
        learning_rate=make_schedule(config),
        beta_1=config.adam_beta1,
        beta_2=config.adam_beta2,
        epsilon=config.adam_epsilon,
        name="adam",
    )


def clip(
    gradients: Sequence[tf.Tensor], clip_norm: float | None
) -> tuple[Sequence[tf.Tensor], tf.Tensor]:
    """Scales dense gradients so that their global norm is at most `clip_norm`.

    Returns the gradients and their norm before clipping. None disables clipping.
    """
    norm = tf.linalg.global_norm(gradients)
    if clip_norm is None:
        return gradients, norm
    return tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)


_INITIAL_SCALE = 2.0**15
_MIN_SCALE = 1.0
_GROWTH_INTERVAL = 2000  # good steps before the scale is doubled


class LossScale(tf.Module):
    """Dynamic loss scale (arXiv 1710.03740): halved by a bad step, doubled after many good ones.

    Attributes:
      factor: float32 scalar.
    """

    def __init__(self) -> None:
        super().__init__(name="loss_scale")
        self.factor = _variable(_INITIAL_SCALE, "factor")
        self._good_steps = _variable(0, "good_steps")

    def update(self, good) -> None:
        """Updates the scale after a step; `good`: whether gradients were finite on all replicas."""
        count = tf.where(good, self._good_steps + 1, 0)
        grown = count >= _GROWTH_INTERVAL
        factor = tf.where(grown, self.factor * 2.0, self.factor)
        factor = tf.where(good, factor, tf.maximum(self.factor / 2.0, _MIN_SCALE))
        self.factor.assign(factor)
        self._good_steps.assign(tf.where(grown, 0, count))


def _variable(value, name):
    # All replicas assign the same value.
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(value, trainable=False, aggregation=first, name=name)
