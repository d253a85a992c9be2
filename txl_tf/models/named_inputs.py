"""Dict inputs for models: `fit`, `predict` and exports of Keras pass a single argument."""

import functools
import inspect
from collections.abc import Mapping


def takes_dict(call):
    """Decorates `call(self, token_ids, ...)` of a model to take a dict of its arguments as well.

        model.fit({"token_ids": ids, "lengths": lengths}, labels)

    Raises:
      ValueError: the first argument is a list or tuple, or the dict lacks token_ids or has a key
        that is no argument of `call`.
    """
    names = [name for name in inspect.signature(call).parameters if name != "self"]

    @functools.wraps(call)
    def by_name(self, token_ids, *args, **kwargs):
        if isinstance(token_ids, (list, tuple)) and any(hasattr(x, "shape") for x in token_ids):
            raise ValueError(
                f"token_ids must be one tensor, or a dict of arguments ({', '.join(names)}), got a "
                f"{type(token_ids).__name__} of {len(token_ids)}"
            )
        if not isinstance(token_ids, Mapping):
            return call(self, token_ids, *args, **kwargs)
        unknown = [name for name in token_ids if name not in names]
        if unknown or "token_ids" not in token_ids:
            raise ValueError(
                f"inputs must have token_ids, and no names but {', '.join(names)}, got "
                f"{', '.join(map(str, token_ids)) or 'none'}"
            )
        return call(self, **(kwargs | dict(token_ids)))

    return by_name
