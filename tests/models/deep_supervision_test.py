"""Tests of models.deep_supervision: its loss, its schedule in training, and the model for use."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from trainee import ROWS, TOKENS, farthest, make_batch
from txl_tf import model_dir
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.models.deep_supervision import DeeplySupervisedTransformerXL
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, step
from txl_tf.training.distribution import make_distribution

VANILLA = dict(mem_len=0, position="absolute_per_layer", num_positions=8)


def made(**changes):
    return helpers.loud(DeeplySupervisedTransformerXL(helpers.tiny_config(**VANILLA | changes)))


def inputs():
    return helpers.draw_ids(2, 6), helpers.draw_ids(2, 6, seed=1)


class DeepSupervisionTest(parameterized.TestCase):
    @parameterized.parameters(VANILLA, dict(mem_len=4, position="xl", num_positions=None))
    def test_nll(self, **changes):
        """Equals that of the plain model; the losses are those of the states of its layers."""
        model, (ids, targets) = made(**changes), inputs()
        nll, _ = model.nll(ids, targets, progress=tf.zeros([2]))
        losses = [float(loss) for loss in model.losses]
        plain = model.with_lengths()
        self.assertIs(type(plain), TransformerXL)
        np.testing.assert_array_equal(nll, plain.nll(ids, targets)[0])
        states, _ = plain.hidden_states(ids)
        expected = float(model.auxiliary(states[1:], targets, tf.zeros([2])))
        self.assertLen(losses, 1)
        self.assertAlmostEqual(losses[0], expected, delta=rounding.of_scores(model.config))

    def test_no_losses_outside_of_training(self):
        model, (ids, targets) = made(), inputs()
        model.nll(ids, targets)
        self.assertEmpty(model.losses)

    def test_save_and_load(self):
        model, (ids, targets) = made(), inputs()
        path = str(helpers.temp_dir(self) / "model.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertEqual(loaded.num_targets, model.num_targets)
        for ours, theirs in zip(loaded.weights, model.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(loaded.nll(ids, targets)[0], model.nll(ids, targets)[0])

    def test_cutoffs_are_refused(self):
        message = "^cutoffs must be empty for objective auxiliary, .*, got \\(4,\\)$"
        with self.assertRaisesRegex(ValueError, message):
            Config(
                model=helpers.tiny_config(cutoffs=(4,)), train=TrainConfig(objective="auxiliary")
            )


class TrainingTest(absltest.TestCase):
    def config(self, **train):
        settings = dict(objective="auxiliary", batch_size=ROWS, segment_len=TOKENS, train_steps=4)
        return Config(
            model=helpers.tiny_config(**VANILLA),
            train=TrainConfig(**settings | dict(jit=False, learning_rate=0.01) | train),
        )

    def train(self, config, *batches):
        """Returns the auxiliary loss of each step, and the weights after them."""
        model = helpers.loud(model_dir.make_model(config))
        adam = optimizer.make_optimizer(config.train)
        adam.build(model.trainable_variables)
        one_device = make_distribution("one_device")
        run_step = step.make_train_step(model, adam, one_device, config).python_function
        memory, losses, expected = model.initial_mems(ROWS), [], []
        for number, batch in enumerate(batches):
            states, _ = model.hidden_states(batch.ids)
            progress = tf.fill([ROWS], number / config.train.train_steps)
            expected.append(float(model.auxiliary(states[1:], batch.targets, progress)))
            metrics, memory = run_step(batch, memory)
            losses.append(float(metrics.auxiliary))
        return losses, expected, [w.numpy() for w in model.trainable_variables]

    def test_losses_end_by_the_schedule(self):
        """Those of layer 1 of 2 at a quarter of 4 steps, so that the rest is layer 2 of step 1."""
        config = self.config()
        losses, expected, _ = self.train(config, *(make_batch(seed) for seed in range(4)))
        atol = rounding.of_gradients(config.model, ROWS * TOKENS)
        np.testing.assert_allclose(losses, expected, rtol=0, atol=atol)
        self.assertGreater(losses[0], 2 * max(losses[1:]))

    def test_parts_equal_the_whole(self):
        """Where each part has as many targets."""
        targets = helpers.draw_ids(ROWS, TOKENS, seed=9)
        batches = [make_batch(targets=targets)]
        whole, cut = self.config(adam_epsilon=1.0), self.config(adam_epsilon=1.0)
        cut = dataclasses.replace(cut, train=dataclasses.replace(cut.train, accumulate_steps=2))
        (expected, _, weights), (found, _, others) = (
            self.train(config, *batches) for config in (whole, cut)
        )
        atol = rounding.of_gradients(whole.model, ROWS * TOKENS)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        self.assertLess(farthest(weights, others), atol)

    def test_a_folder_is_loaded_without_the_classifiers(self):
        config = self.config()
        config = dataclasses.replace(
            config, model=dataclasses.replace(config.model, vocab_size=256)
        )
        folder = str(helpers.temp_dir(self) / "run")
        model = helpers.loud(model_dir.make_model(config))
        model_dir.describe(folder, config, ByteTokenizer())
        model_dir.save_weights(folder, model, step=3)
        loaded = model_dir.load(folder)
        self.assertIs(type(loaded.model), TransformerXL)
        self.assertLess(len(loaded.model.weights), len(model.weights))
        ids, targets = inputs()
        np.testing.assert_array_equal(loaded.model.nll(ids, targets)[0], model.nll(ids, targets)[0])


if __name__ == "__main__":
    absltest.main()
