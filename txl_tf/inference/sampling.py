"""Sampling of the next id: greedy, temperature, top-k and top-p, with stateless seeds."""

import dataclasses

import tensorflow as tf

from txl_tf.ops import stateless_random
from txl_tf.ops.attention_mask import HIDDEN
from txl_tf.ops.shapes import shape_of

_MIN_TEMPERATURE = 1e-6  # below this, sampling in float32 is greedy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of sampling.

    >>> sampling = txl_tf.Sampling(temperature=0.8, top_k=40, top_p=0.95)

    Attributes:
      temperature: divides the scores; 0 is greedy.
      top_k: samples from the k best ids; None is no limit.
      top_p: samples from the smallest set of best ids that reaches this probability, after
        `temperature` and `top_k`; 1 is no limit.
      banned_ids: ids that are never chosen.

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
        """Whether the choice is deterministic."""
        return self.temperature < _MIN_TEMPERATURE or self.top_k == 1


def ban(scores, ids):
    """Hides the columns `ids` (a tuple of ints). Shapes: [B, V] -> [B, V]."""
    if not ids:
        return scores
    banned = tf.reduce_any(tf.range(scores.shape[-1]) == tf.constant(ids)[:, tf.newaxis], axis=0)
    return tf.where(banned, HIDDEN, scores)


def choose(scores, uniform, sampling):
    """Returns the next id of each row.

    Shapes: scores [B, V] float32; uniform [B] float32 in [0, 1), not read when greedy
    -> [B] int32.
    """
    scores = ban(scores, sampling.banned_ids)
    if sampling.greedy:
        return tf.argmax(scores, axis=-1, output_type=tf.int32)
    # Shifted to a maximum of 0 before the division, so that no temperature overflows to NaN.
    scores -= tf.reduce_max(scores, axis=-1, keepdims=True)
    scores /= sampling.temperature
    if sampling.top_k is None and sampling.top_p == 1.0:  # nothing to rank
        return _inverse_cdf(tf.nn.softmax(scores), uniform)
    size = scores.shape[-1]
    best, ids = tf.math.top_k(scores, min(sampling.top_k or size, size))  # [B, k], descending
    probabilities = tf.nn.softmax(best)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    kept = tf.where(before < sampling.top_p, probabilities, 0.0)
    return tf.gather(ids, _inverse_cdf(kept, uniform), batch_dims=1)


def choose_by_row(scores, uniform, temperature, top_k, top_p):
    """Returns the next id of each row, as `choose`, with settings for each row as tensors.

    Shapes: scores [B, V] float32; uniform, temperature, top_p [B] float32; top_k [B] int32, where 0
    is no limit -> [B] int32.
    """
    greedy = (temperature < _MIN_TEMPERATURE) | (top_k == 1)
    limited = ((top_k > 0) | (top_p < 1.0)) & ~greedy
    scores -= tf.reduce_max(scores, axis=-1, keepdims=True)
    warm = scores / tf.where(greedy, 1.0, temperature)[:, tf.newaxis]
    size = shape_of(scores)[-1]

    def ranked():
        best, ids = tf.math.top_k(warm, size)  # [B, V], descending
        within = tf.range(size) < tf.where(top_k > 0, top_k, size)[:, tf.newaxis]
        probabilities = tf.nn.softmax(tf.where(within, best, HIDDEN))
        before = tf.cumsum(probabilities, axis=-1, exclusive=True)
        kept = tf.where(before < top_p[:, tf.newaxis], probabilities, 0.0)
        return tf.gather(ids, _inverse_cdf(kept, uniform), batch_dims=1)

    free = _inverse_cdf(tf.nn.softmax(warm), uniform)
    chosen = tf.cond(
        tf.reduce_any(limited), lambda: tf.where(limited, ranked(), free), lambda: free
    )
    return tf.where(greedy, tf.argmax(scores, axis=-1, output_type=tf.int32), chosen)


def _inverse_cdf(weights, uniform):
    """Inverse-CDF sampling of unnormalised weights. [B, V], uniform [B] -> [B] int32."""
    sums = tf.cumsum(weights, axis=-1)  # [B, V]
    passed = sums > sums[:, -1:] * uniform[:, tf.newaxis]
    return tf.argmax(tf.cast(passed & (weights > 0), tf.int32), axis=-1, output_type=tf.int32)


def uniforms(seeds, block, size):
    """Draws uniform numbers, a function of each row's seed and the block index.

    Shapes: seeds [B, 2] int32, block scalar int32 -> [B, size] float32 in [0, 1).
    """
    return tf.map_fn(
        lambda seed: stateless_random.uniform(stateless_random.fold_in(seed, block), size),
        seeds,
        fn_output_signature=tf.TensorSpec([size], tf.float32),
    )
