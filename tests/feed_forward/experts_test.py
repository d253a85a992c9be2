"""Laws of a training step with routed experts."""

import functools

import keras
import numpy as np
import pytest
from absl.testing import absltest, parameterized

from trainee import SMOOTH, Trainee, atol_of, farthest, make_batch
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer

CHANGES = dict(
    num_layers=2,
    dropout=0.1,
    feed_forward=("dense", "switch(experts=3, jitter=0.1, balance_loss=0.5, z_loss=0.1)"),
)


def run_steps(**options):
    """Metrics of three steps, the weights after them, and the trainee."""
    keras.utils.set_random_seed(1)
    trainee = Trainee(changes=CHANGES, **options, **SMOOTH)
    return trainee.steps(*(make_batch(seed) for seed in range(3))), trainee.weights(), trainee


@functools.cache
def eager_steps():
    """`run_steps` without options."""
    return run_steps()


class ExpertsTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(accumulate_steps=2),
        dict(compiled=True),
        dict(model_class=functools.partial(TransformerXL, rematerialize=True)),
        dict(scale=optimizer.LossScale()),
    )
    def test_however_it_is_computed_it_learns_the_same(self, **options):
        self.check_same(**options)

    @pytest.mark.slow
    def test_by_xla_it_learns_the_same(self):
        self.check_same(compiled=True, jit=True)

    def check_same(self, **options):
        metrics, weights, _ = run_steps(**options)
        expected_metrics, expected, trainee = eager_steps()
        atol = atol_of(trainee)
        self.assertLess(farthest(weights, expected), atol)
        np.testing.assert_allclose(metrics, expected_metrics, rtol=atol, atol=atol)

    def test_metrics_have_the_use_of_experts(self):
        metrics, *_ = eager_steps()
        dropped, entropy = metrics[:, 5], metrics[:, 6]
        self.assertTrue(np.all((dropped >= 0) & (dropped < 1)), dropped)
        self.assertTrue(np.all((entropy > 0) & (entropy <= 1)), entropy)
        plain = Trainee().steps(make_batch())
        np.testing.assert_array_equal(plain[:, 5:7], [[-1.0, -1.0]])

    def test_auxiliary_losses_train_the_router_and_are_not_reported(self):
        batch, told = make_batch(), []
        for factor in (0.0, 100.0):
            spec = f"switch(experts=3, jitter=0.0, balance_loss={factor})"
            trainee = Trainee(changes=dict(feed_forward=(spec,)), clip_norm=None)
            told.append(trainee.steps(batch)[0])
        without, with_loss = told
        self.assertEqual(without[0], with_loss[0])  # nats
        self.assertGreater(with_loss[3], 2 * without[3])  # gradient norm


if __name__ == "__main__":
    absltest.main()
