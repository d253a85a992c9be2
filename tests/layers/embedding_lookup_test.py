import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from txl_tf.layers import adaptive_embedding

TABLE = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
IDS = np.array([[4, 0], [4, 2]], "int32")


class RowsOfTest(parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_rows_and_a_dense_gradient_that_sums_repeated_ids(self, jit):
        weights = np.random.default_rng(1).normal(size=(2, 2, 3)).astype("float32")

        @tf.function(jit_compile=jit)
        def rows_and_gradient(table):
            with tf.GradientTape() as tape:
                tape.watch(table)
                rows = adaptive_embedding.gather_rows(table, IDS)
                total = tf.reduce_sum(rows * weights)
            return rows, tape.gradient(total, table)

        rows, gradient = rows_and_gradient(tf.constant(TABLE))
        np.testing.assert_array_equal(rows, TABLE[IDS])
        expected = np.zeros_like(TABLE)
        for place in np.ndindex(*IDS.shape):
            expected[IDS[place]] += weights[place]
        self.assertIsInstance(gradient, tf.Tensor)  # tf.gather's is IndexedSlices
        atol = rounding.tolerance(IDS.size, scale=np.abs(weights).max())
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=atol)

    @parameterized.parameters(-1, 5)
    def test_an_id_without_a_row_is_an_error(self, wrong):
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, f"{wrong} is not in \\[0, 5\\)"
        ):
            adaptive_embedding.gather_rows(TABLE, [0, wrong])


if __name__ == "__main__":
    absltest.main()
