"""Tests of steps with NaN or infinity, and of the loss scale of float16."""

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from trainee import SMOOTH, Trainee, atol_of, farthest, make_batch
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer


class Poisoned(TransformerXL):
    """Its loss is multiplied by what stands in `factor`."""

    factor = tf.Variable(1.0, trainable=False)

    def nll(self, *args, **kwargs):
        nats, mems = super().nll(*args, **kwargs)
        return nats * self.factor, mems


class SkippedStepTest(parameterized.TestCase):
    def state(self, trainee):
        """Weights, slots and memory."""
        slots = [v.numpy() for v in trainee.optimizer.variables[2:]]  # not the steps and the rate
        return [*trainee.weights(), *slots, *map(np.array, tf.nest.flatten(trainee.memory))]

    @parameterized.product(factor=(np.nan, np.inf), compiled=(False, True))
    def test_changes_nothing_but_the_count(self, factor, compiled):
        trainee = Trainee(Poisoned, compiled=compiled)
        trainee.steps(make_batch())
        before = self.state(trainee)
        Poisoned.factor.assign(factor)
        ((nats, _, _, _, skipped, *_),) = trainee.steps(make_batch(seed=1))
        Poisoned.factor.assign(1.0)
        self.assertFalse(np.isfinite(nats))
        self.assertEqual((skipped, int(trainee.optimizer.iterations)), (1.0, 2))
        self.assertEqual(farthest(self.state(trainee), before), 0.0)
        ((nats, _, _, _, skipped, *_),) = trainee.steps(make_batch(seed=2))
        self.assertTrue(np.isfinite(nats))
        self.assertEqual(skipped, 0.0)
        self.assertGreater(farthest(self.state(trainee), before), 1e-3)


class LossScaleTest(parameterized.TestCase):
    @pytest.mark.half_precision
    def test_an_overflow_halves_it_and_is_skipped(self):
        scale = optimizer.LossScale()
        trainee = Trainee(dtype="mixed_float16", scale=scale)
        trainee.steps(make_batch())
        before = trainee.weights()
        scale.factor.assign(2.0**30)  # the gradients do not fit into float16
        self.assertEqual(trainee.steps(make_batch(seed=1))[0][4], 1.0)
        self.assertEqual(float(scale.factor), 2.0**29)
        self.assertEqual(farthest(trainee.weights(), before), 0.0)
        while trainee.steps(make_batch(seed=1))[0][4]:
            self.assertGreater(float(scale.factor), 1.0)
        self.assertGreater(farthest(trainee.weights(), before), 1e-6)

    def test_many_good_steps_double_it(self):
        scale = optimizer.LossScale()
        with absltest.mock.patch.object(optimizer, "_GROWTH_INTERVAL", 3):
            for good in (True, True, False, True, True, True, True):
                scale.update(tf.constant(good))
        self.assertEqual(float(scale.factor), 2.0**15)  # halved, then doubled
        scale.factor.assign(1.0)
        scale.update(tf.constant(False))
        self.assertEqual(float(scale.factor), 1.0)  # and not below

    def test_it_does_not_show(self):
        """In float32, where a factor of two changes no digit, unless kernels differ by more."""
        plain, scaled = (Trainee(scale=s, **SMOOTH) for s in (None, optimizer.LossScale()))
        found, expected = (each.steps(*map(make_batch, range(3))) for each in (scaled, plain))
        np.testing.assert_allclose(found, expected, rtol=atol_of(plain), atol=atol_of(plain))

    def test_float16_is_near_float32(self):
        batches = [make_batch(seed=seed) for seed in range(8)]
        trainee = Trainee(**SMOOTH)
        exact = trainee.steps(*batches)[:, 0]
        scale = optimizer.LossScale()
        rough = Trainee(dtype="mixed_float16", scale=scale, **SMOOTH).steps(*batches)
        atol = rounding.typical_of_scores(trainee.config.model, dtype="float16")
        np.testing.assert_allclose(rough[:, 0], exact, rtol=0, atol=atol)
        self.assertFalse(rough[:, 4].any())


if __name__ == "__main__":
    absltest.main()
