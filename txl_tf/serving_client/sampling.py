"""Choosing the next id from a server's scores, in NumPy."""

import numpy as np

_COLDEST = 1e-6  # below this float32 cannot tell a temperature from 0


def choose(
    scores: np.ndarray, chance: float, temperature: float, top_k: int | None, top_p: float
) -> int:
    """The next id, as txl_tf.inference.sampling has it.

    Args:
      scores: of each id, [V] float32.
      chance: a number in [0, 1); not read where the choice is greedy.
      temperature: scores are divided by it; 0 takes the best id.
      top_k: only the k best may come; None is no limit.
      top_p: only the best that together reach this probability may come.
    """
    if temperature < _COLDEST or top_k == 1:
        return int(scores.argmax())
    weights = np.exp((scores - scores.max()) / np.float32(temperature))
    order = np.arange(len(scores))
    if top_k is not None or top_p < 1:
        order = np.argsort(-scores, kind="stable")[:top_k]
        weights = weights[order] / weights[order].sum()
        weights = np.where(np.cumsum(weights) - weights < top_p, weights, 0)
    sums = np.cumsum(weights)
    passed = (sums > sums[-1] * np.float32(chance)) & (weights > 0)
    return int(order[passed.argmax()])
