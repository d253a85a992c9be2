"""Optimizer update, or none where it would do harm: the one home of that rule."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.training.optimizer import Adam, clip


class Update(NamedTuple):
    """Result of an update, as scalars."""

    good: Any  # bool: whether losses, norm and bound are finite
    applied: Any  # bool: whether weights and slots were updated
    gradient_norm: Any  # before clipping
    weight_bound: Any  # upper bound of all weights after the update


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
    """Clips and applies gradients that are summed over all replicas.

    Weights and slots stay, and only the step count changes, if

    - a loss, the norm of the gradients or the bound of the new weights is NaN or infinite, or
    - no target is real: the gradient is 0, but Adam's momentum would still move the weights.

    All replicas decide alike, from equal values.

    Args:
      optimizer: built for the variables.
      gradients: of the variables, dense.
      variables: the weights.
      losses: scalars whose sum was differentiated.
      num_real: number of real targets of all replicas.
      clip_norm: maximum global norm of gradients; None disables clipping.
      num_replicas: number of replicas.
    """
    gradients, norm = clip(gradients, clip_norm)
    clipped = norm if clip_norm is None else tf.minimum(norm, clip_norm)
    bound = optimizer.bound(clipped, variables)
    good = tf.reduce_all(tf.math.is_finite(tf.stack([*losses, norm, bound])))
    # Keras sums gradients over replicas, and these are sums already.
    gradients = [gradient / num_replicas for gradient in gradients]
    applied = good & (num_real > 0)
    optimizer.apply_if(applied, gradients, variables)
    return Update(good, applied, norm, bound)
