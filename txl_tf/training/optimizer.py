"""Adam and the clipping of gradients, as the configuration says."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from txl_tf.configs.run import TrainConfig
from txl_tf.training import schedule


class Adam(keras.optimizers.Adam):
    """Keras' Adam, which can let a step pass without a trace but in the count of steps.

    Weights and slots are updated by TensorFlow's one operation for it, in one pass over them.
    """

    _good = None  # of the step that is being applied

    def bound(self, norm, variables) -> tf.Tensor:
        """Returns a size that no weight exceeds after an update by gradients of this global norm.

        It is infinite or NaN wherever the update would make a weight so, at the cost of reading
        weights and momentums once. With finite gradients and options in `TrainConfig`'s bounds the
        slots stay finite: both are means of what came in.
        """
        step = tf.cast(self.iterations + 1, tf.float32)
        rate = tf.cast(self.learning_rate, tf.float32)
        rate *= tf.sqrt(1.0 - self.beta_2**step) / (1.0 - self.beta_1**step)
        momentum = tf.maximum(norm, _norm(self._momentums))  # a new one lies between the two
        return _norm(variables) + rate * momentum / min(self.epsilon, 1.0)

    def apply_if(self, good, gradients, variables) -> None:
        """`apply`; where `good`, a scalar, is false no weight and no slot changes."""
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
    """Of a variable, or of its part on the device that is being updated."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle


def make_optimizer(config: TrainConfig) -> Adam:
    """Adam under the warm-up and cosine schedule.

    Keras adds epsilon to the uncorrected root, as the original TensorFlow code does:
    w -= rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon), t = 1 at first.
    """
    return Adam(
        learning_rate=schedule.of(config),
        beta_1=config.adam_beta1,
        beta_2=config.adam_beta2,
        epsilon=config.adam_epsilon,
        name="adam",
    )


def clip(
    gradients: Sequence[tf.Tensor], clip_norm: float | None
) -> tuple[Sequence[tf.Tensor], tf.Tensor]:
    """Scales dense gradients so that their global norm is at most `clip_norm`.

    Returns the gradients and their norm before clipping. None leaves the gradients alone.
    """
    norm = tf.linalg.global_norm(gradients)
    if clip_norm is None:
        return gradients, norm
    return tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
