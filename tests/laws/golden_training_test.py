"""The original's training run, step for step: losses, gradient norms, rates, final weights.

12 steps with memory from zeros that are attended to, warm-up, cosine, clip and Adam; the variant
whose gradients are dense before the clip. Tolerances are those that come with the recording.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest

import helpers
import rounding
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.conversion import original_layout, tf1
from txl_tf.data.batches import Batch
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, step
from txl_tf.training.distribution import make_distribution

CASE = helpers.GOLDEN / "T6_training_12_steps.npz"


def load():
    """The recorded arrays by kind, and the config that the recording was made with."""
    arrays = {"io": {}, "weights": {}, "final": {}, "norms": {}}
    with np.load(CASE) as stored:
        model = tf1.config_from_hparams(json.loads(str(stored["hparams"])))
        training = json.loads(str(stored["training"]))
        for name in stored.files:
            kind, _, rest = name.partition("/")
            if rest:
                arrays[kind][rest] = stored[name]
    _, num_tokens, num_rows = arrays["io"]["inputs"].shape
    train = TrainConfig(
        batch_size=num_rows,
        segment_len=num_tokens,
        train_steps=training["train_steps"],
        learning_rate=training["learning_rate"],
        warmup_steps=training["warmup_steps"],
        min_lr_ratio=training["min_lr_ratio"],
        adam_beta1=training["beta1"],
        adam_beta2=training["beta2"],
        adam_epsilon=training["epsilon"],
        clip_norm=training["clip"],
    )
    return arrays, Config(model=model, train=train)


def run(config, arrays):
    """Metrics of all steps, the model, its optimizer and the last memory."""
    model = TransformerXL(config.model)
    original_layout.assign(model, arrays["weights"])
    adam = optimizer.make_optimizer(config.train)
    adam.build(model.trainable_variables)
    train_step = step.make_train_step(model, adam, make_distribution("one_device"), config)
    memory = model.initial_mems(config.train.batch_size)
    told = []
    for ids, targets in zip(arrays["io"]["inputs"], arrays["io"]["labels"], strict=True):
        batch = Batch(ids.T, targets.T, np.zeros(ids.T.shape, bool), not told)  # theirs [T, B]
        metrics, memory = train_step(Batch(*map(tf.constant, batch)), memory)
        told.append(step.Metrics(*map(float, metrics)))
    return step.Metrics(*map(np.array, zip(*told, strict=True))), model, memory


def in_their_layout(model):
    """Our weights under the original's names and in its shapes."""
    found = {}
    for name, parameter in original_layout.parameters(model).items():
        values = [weight.numpy() for weight in parameter.weights]
        if len(values) == 3:  # q | k | v
            width = parameter.shape[1] // 3
            values = [np.concatenate([v.reshape(-1, width) for v in values], axis=1)]
        found[name] = np.stack(values).reshape(parameter.shape)
    return found


def atol_of(config, arrays):
    """Returns the tolerance of losses, norms and memory: a forward and a backward pass."""
    terms = 2 * rounding.stack_terms(config.model, config.train.segment_len)
    tokens = config.train.batch_size * config.train.segment_len
    scale = arrays["io"]["loss_dense"].max()
    return rounding.tolerance(terms, config.model.vocab_size, tokens, scale=scale)


class GoldenTrainingTest(absltest.TestCase):
    def check(self, **train):
        arrays, config = load()
        config = Config(model=config.model, train=TrainConfig(**(vars(config.train) | train)))
        metrics, model, memory = run(config, arrays)
        expected = arrays["io"]
        atol = atol_of(config, arrays)
        for found, name in ((metrics.loss, "loss_dense"), (metrics.gradient_norm, "gnorm_dense")):
            np.testing.assert_allclose(found, expected[name], rtol=0, atol=atol)
        rate = config.train.learning_rate
        lr_atol = rounding.tolerance(8, scale=rate)
        np.testing.assert_allclose(metrics.learning_rate, expected["lr"], rtol=0, atol=lr_atol)
        for ours, theirs in zip(memory.states, expected["mems_final_dense"], strict=True):
            np.testing.assert_allclose(ours, theirs.transpose(1, 0, 2), rtol=0, atol=atol)
        self.check_weights(in_their_layout(model), arrays, rate, atol)

    def check_weights(self, found, arrays, rate, atol):
        """Where a gradient is rounding error, Adam's update may have either sign."""
        self.assertEqual(found.keys(), arrays["norms"].keys())
        for name, norm in arrays["norms"].items():
            self.assertAlmostEqual(np.linalg.norm(found[name]) / norm, 1.0, delta=atol, msg=name)
        for name, value in arrays["final"].items():
            difference = np.abs(found[name] - value)
            self.assertLess(difference.max(), rate, msg=name)
            self.assertLess(np.quantile(difference, 0.99), atol, msg=name)
            self.assertGreater(np.abs(found[name] - arrays["weights"][name]).max(), rate, msg=name)

    def test_equals_the_original(self):
        self.check(jit=False)

    @pytest.mark.slow
    def test_equals_the_original_by_xla(self):
        self.check(jit=True)

    @pytest.mark.slow
    def test_equals_the_original_row_by_row(self):
        self.check(jit=False, accumulate_steps=3)

    def test_the_recording_tells_the_two_clips_apart(self):
        """The original's own run, which clips by another norm, is outside the tolerances."""
        arrays, config = load()
        difference = np.abs(arrays["io"]["loss"] - arrays["io"]["loss_dense"])
        self.assertGreater(difference.max(), 5 * atol_of(config, arrays))


if __name__ == "__main__":
    absltest.main()
