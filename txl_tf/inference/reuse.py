"""Objects with compiled functions, kept beside the model that they were made for."""

import collections
from collections.abc import Callable, Hashable
from typing import TypeVar

_MOST = 4  # of each model; each holds graphs, and projections of its positions
_NAME = "_kept_runners"
_Runner = TypeVar("_Runner")


def kept(model, key: Hashable, make: Callable[[], _Runner]) -> _Runner:
    """Returns what `make` returned for this model and key before, or calls it.

    A function that is called again and again would else compile as often, and what it compiled
    stays until Python collects cycles. What was asked for least lately goes first.

    Args:
      model: a TransformerXL; what is kept lives as long as it.
      key: all that the result depends on besides the model.
      make: makes the result.
    """
    # Not by setattr: Keras would track it as a part of the model.
    runners = vars(model).setdefault(_NAME, collections.OrderedDict())
    if key not in runners:
        runners[key] = make()
    runners.move_to_end(key)
    while len(runners) > _MOST:
        runners.popitem(last=False)
    return runners[key]
