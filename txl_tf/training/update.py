"""An optimizer's update, or none where it would do harm: the one home of that rule."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.training.optimizer import Adam, clip


class Update(NamedTuple):
    """How an update went, as scalars."""

    good: Any  # bool: whether all numbers are finite
    gradient_norm: Any  # before clipping
    weight_bound: Any  # a size that no weight exceeds after the update


def apply(
    optimizer: Adam,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[Any],
    *,
    losses: Sequence[tf.Tensor],
    num_real: tf.Tensor,
    clip_norm: float | None,
    num_replicas: int = 1,
) -> Update:
    """Clips and applies the gradients, which are the sums over all replicas.

    Neither weights nor slots change, and only the count of steps does, where

    - a loss, the norm of the gradients or the bound of the new weights is NaN or infinite, or
    - no target was real: there is nothing to learn, but Adam's momentum would move the weights.

    All replicas decide alike, from equal numbers.

    Args:
      optimizer: built for the variables.
      gradients: of the variables, dense.
      variables: the weights.
      losses: scalars whose sum the gradients are of.
      num_real: how many targets were real, of all replicas.
      clip_norm: global norm to which gradients are clipped; None is off.
      num_replicas: that take part.
    """
    gradients, norm = clip(gradients, clip_norm)
    clipped = norm if clip_norm is None else tf.minimum(norm, clip_norm)
    bound = optimizer.bound(clipped, variables)
    good = tf.reduce_all(tf.math.is_finite(tf.stack([*losses, norm, bound])))
    # Keras sums over replicas what it is given, which is the sum already.
    gradients = [gradient / num_replicas for gradient in gradients]
    optimizer.apply_if(good & (num_real > 0), gradients, variables)
    return Update(good, norm, bound)
