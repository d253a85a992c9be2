"""Choosing the next id from scores: greedy, temperature, top-k and top-p, by stateless seeds."""

import dataclasses

import tensorflow as tf

from txl_tf.ops import stateless_random
from txl_tf.ops.attention_mask import HIDDEN
from txl_tf.ops.shapes import shape_of

_COLDEST = 1e-6  # below this float32 cannot tell a temperature from 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next id is chosen.

    Attributes:
      temperature: scores are divided by it; 0 takes the best id.
      top_k: only the k best ids may come; None is no limit.
      top_p: only the best ids that together reach this probability may come (the one that
        reaches it is the last), counted after `temperature` and `top_k`; 1 is no limit.
      banned_ids: ids that never come.

    Raises:
      ValueError: a value breaks a rule.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    banned_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be at least 0 and finite, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1 or none, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")

    @property
    def greedy(self) -> bool:
        """Whether chance has no part in the choice."""
        return self.temperature < _COLDEST or self.top_k == 1


def ban(scores, ids):
    """Hides the columns `ids` (a tuple of ints). Shapes: [B, V] -> [B, V]."""
    if not ids:
        return scores
    banned = tf.reduce_any(tf.range(scores.shape[-1]) == tf.constant(ids)[:, tf.newaxis], axis=0)
    return tf.where(banned, HIDDEN, scores)


def choose(scores, chance, sampling):
    """The next id of each row.

    Shapes: scores [B, V] float32; chance [B] float32, uniform in [0, 1), not read when greedy
    -> [B] int32.
    """
    scores = ban(scores, sampling.banned_ids)
    if sampling.greedy:
        return tf.argmax(scores, axis=-1, output_type=tf.int32)
    # The best score becomes 0 before the division, so that no temperature can overflow to NaN.
    scores -= tf.reduce_max(scores, axis=-1, keepdims=True)
    scores /= sampling.temperature
    if sampling.top_k is None and sampling.top_p == 1.0:  # nothing to rank
        return _inverse_cdf(tf.nn.softmax(scores), chance)
    size = scores.shape[-1]
    best, ids = tf.math.top_k(scores, min(sampling.top_k or size, size))  # [B, k], falling
    probabilities = tf.nn.softmax(best)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    kept = tf.where(before < sampling.top_p, probabilities, 0.0)
    return tf.gather(ids, _inverse_cdf(kept, chance), batch_dims=1)


def choose_by_row(scores, chance, temperature, top_k, top_p):
    """`choose` where each row has its own settings, as tensors: the same ids.

    Shapes: scores [B, V] float32; chance, temperature, top_p [B] float32; top_k [B] int32, where 0
    is no limit -> [B] int32.
    """
    greedy = (temperature < _COLDEST) | (top_k == 1)
    limited = ((top_k > 0) | (top_p < 1.0)) & ~greedy
    scores -= tf.reduce_max(scores, axis=-1, keepdims=True)
    warm = scores / tf.where(greedy, 1.0, temperature)[:, tf.newaxis]
    size = shape_of(scores)[-1]

    def ranked():
        best, ids = tf.math.top_k(warm, size)  # [B, V], falling
        within = tf.range(size) < tf.where(top_k > 0, top_k, size)[:, tf.newaxis]
        probabilities = tf.nn.softmax(tf.where(within, best, HIDDEN))
        before = tf.cumsum(probabilities, axis=-1, exclusive=True)
        kept = tf.where(before < top_p[:, tf.newaxis], probabilities, 0.0)
        return tf.gather(ids, _inverse_cdf(kept, chance), batch_dims=1)

    free = _inverse_cdf(tf.nn.softmax(warm), chance)
    chosen = tf.cond(
        tf.reduce_any(limited), lambda: tf.where(limited, ranked(), free), lambda: free
    )
    return tf.where(greedy, tf.argmax(scores, axis=-1, output_type=tf.int32), chosen)


def _inverse_cdf(weights, chance):
    """The first place of some weight where the running sum passes `chance` of the whole sum."""
    sums = tf.cumsum(weights, axis=-1)  # [B, V]
    passed = sums > sums[:, -1:] * chance[:, tf.newaxis]
    return tf.argmax(tf.cast(passed & (weights > 0), tf.int32), axis=-1, output_type=tf.int32)


def chances(seeds, block, size):
    """Uniform numbers that follow from a row's own seed and the block's number alone.

    Shapes: seeds [B, 2] int32, block scalar int32 -> [B, size] float32 in [0, 1).
    """
    return tf.map_fn(
        lambda seed: stateless_random.uniform(stateless_random.fold_in(seed, block), size),
        seeds,
        fn_output_signature=tf.TensorSpec([size], tf.float32),
    )
