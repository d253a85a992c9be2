"""Products of heads against einsum in float64."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from txl_tf.ops import heads


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


class HeadsTest(parameterized.TestCase):
    @parameterized.product(rows=(1, 2, 3), num_heads=(1, 2, 4), is_compiled=(False, True))
    def test_all_products(self, rows, num_heads, is_compiled):
        """One head and several rows is where TensorFlow's own product with broadcasting fails."""
        x, kernel = draw(rows, 24, 12), draw(12, num_heads, 6, seed=1)
        table, back = draw(num_heads, 11, 6, seed=2), draw(num_heads, 6, 12, seed=3)
        into, meet, out_of = heads.into, heads.meet, heads.out_of
        if is_compiled:
            into, meet, out_of = map(tf.function, (into, meet, out_of))
        split = into(tf.constant(x), tf.constant(kernel))
        expected = np.einsum("btd,dhk->bhtk", x.astype(float), kernel)
        np.testing.assert_allclose(split, expected, atol=1e-5)
        by_row = meet(split, tf.constant(table))
        np.testing.assert_allclose(by_row, np.einsum("bhtk,hrk->bhtr", expected, table), atol=1e-4)
        joined = out_of(split, tf.constant(back))
        np.testing.assert_allclose(joined, np.einsum("bhtk,hkd->btd", expected, back), atol=1e-4)


if __name__ == "__main__":
    absltest.main()
