import re

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import draw_laws
import helpers
from txl_tf.ops import stateless_random

SEED = tf.constant([1, 5])


class DrawsTest(parameterized.TestCase):
    @parameterized.parameters(
        lambda seed: stateless_random.fold_in(seed, 7),
        lambda seed: stateless_random.fold_in(stateless_random.fold_in(seed, 3), 2**31 - 1),
        lambda seed: stateless_random.fold_in(seed, seed[1]),
        lambda seed: stateless_random.bits(seed, 9),
        lambda seed: stateless_random.bits(seed, 4097),
        lambda seed: stateless_random.uniform(seed, 9),
    )
    def test_compiled_is_bit_for_bit_the_same(self, draw):
        draw_laws.check_compiled(draw)

    @parameterized.parameters(
        lambda seed: tf.random.fold_in(seed, 7),
        lambda seed: tf.random.stateless_uniform([9], seed, alg="philox"),
    )
    def test_what_tensorflow_draws_by_itself_is_not(self, draw):
        """Or this module would not be needed."""
        with self.assertRaises(AssertionError):
            draw_laws.check_compiled(draw)

    def test_numbers_stay_as_they_were(self):
        """Runs go on with the masks that they began with."""
        np.testing.assert_array_equal(stateless_random.fold_in(SEED, 3), [-2000646829, 3])
        np.testing.assert_array_equal(
            stateless_random.fold_in(tf.constant([-7, 3]), 3), [-1120099188, 3]
        )
        np.testing.assert_array_equal(
            stateless_random.bits(SEED, 3), [2294320467, 3173365172, 2216431915]
        )
        floats = stateless_random.uniform(SEED, 3) * 2**23
        np.testing.assert_array_equal(floats, [4230483, 2471348, 1839403])

    def test_floats_are_those_of_tensorflow_outside_of_xla(self):
        for seed in draw_laws.SEEDS:
            expected = tf.random.stateless_uniform([9], seed, alg="philox")
            np.testing.assert_array_equal(stateless_random.uniform(seed, 9), expected)

    def test_floats_are_even_and_below_1(self):
        found = np.array(stateless_random.uniform(SEED, 100_000))
        self.assertBetween(found.min(), 0.0, 1e-3)
        self.assertBetween(found.max(), 1 - 1e-3, 1 - 2**-23)
        self.assertAlmostEqual(found.mean(), 0.5, delta=5 * (1 / 12 / found.size) ** 0.5)

    def test_nothing_else_of_the_package_draws(self):
        package = helpers.ROOT / "txl_tf"
        drawing = [
            path.name
            for path in package.rglob("*.py")
            if re.search(r"\b(tf|keras)\.random\.(?!SeedGenerator)", path.read_text("utf-8"))
        ]
        self.assertEqual(drawing, ["stateless_random.py"])


if __name__ == "__main__":
    absltest.main()
