"""Compute ceiling of the machine: the speed of a large matrix product."""

from collections.abc import Callable

import tensorflow as tf

_SIZE = 2048
FLOPS = 2 * _SIZE**3  # of one product


def product(dtype: str) -> Callable[[], object]:
    """Returns a function that multiplies two square matrices of this dtype."""
    left, right = (tf.cast(tf.random.normal([_SIZE, _SIZE]), dtype) for _ in range(2))
    multiply = tf.function(tf.matmul, autograph=False)

    def call() -> object:
        return multiply(left, right)[0, 0].numpy()  # waits for the result

    return call
