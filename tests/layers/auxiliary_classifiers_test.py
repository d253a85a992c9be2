"""Tests of layers.auxiliary_classifiers against plain loops in float64."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.layers.auxiliary_classifiers import AuxiliaryClassifiers, predictions

ROWS, TOKENS, WIDTH, WORDS = 2, 5, 8, 11


def made(num_layers, num_targets):
    """A layer, its states and targets; some targets are padding."""
    layer = AuxiliaryClassifiers(num_layers=num_layers, vocab_size=WORDS, num_targets=num_targets)
    draw = np.random.default_rng(0)
    states = draw.normal(size=[num_layers, ROWS, TOKENS, WIDTH]).astype(np.float32)
    targets = helpers.draw_ids(ROWS, TOKENS)
    targets[-1, 3:] = -1
    layer.build([(ROWS, TOKENS, WIDTH)] * num_layers)
    for weight in layer.weights:
        weight.assign(draw.normal(size=weight.shape, scale=0.5))
    return layer, list(map(tf.constant, states)), tf.constant(targets)


def expected_loss(layer, states, targets, progress):
    """The paper's sum, prediction by prediction."""
    total, targets = 0.0, targets.numpy()
    for (number, ahead), kernel, bias in zip(
        predictions(layer.num_layers, layer.num_targets), layer.kernels, layer.biases, strict=True
    ):
        ends = number / (2 * layer.num_layers)
        if number < layer.num_layers and progress >= ends:
            continue
        nats = []
        for b, t in np.ndindex(ROWS, TOKENS):
            if t + ahead < TOKENS and targets[b, t + ahead] >= 0:
                state = states[number - 1].numpy()[b, t].astype(np.float64)
                logits = state @ kernel.numpy() + bias.numpy()
                nats.append(np.log(np.exp(logits).sum()) - logits[targets[b, t + ahead]])
        total += (0.5 if ahead else 1.0) * (np.mean(nats) if nats else 0.0)
    return total


class AuxiliaryClassifiersTest(parameterized.TestCase):
    @parameterized.product(
        num_layers=(1, 2, 3), num_targets=(1, 2, 7), progress=(0.0, 0.2, 0.3, 0.5, 1.0)
    )
    def test_loss(self, num_layers, num_targets, progress):
        layer, states, targets = made(num_layers, num_targets)
        if not layer.predictions:
            return
        found = layer(states, targets, tf.fill([ROWS], progress))
        expected = expected_loss(layer, states, targets, progress)
        atol = rounding.tolerance(WIDTH + WORDS, ROWS * TOKENS, scale=max(expected, 1.0))
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        self.assertEqual([float(loss) for loss in layer.losses], [float(found)])

    def test_predictions(self):
        self.assertEqual(predictions(3, 1), [(1, 0), (2, 0)])
        self.assertEqual(predictions(2, 2), [(1, 0), (1, 1), (2, 1)])
        self.assertEqual(predictions(1, 1), [])

    def test_ended_losses_give_no_gradient(self):
        layer, states, targets = made(3, 2)
        with tf.GradientTape() as tape:
            tape.watch(states)
            loss = layer(states, targets, tf.fill([ROWS], 0.25))
        sizes = [float(tf.reduce_max(tf.abs(g))) for g in tape.gradient(loss, states)]
        self.assertEqual(sizes[0], 0.0)  # layer 1 of 3 ends at a sixth
        self.assertGreater(min(sizes[1:]), 0.0)

    def test_xla_and_half_precision(self):
        layer, states, targets = made(2, 2)
        expected = layer(states, targets, tf.fill([ROWS], 0.0))
        compiled = tf.function(layer.__call__, jit_compile=True, autograph=False)
        found = compiled(states, targets, tf.fill([ROWS], 0.0))
        np.testing.assert_allclose(found, expected, rtol=rounding.tolerance(WIDTH + WORDS))


if __name__ == "__main__":
    absltest.main()
