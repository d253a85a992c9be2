"""The host's check of token ids: compiled XLA code clamps a wrong id instead of refusing it."""

import numpy as np


def check_ids(name: str, ids, vocab_size: int, ignored: int | None = None) -> None:
    """Refuses ids outside 0..vocab_size-1; a value of `ignored` passes.

    Raises:
      ValueError: names `name`, the first wrong id and the vocabulary size.
    """
    values = np.asarray(ids)
    if not values.size:
        return
    low, high = values.min(), values.max()
    if low >= 0 and high < vocab_size:
        return
    wrong = (values < 0) | (values >= vocab_size)
    if ignored is not None:
        wrong &= values != ignored
    if wrong.any():
        raise ValueError(
            f"{name} must lie in 0..{vocab_size - 1} (vocabulary of {vocab_size}), "
            f"got {values[wrong].flat[0]}"
        )
