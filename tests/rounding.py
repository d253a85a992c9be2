"""Tolerances of numeric comparisons, derived from rounding errors.

A floating-point sum of n terms has an error of at most n * eps times the size of its terms, in any
order of summation, with or without fused multiply-adds, on any number of threads (Higham, Accuracy
and Stability of Numerical Algorithms, 2002, sections 3.1 and 4.2). Errors of consecutive sums add
up, so two correct results agree within

    tolerance = terms * eps * scale

and processors, compilers, batch sizes and other implementations may use all of it. Faults are
larger: with weights of standard deviation 0.5, as in `helpers.loud`, they show as 1e-3 or more.
"""

import math

import ml_dtypes
import numpy as np


def tolerance(*terms, scale=1.0, dtype="float32"):
    """Returns the absolute tolerance of one result.

    Args:
      terms: lengths of the sums between the inputs and the result.
      scale: size of the terms, from the inputs and weights. Never the size of the result, which is
        0 where terms cancel.
      dtype: type of the computation.
    """
    return sum(terms) * float(ml_dtypes.finfo(dtype).eps) * scale


def typical(*terms, scale=1.0, dtype="bfloat16"):
    """Returns the tolerance of a mean absolute error over many results.

    Independent errors grow with the square root of their number. For 16-bit types, whose worst case
    is as large as the results.
    """
    return math.sqrt(sum(terms)) * float(ml_dtypes.finfo(dtype).eps) * scale


def of_attention(width, keys, values):
    """Returns the tolerance of contexts: content and position scores, softmax, weighted mean.

    An error of a score moves weight from one value to another, so their difference is the scale.
    """
    return tolerance(2 * width, 2 * keys, scale=2 * np.abs(values).max())


def stack_terms(config, tokens=16):
    """Returns the length of all sums from the ids to the last block's output for one text."""
    keys = getattr(config, "mem_len", 0) + tokens
    projections = 4 * config.d_model  # queries or keys, distances, two layer norms
    attention = 2 * config.head_dim + 2 * keys + config.num_heads * config.head_dim
    feed_forward = config.d_model + getattr(config, "d_inner", 0)
    return config.num_layers * (projections + attention + feed_forward)


def of_states(config, tokens=16):
    """Returns the tolerance of a block's output [B, T, D], whose rows have the norm sqrt(D)."""
    return tolerance(stack_terms(config, tokens), scale=config.d_model**0.5)


def of_scores(config, tokens=16, dtype="float32"):
    """Returns the tolerance of scores and of nats, for weights of standard deviation 0.5.

    The last sum has `d_model` products of normalised states and weights.
    """
    terms = stack_terms(config, tokens), config.d_model, config.vocab_size
    return tolerance(*terms, scale=0.5 * config.d_model, dtype=dtype)


def of_gradients(config, tokens=16):
    """Returns the tolerance of gradients of a mean over `tokens` nats: forward, backward, sum."""
    return 2 * of_scores(config, tokens) + tolerance(tokens, scale=0.5 * config.d_model)


def typical_of_states(config, tokens=16, dtype="bfloat16"):
    """Returns the tolerance of the mean error of a block's output, of standard deviation 1."""
    return typical(stack_terms(config, tokens), dtype=dtype)


def typical_of_scores(config, tokens=16, dtype="bfloat16"):
    """Returns the tolerance of the mean error of scores, of standard deviation 0.5 sqrt(D)."""
    terms = stack_terms(config, tokens), config.d_model
    return typical(*terms, scale=0.5 * config.d_model**0.5, dtype=dtype)
