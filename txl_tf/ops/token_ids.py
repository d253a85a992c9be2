"""Check of token ids on the host: compiled XLA code clamps an invalid id without an error."""

import numpy as np


def check_ids(name: str, ids, vocab_size: int, ignored: int | None = None) -> None:
    """Raises if an id is outside 0..vocab_size-1; a value of `ignored` passes.

    Raises:
      ValueError: names `name`, the first invalid id and the vocabulary size.
    """
    values = np.asarray(ids)
    if not values.size:
        return
    low, high = values.min(), values.max()
    if low >= 0 and high < vocab_size:
        return
    invalid = (values < 0) | (values >= vocab_size)
    if ignored is not None:
        invalid &= values != ignored
    if invalid.any():
        raise ValueError(
            f"{name} must lie in 0..{vocab_size - 1} (vocabulary of {vocab_size}), "
            f"got {values[invalid].flat[0]}"
        )
