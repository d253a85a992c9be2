"""Adam in the original's form, and the clip, against plain NumPy."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from txl_tf.configs.run import TrainConfig
from txl_tf.training import optimizer as optimizers


def adam(weight, gradients, rates, beta1, beta2, epsilon):
    """The form that adds epsilon to the uncorrected root; float64."""
    m = v = np.zeros_like(weight)
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        corrected = rate * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        weight = weight - corrected * m / (np.sqrt(v) + epsilon)
    return weight


class OptimizerTest(parameterized.TestCase):
    # With 1e-2 the place of epsilon shows: after the correction the result would differ by 80%.
    @parameterized.parameters(1e-8, 1e-2)
    def test_equals_plain_adam(self, epsilon):
        config = TrainConfig(
            learning_rate=0.1,
            warmup_steps=2,
            train_steps=5,
            adam_beta1=0.8,
            adam_beta2=0.99,
            adam_epsilon=epsilon,
        )
        draw = np.random.default_rng(0)
        start, gradients = draw.normal(size=4), draw.normal(size=(5, 4)) * 0.1
        variable = keras.Variable(start, dtype="float32")
        optimizer = optimizers.make_optimizer(config)
        rates = []
        for gradient in gradients:
            rates.append(float(optimizer.learning_rate))
            optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
        self.assertEqual(rates[0], 0.0)
        expected = adam(start, gradients, rates, 0.8, 0.99, epsilon)
        # Five steps, in each of which some ten numbers of about 1 are rounded.
        atol = rounding.tolerance(5 * 10, scale=np.abs(start).max())
        np.testing.assert_allclose(variable, expected, rtol=0, atol=atol)
        self.assertGreater(np.abs(expected - start).max(), 0.01)

    def test_epsilon_is_the_originals_by_default(self):
        self.assertEqual(optimizers.make_optimizer(TrainConfig()).epsilon, 1e-8)


class ClipTest(parameterized.TestCase):
    GRADIENTS = (np.array([3.0, 0.0], np.float32), np.array([[4.0]], np.float32))  # norm 5

    @parameterized.parameters((10.0, 1.0), (5.0, 1.0), (1.0, 0.2), (0.25, 0.05))
    def test_scales_by_the_global_norm(self, clip_norm, factor):
        clipped, norm = optimizers.clip([tf.constant(g) for g in self.GRADIENTS], clip_norm)
        self.assertAlmostEqual(float(norm), 5.0, delta=rounding.tolerance(3, scale=5.0))
        for found, gradient in zip(clipped, self.GRADIENTS, strict=True):
            np.testing.assert_allclose(found, gradient * factor, rtol=rounding.tolerance(3 + 2))

    def test_none_is_off(self):
        clipped, norm = optimizers.clip([tf.constant([300.0]), tf.constant([400.0])], None)
        self.assertEqual([float(g[0]) for g in clipped], [300.0, 400.0])
        self.assertEqual(float(norm), 500.0)

    @parameterized.parameters(np.nan, np.inf)
    def test_an_unusable_norm_cannot_go_unseen(self, bad):
        clipped, norm = optimizers.clip([tf.constant([bad]), tf.constant([1.0])], 1.0)
        self.assertFalse(np.isfinite(norm))
        for gradient in clipped:
            self.assertTrue(np.isnan(gradient).all())


if __name__ == "__main__":
    absltest.main()
