"""The learning rate over the steps of a run."""

import math
from typing import Any

import keras
import tensorflow as tf

from txl_tf.configs.run import TrainConfig


@keras.saving.register_keras_serializable(package="txl_tf")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear from 0 to the peak, then half a cosine down to a floor, where it stays.

    With peak 8, 4 warm-up steps, 8 in all and a floor of 1/8:

        step  0  1  2  3  4  5     6    7     8  9 ...
        rate  0  2  4  6  8  6.97  4.5  2.03  1  1

    The rule of the original TensorFlow code: the cosine begins where the warm-up ends.

    Args:
      peak: the highest rate.
      warmup_steps: steps before the peak; 0 starts at the peak.
      train_steps: the step at which the floor is reached.
      floor_ratio: the floor as a part of the peak.
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


def of(config: TrainConfig) -> WarmupCosine:
    """The schedule of a run."""
    return WarmupCosine(
        peak=config.learning_rate,
        warmup_steps=config.warmup_steps,
        train_steps=config.train_steps,
        floor_ratio=config.min_lr_ratio,
    )
