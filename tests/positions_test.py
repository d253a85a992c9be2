import numpy as np
from absl.testing import absltest, parameterized

from txl_tf.ops import positions


class RelativeShiftTest(parameterized.TestCase):
    @parameterized.product(queries=(1, 3, 4), memory=(0, 2, 7))
    def test_matches_the_definition(self, queries, memory):
        keys = memory + queries
        by_distance = np.random.default_rng(0).normal(size=(2, 2, queries, keys))
        shifted = np.array(positions.relative_shift(by_distance))
        for i in range(queries):
            for j in range(memory + i + 1):
                expected = by_distance[:, :, i, keys - 1 - (memory + i - j)]
                np.testing.assert_array_equal(shifted[:, :, i, j], expected)

    def test_matches_the_drawing(self):
        a, b, c, d, e, f = range(1, 7)
        shifted = np.array(positions.relative_shift(np.array([[[[a, b, c], [d, e, f]]]])))[0, 0]
        np.testing.assert_array_equal(shifted[0, :2], [b, c])
        np.testing.assert_array_equal(shifted[1], [d, e, f])


class SinusoidsTest(parameterized.TestCase):
    def test_distances_fall_to_zero(self):
        np.testing.assert_array_equal(positions.distances(4), [3, 2, 1, 0])

    def test_clamped_distances_share_a_value(self):
        np.testing.assert_array_equal(positions.distances(5, clamp_len=2), [2, 2, 2, 1, 0])

    @parameterized.parameters(2, 6, 64)
    def test_equals_the_closed_form_in_float64(self, width):
        places = np.arange(2000, dtype="float32")
        k = np.arange(width // 2)
        angles = places[:, None] * 10000.0 ** (-2.0 * k / width)
        expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        found = np.array(positions.sinusoids(places, width))
        # float32 angles up to 2,000 are exact to 1e-4.
        np.testing.assert_allclose(found, expected, atol=3e-4)
        np.testing.assert_allclose(found[:50], expected[:50], atol=5e-6)


if __name__ == "__main__":
    absltest.main()
