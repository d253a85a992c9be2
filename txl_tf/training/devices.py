"""The devices that a run computes on."""

from collections.abc import Callable

import tensorflow as tf

# Name -> how to make the strategy. The default strategy is one device: the first GPU, else the
# CPU. A strategy of several replicas is one more row here.
STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "auto": tf.distribute.get_strategy,
    "one_device": tf.distribute.get_strategy,
}


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Returns the strategy of this name.

    Raises:
      ValueError: there is none; names those that work.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {name!r}")
    return STRATEGIES[name]()
