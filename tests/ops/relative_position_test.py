import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from txl_tf.ops import relative_position


class ScoresByKeyTest(parameterized.TestCase):
    @parameterized.product(
        queries=(1, 3, 4), memory=(0, 2, 7), rows=(1, 2, 5, 99), is_dynamic=(False, True)
    )
    def test_matches_the_definition(self, queries, memory, rows, is_dynamic):
        """Fewer rows than keys, as many, and none too many: at most one for each distance."""
        keys = memory + queries
        rows = min(rows, keys)
        draw = np.random.default_rng(0).normal
        query, encodings = draw(size=(2, 2, queries, 6)), draw(size=(2, rows, 6))

        def function(query, encodings):
            count = tf.shape(query)[2] + memory if is_dynamic else keys
            return relative_position.scores_by_key(query, encodings, count)

        shapes = [[2, 2, None, 6], [2, None, 6]] if is_dynamic else [query.shape, encodings.shape]
        specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
        found = tf.function(function, input_signature=specs)(query, encodings).numpy()
        self.assertEqual(found.shape, (2, 2, queries, keys))
        for i in range(queries):
            for j in range(memory + i + 1):
                distance = memory + i - j
                expected = np.zeros([2, 2])
                if distance < rows:
                    expected = np.sum(query[:, :, i] * encodings[:, rows - 1 - distance], axis=-1)
                atol = rounding.tolerance(6, scale=np.abs(query).max() * np.abs(encodings).max())
                np.testing.assert_allclose(found[:, :, i, j], expected, rtol=0, atol=atol)

    def test_matches_the_drawing(self):
        a, b, c, d, e, f = range(1, 7)
        by_distance = np.array([[a, b, c], [d, e, f]], float)  # query times unit vectors
        found = relative_position.scores_by_key(by_distance[None, None], np.eye(3)[None], 3)[0, 0]
        np.testing.assert_array_equal(found[0, :2], [b, c])
        np.testing.assert_array_equal(found[1], [d, e, f])


class SinusoidsTest(parameterized.TestCase):
    def test_distances_fall_to_zero(self):
        np.testing.assert_array_equal(relative_position.distances(4), [3, 2, 1, 0])

    @parameterized.parameters(2, 6, 64)
    def test_equals_the_closed_form_in_float64(self, width):
        places = np.arange(2000, dtype="float32")
        k = np.arange(width // 2)
        angles = places[:, None] * 10000.0 ** (-2.0 * k / width)
        expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        found = np.array(relative_position.sinusoids(places, width))
        for count in (50, 2000):  # an angle, of frequency and product, is right to its own size
            atol = rounding.tolerance(3, scale=count)
            np.testing.assert_allclose(found[:count], expected[:count], rtol=0, atol=atol)


if __name__ == "__main__":
    absltest.main()
