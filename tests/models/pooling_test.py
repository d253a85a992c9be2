"""Pooling over real tokens, against NumPy row by row."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from txl_tf.models.pooling import POOLING

_BY_HAND = {
    "mean": lambda rows: rows.mean(axis=0),
    "max": lambda rows: rows.max(axis=0),
    "first": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}


class PoolingTest(parameterized.TestCase):
    @parameterized.product(kind=tuple(POOLING), dtype=("float32", "bfloat16"))
    def test_only_real_tokens_count(self, kind, dtype):
        states = tf.cast(np.random.default_rng(0).normal(size=[3, 5, 4]) - 2.0, dtype)
        lengths = [5, 2, 1]
        found = POOLING[kind](states, tf.constant(lengths))
        self.assertEqual(found.dtype, tf.float32)
        for row, length in enumerate(lengths):
            real = np.array(tf.cast(states, tf.float32))[row, :length]
            atol = rounding.tolerance(length + 1, scale=np.abs(real).max())
            np.testing.assert_allclose(found[row], _BY_HAND[kind](real), rtol=0, atol=atol)

    def test_every_kind_has_an_oracle(self):
        self.assertEqual(set(POOLING), set(_BY_HAND))


if __name__ == "__main__":
    absltest.main()
