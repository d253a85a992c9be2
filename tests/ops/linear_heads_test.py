"""Per-head products equal einsum in float64."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from txl_tf.ops import linear


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


class HeadsTest(parameterized.TestCase):
    @parameterized.product(rows=(1, 2, 3), num_heads=(1, 2, 4), is_compiled=(False, True))
    def test_all_products(self, rows, num_heads, is_compiled):
        """One head and several rows is where TensorFlow's own product with broadcasting fails."""
        x, kernel = draw(rows, 24, 12), draw(12, num_heads, 6, seed=1)
        table, back = draw(num_heads, 11, 6, seed=2), draw(num_heads, 6, 12, seed=3)
        into, meet, out_of = (
            linear.project_to_heads,
            linear.matmul_per_head,
            linear.project_from_heads,
        )
        if is_compiled:
            into, meet, out_of = map(tf.function, (into, meet, out_of))
        split = into(tf.constant(x), tf.constant(kernel))
        expected = np.einsum("btd,dhk->bhtk", x.astype(float), kernel)
        size = np.abs(expected).max()
        atol = rounding.tolerance(12, scale=size)
        np.testing.assert_allclose(split, expected, rtol=0, atol=atol)
        by_row, joined = meet(split, tf.constant(table)), out_of(split, tf.constant(back))
        atol = rounding.tolerance(12, 6 * num_heads, scale=size * np.abs(table).max())
        expected_by_row = np.einsum("bhtk,hrk->bhtr", expected, table)
        np.testing.assert_allclose(by_row, expected_by_row, rtol=0, atol=atol)
        expected = np.einsum("bhtk,hkd->btd", expected, back)
        np.testing.assert_allclose(joined, expected, rtol=0, atol=atol)


if __name__ == "__main__":
    absltest.main()
