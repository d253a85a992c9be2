"""Tests of linear: one row, and many."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import rounding
from txl_tf.ops import linear


class ProductTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        itertools.product(
            ([1, 1], [3, 1], [2, 5]), ([512, 2048], [410, 1003], [300, 512], [31, 8000])
        )
    )
    def test_is_the_sum_of_the_products_and_the_bias(self, axes, size):
        rng = np.random.default_rng(0)
        x, matrix, bias = (rng.normal(size=s) for s in ([*axes, size[0]], size, size[1:]))
        told = linear.matmul(*(tf.constant(a, tf.float32) for a in (x, matrix, bias)))
        # The products are of either sign: their sum has the size of its root.
        atol = rounding.tolerance(size[0], scale=size[0] ** 0.5)
        np.testing.assert_allclose(told, x @ matrix + bias, rtol=0, atol=atol)
        self.assertEqual(told.shape, [*axes, size[1]])

    @parameterized.parameters(([512, 2048], 4), ([512, 512], 2), ([64, 64], 1), ([31, 8000], 1))
    def test_one_row_is_multiplied_in_parts(self, size, parts):
        graph = _graph([1, 1, size[0]], size)
        self.assertLen([op for op in graph.get_operations() if op.type == "MatMul"], parts)

    def test_several_rows_are_multiplied_at_once(self):
        graph = _graph([2, 1, 512], [512, 2048])
        self.assertLen([op for op in graph.get_operations() if op.type == "MatMul"], 1)

    @pytest.mark.half_precision
    def test_takes_the_dtype_of_the_rows(self):
        x = tf.ones([1, 512], tf.bfloat16)
        self.assertEqual(linear.matmul(x, tf.ones([512, 2048]), tf.ones([2048])).dtype, x.dtype)


def _graph(x_shape, matrix_shape):
    args = (tf.TensorSpec(x_shape, tf.float32), tf.TensorSpec(matrix_shape, tf.float32))
    return tf.function(linear.matmul).get_concrete_function(*args).graph


if __name__ == "__main__":
    tf.test.main()
