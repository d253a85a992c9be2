"""Sampling of the next id from a server's scores, in NumPy."""

import numpy as np

_MIN_TEMPERATURE = 1e-6  # below this, sampling in float32 is greedy


def choose(
    scores: np.ndarray, uniform: float, temperature: float, top_k: int | None, top_p: float
) -> int:
    """Returns the next id, the same as `txl_tf.inference.sampling.choose`.

    Args:
      scores: score of each id, [V] float32.
      uniform: uniform number in [0, 1), not read when greedy.
      temperature: divides the scores; 0 is greedy.
      top_k: samples from the k best ids; None is no limit.
      top_p: samples from the smallest set of best ids that reaches this probability.
    """
    if temperature < _MIN_TEMPERATURE or top_k == 1:
        return int(scores.argmax())
    weights = np.exp((scores - scores.max()) / np.float32(temperature))
    order = np.arange(len(scores))
    if top_k is not None or top_p < 1:
        order = np.argsort(-scores, kind="stable")[:top_k]
        weights = weights[order] / weights[order].sum()
        weights = np.where(np.cumsum(weights) - weights < top_p, weights, 0)
    sums = np.cumsum(weights)
    passed = (sums > sums[-1] * np.float32(uniform)) & (weights > 0)
    return int(order[passed.argmax()])
