"""Tests of skipped updates: NaN, infinity, or no target."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from trainee import ROWS, TOKENS, Trainee, farthest, make_batch
from txl_tf.configs.run import TrainConfig
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, update

NO_TARGETS = np.full([ROWS, TOKENS], -1, np.int32)


class ApplyTest(parameterized.TestCase):
    def make(self, **options):
        """A weight of 1 and 2 and its optimizer, after a step of a gradient of 3 and 4."""
        self.weight = keras.Variable([1.0, 2.0], dtype="float32")
        self.config = TrainConfig(**(dict(learning_rate=0.5, clip_norm=None) | options))
        self.optimizer = optimizer.make_optimizer(self.config)
        self.optimizer.build([self.weight])
        self.assertTrue(self.apply([3.0, 4.0]).good)

    def apply(self, gradient, losses=(1.0, 0.0), num_real=1.0, jit=False):
        def step():
            return update.apply(
                self.optimizer,
                [tf.constant(gradient)],
                [self.weight],
                losses=tuple(map(tf.constant, losses)),
                num_real=tf.constant(num_real),
                clip_norm=self.config.clip_norm,
            )

        return tf.function(step, jit_compile=jit)() if jit else step()

    def state(self):
        return [v.numpy() for v in (self.weight, *self.optimizer.variables[2:])]

    def spoil(self):
        """Momentum without a second moment: the quotient of the two is beyond float32."""
        self.optimizer._momentums[0].assign([1e10, 0.0])
        self.optimizer._velocities[0].assign([0.0, 0.0])

    @parameterized.parameters(False, True)
    def test_one_beyond_float32_is_not_made(self, jit):
        self.make(adam_epsilon=1e-30)
        self.spoil()
        before = self.state()
        done = self.apply([0.0, 0.0], jit=jit)
        self.assertFalse(done.good)
        self.assertFalse(np.isfinite(done.weight_bound))
        self.assertEqual(farthest(self.state(), before), 0.0)
        self.assertEqual(int(self.optimizer.iterations), 2)

    def test_without_the_rule_it_spoils_the_weight(self):
        self.make(adam_epsilon=1e-30)
        self.spoil()
        self.optimizer.apply([tf.constant([0.0, 0.0])], [self.weight])
        self.assertEqual(float(self.weight[0]), -np.inf)

    @parameterized.parameters(
        dict(losses=(np.nan, 0.0)),
        dict(losses=(1.0, np.inf)),
        dict(gradient=[np.inf, 0.0]),
        dict(gradient=[1e30, 0.0]),  # its square is infinite, and so would the slot be
    )
    def test_numbers_that_are_not_finite_change_nothing(self, gradient=(1.0, 1.0), **options):
        self.make(clip_norm=0.25)
        before = self.state()
        self.assertFalse(self.apply(list(gradient), **options).good)
        self.assertEqual(farthest(self.state(), before), 0.0)

    def test_no_real_target_changes_nothing_and_is_good(self):
        self.make()
        before = self.state()
        self.assertTrue(self.apply([0.0, 0.0], num_real=0.0).good)
        self.assertEqual(farthest(self.state(), before), 0.0)
        self.apply([0.0, 0.0])  # momentum alone moves the weight
        self.assertGreater(farthest(self.state(), before), 0.1)

    def test_no_weight_exceeds_the_bound(self):
        draw = np.random.default_rng(0)
        self.make(adam_epsilon=1e-3, adam_beta2=0.5)
        for size in (1.0, 100.0, 1e-6, 0.0, 10.0):
            done = self.apply([float(x) for x in size * draw.normal(size=2)])
            self.assertLess(np.abs(self.weight.numpy()).max(), float(done.weight_bound))


class StepTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)

    @parameterized.parameters(dict(), dict(compiled=True), dict(accumulate_steps=2))
    def test_a_batch_without_a_target_leaves_weights_and_slots(self, **options):
        trainee = Trainee(**options)
        trainee.steps(make_batch())
        before = trainee.weights() + [v.numpy() for v in trainee.optimizer.variables[2:]]
        memory = trainee.memory.states
        _, tokens, _, norm, skipped, *_ = trainee.steps(make_batch(1, targets=NO_TARGETS))[0]
        self.assertEqual((tokens, norm, skipped), (0.0, 0.0, 0.0))
        after = trainee.weights() + [v.numpy() for v in trainee.optimizer.variables[2:]]
        self.assertEqual(farthest(after, before), 0.0)
        self.assertEqual(int(trainee.optimizer.iterations), 2)
        self.assertGreater(farthest(trainee.memory.states, memory), 0.1)  # it was read

    def test_an_infinite_auxiliary_loss_is_seen_where_no_gradient_shows_it(self):
        class Endless(TransformerXL):
            def nll(self, *args, **kwargs):
                self.add_loss(tf.constant(np.inf))
                return super().nll(*args, **kwargs)

        trainee = Trainee(Endless)
        before = trainee.weights()
        metrics, _ = trainee.step(make_batch(), trainee.memory)
        self.assertEqual(float(metrics.skipped), 1.0)
        self.assertEqual(float(metrics.auxiliary), np.inf)
        self.assertTrue(np.isfinite(metrics.loss))
        self.assertEqual(farthest(trainee.weights(), before), 0.0)

    def test_the_largest_auxiliary_losses_that_a_config_takes_spoil_nothing(self):
        spec = "switch(experts=2, balance_loss=1e6, z_loss=1e6)"
        trainee = Trainee(changes=dict(feed_forward=(spec,)))
        told = trainee.steps(make_batch(), make_batch(1))
        self.assertFalse(told[:, 4].any())
        self.assertTrue(all(np.isfinite(w).all() for w in trainee.weights()))


if __name__ == "__main__":
    absltest.main()
