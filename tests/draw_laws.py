"""Law of stateless draws: equal values eagerly, in a graph and under XLA, for seeds of any sign."""

import itertools

import numpy as np
import tensorflow as tf

_EDGES = (0, 1, -1, 12345, -(2**30), 2**31 - 1, -(2**31))
SEEDS = np.concatenate(
    [
        np.array(list(itertools.product(_EDGES, _EDGES)), np.int32),
        np.random.default_rng(0).integers(-(2**31), 2**31, [50, 2], dtype=np.int32),
    ]
)


def check_compiled(draw):
    """Checks that draw(seed), a tensor, is the same eagerly, in a graph and under XLA."""
    functions = [tf.function(draw, jit_compile=jit, autograph=False) for jit in (False, True)]
    for seed in map(tf.constant, SEEDS):
        expected = draw(seed)
        for function in functions:
            np.testing.assert_array_equal(function(seed), expected, err_msg=str(np.array(seed)))
