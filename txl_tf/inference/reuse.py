"""Cache of objects with compiled functions, attached to their model."""

import collections
from collections.abc import Callable, Hashable
from typing import TypeVar

_MAX_SIZE = 4  # of each model's cache; an entry holds graphs and projected encodings
_NAME = "_kept_runners"
_Runner = TypeVar("_Runner")


def kept(model, key: Hashable, make: Callable[[], _Runner]) -> _Runner:
    """Returns the cached object of a model and key; calls `make` on a miss.

    Without the cache each call of a function would compile anew, and graphs would stay until Python
    collects cycles. The least recently used entry is evicted first.

    Args:
      model: a TransformerXL, which owns the cache.
      key: all that the result depends on besides the model.
      make: creates the result.
    """
    # Not setattr: Keras would track it as a part of the model.
    runners = vars(model).setdefault(_NAME, collections.OrderedDict())
    if key not in runners:
        runners[key] = make()
    runners.move_to_end(key)
    while len(runners) > _MAX_SIZE:
        runners.popitem(last=False)
    return runners[key]
