"""Tests of the learning rate: published values, the original's recorded run, and its shape."""

import keras
import numpy as np
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.training.optimizer import WarmupCosine


def atol_of(peak):
    """Returns the tolerance of a rate: some eight operations in float32."""
    return rounding.tolerance(8, scale=peak)


class WarmupCosineTest(parameterized.TestCase):
    @parameterized.parameters(  # wt103_large on TPU: 16,000 warm-up steps, floor 1%
        (0, 0.0), (8_000, 1.25e-4), (16_000, 2.5e-4), (2_008_000, 1.2625e-4), (4_000_000, 2.5e-6)
    )
    def test_equals_the_original_on_tpu(self, step, rate):
        schedule = WarmupCosine(2.5e-4, 16_000, 4_000_000, 0.01)
        np.testing.assert_allclose(schedule(step), rate, rtol=0, atol=atol_of(2.5e-4))

    @parameterized.parameters((0, 2.5e-4), (200_000, 1.255e-4), (400_000, 1e-6), (500_000, 1e-6))
    def test_equals_the_original_on_gpu(self, step, rate):
        schedule = WarmupCosine(2.5e-4, 0, 400_000, 0.004)
        np.testing.assert_allclose(schedule(step), rate, rtol=0, atol=atol_of(2.5e-4))

    def test_equals_the_recorded_run(self):
        recorded = np.load(helpers.GOLDEN / "T6_training_12_steps.npz")["io/lr"]
        schedule = WarmupCosine(0.02, 4, 11, 0.004)
        found = [schedule(step) for step in range(12)]
        np.testing.assert_allclose(found, recorded, rtol=0, atol=atol_of(0.02))

    def test_equals_its_drawing(self):
        schedule = WarmupCosine(8, 4, 8, 1 / 8)
        drawn = [0, 2, 4, 6, 8, 6.97, 4.5, 2.03, 1, 1]
        found = [schedule(step) for step in range(10)]
        np.testing.assert_allclose(found, drawn, rtol=0, atol=0.005)  # drawn to two places

    def test_survives_serialisation(self):
        schedule = WarmupCosine(8, 4, 8, 0.125)
        tree = keras.saving.serialize_keras_object(schedule)
        again = keras.saving.deserialize_keras_object(tree)
        for step in (1, 6):
            self.assertEqual(float(again(step)), float(schedule(step)))

    @parameterized.parameters(8, 9, -1)
    def test_refuses_a_warmup_outside_the_run(self, warmup_steps):
        with self.assertRaisesRegex(
            ValueError, f"warmup_steps must be .* below train_steps 8, got {warmup_steps}"
        ):
            WarmupCosine(1.0, warmup_steps, 8, 0.0)


if __name__ == "__main__":
    absltest.main()
