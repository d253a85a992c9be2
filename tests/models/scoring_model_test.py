"""Ignored targets in the loss and metrics of Keras, for every model that scores targets."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.configs.model import EncoderConfig
from txl_tf.models.masked_language_model import MaskedLanguageModel
from txl_tf.models.sequence_classifier import SequenceClassifier, TokenClassifier
from txl_tf.models.transformer_xl import TransformerXL

ENCODER = EncoderConfig(
    vocab_size=11, num_layers=1, d_model=8, num_heads=2, head_dim=4, d_inner=16, dropout=0.0
)
CAUSAL = helpers.tiny_config(num_layers=1)
ATOL = rounding.of_scores(CAUSAL)  # of all models' nats
MAKERS = {
    "language model": lambda: TransformerXL(CAUSAL),
    "adaptive": lambda: TransformerXL(helpers.tiny_config(num_layers=1, cutoffs=(4, 7))),
    "text": lambda: SequenceClassifier(ENCODER, 3),
    "tokens": lambda: TokenClassifier(ENCODER, 3),
    "causal tokens": lambda: TokenClassifier(CAUSAL, 3, segment_len=4),
    "masked": lambda: MaskedLanguageModel(ENCODER),
}
WEIGHTS = np.array([1.0, 3.0, 0.5, 2.0], "float32")


def setting(kind):
    """A model, ids, log-probabilities by NumPy, and targets of which half are -1."""
    model, ids = helpers.loud(MAKERS[kind]()), helpers.draw_ids(4, 6)
    scores = model.scores_in(model(ids)).numpy().astype(float)
    log_probs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    targets = scores.argmax(axis=-1).astype("int32")
    flat = targets.reshape(-1)
    wrong = flat[: len(flat) // 4]  # the first row's
    wrong[:] = (wrong + 1) % scores.shape[-1]
    flat[1::2] = -1
    return model, ids, log_probs, targets


def expected(log_probs, targets, weights=None):
    """Accuracy and nats, target by target."""
    total = right = nats = 0.0
    for place in np.ndindex(targets.shape):
        if targets[place] >= 0:
            weight = 1.0 if weights is None else weights[place[0]]
            total += weight
            right += weight * (log_probs[place].argmax() == targets[place])
            nats -= weight * log_probs[place][targets[place]]
    return right / total, nats / total


def metrics():
    return [
        keras.metrics.SparseCategoricalAccuracy(name="right"),
        keras.metrics.SparseTopKCategoricalAccuracy(k=1, name="first"),
        keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats"),
    ]


class IgnoredTargetsTest(parameterized.TestCase):
    @parameterized.parameters(*MAKERS)
    def test_metrics_and_weighted_metrics(self, kind):
        model, ids, log_probs, targets = setting(kind)
        weighted = [keras.metrics.SparseCategoricalAccuracy(name="weighted_right")]
        model.compile(metrics=["accuracy", *metrics()], weighted_metrics=weighted, run_eagerly=True)
        found = model.evaluate(ids, targets, 2, 0, WEIGHTS, return_dict=True)
        accuracy, nats = expected(log_probs, targets)
        for name in ("accuracy", "right", "first"):
            self.assertAlmostEqual(found[name], accuracy, places=6)
        self.assertAlmostEqual(found["nats"], nats, delta=ATOL)
        weighted, _ = expected(log_probs, targets, WEIGHTS)
        self.assertAlmostEqual(found["weighted_right"], weighted, places=6)
        self.assertNotAlmostEqual(weighted, accuracy, places=2)

    @parameterized.parameters("language model", "text", "tokens")
    def test_a_given_loss_is_the_mean_of_real_targets(self, kind):
        model, ids, log_probs, targets = setting(kind)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(loss=loss, run_eagerly=True)
        _, nats = expected(log_probs, targets)
        self.assertAlmostEqual(model.test_on_batch(ids, targets), nats, delta=ATOL)
        weighted = model.test_on_batch(ids, targets, WEIGHTS)
        real = (targets >= 0).reshape(len(ids), -1).sum(axis=1)
        by_weight = expected(log_probs, targets, WEIGHTS)[1] * (real @ WEIGHTS) / real.sum()
        self.assertAlmostEqual(weighted, by_weight, delta=WEIGHTS.max() * ATOL)

    def test_weights_of_single_targets(self):
        model, ids, log_probs, targets = setting("tokens")
        model.compile(weighted_metrics=metrics()[:1], run_eagerly=True)
        whole = np.broadcast_to(WEIGHTS[:, np.newaxis], targets.shape)
        found = model.test_on_batch(ids, targets, whole, return_dict=True)
        accuracy, nats = expected(log_probs, targets, WEIGHTS)
        self.assertAlmostEqual(found["right"], accuracy, places=6)
        self.assertAlmostEqual(found["loss"], nats, delta=ATOL)

    def test_compiled_by_xla(self):
        model, ids, log_probs, targets = setting("tokens")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=metrics()[:1], jit_compile=True)
        found = model.evaluate(ids, targets, verbose=0, return_dict=True)
        accuracy, nats = expected(log_probs, targets)
        self.assertAlmostEqual(found["right"], accuracy, places=6)
        self.assertAlmostEqual(found["loss"], nats, delta=ATOL)

    @parameterized.parameters("uint8", "bool", "float32", "int64")
    def test_targets_of_any_type(self, dtype):
        model, ids, log_probs, _ = setting("text")
        targets = np.array([0, 1, 1, 0])
        model.compile(metrics=metrics(), run_eagerly=True)
        found = model.test_on_batch(ids, targets.astype(dtype), return_dict=True)
        accuracy, nats = expected(log_probs, targets)
        self.assertAlmostEqual(found["right"], accuracy, places=6)
        self.assertAlmostEqual(found["loss"], nats, delta=ATOL)

    def test_targets_beyond_lengths_may_be_unsigned(self):
        model, ids, _, targets = setting("tokens")
        lengths, targets = np.array([6, 1, 3, 2]), np.abs(targets)
        nats = model.nll(ids, targets.astype("uint8"), lengths=lengths)
        np.testing.assert_array_equal(nats, model.nll(ids, targets, lengths=lengths))

    def test_a_weight_of_an_ignored_target_is_not_read(self):
        model, ids, log_probs, targets = setting("tokens")
        model.compile(run_eagerly=True)
        found = model.test_on_batch(ids, targets, np.where(targets < 0, np.nan, 1.0))
        self.assertAlmostEqual(found, expected(log_probs, targets)[1], delta=ATOL)

    @parameterized.parameters("text", "tokens")
    def test_one_hot_targets_are_refused(self, kind):
        model, ids, _, targets = setting(kind)
        model.compile(run_eagerly=True)
        with self.assertRaisesRegex(
            ValueError, r"targets must be ids of shape \[4.*, got \[4.*, 3\]"
        ):
            model.test_on_batch(ids, np.eye(3)[targets])

    def test_no_real_target_is_nothing(self):
        model, ids, _, targets = setting("tokens")
        for loss in (None, keras.losses.SparseCategoricalCrossentropy(from_logits=True)):
            model.compile(loss=loss, metrics=metrics(), run_eagerly=True)
            found = model.test_on_batch(ids, -np.ones_like(targets), return_dict=True)
            self.assertEqual(set(found.values()), {0.0})

    def test_a_metric_without_weights_sees_what_is_ignored(self):
        class Ignored(keras.metrics.Sum):
            def update_state(self, y_true, y_pred):
                del y_pred
                super().update_state(keras.ops.cast(y_true < 0, "float32"))

        model, ids, _, targets = setting("tokens")
        model.compile(metrics=[Ignored(name="ignored")], run_eagerly=True)
        found = model.test_on_batch(ids, targets, return_dict=True)
        self.assertEqual(found["ignored"], (targets < 0).sum())


_ON_REPLICAS = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import helpers
from txl_tf.models.transformer_xl import TransformerXL

ids = helpers.draw_ids(4, 4)
targets = ids.copy()
targets[1:, 1:] = -1  # five real targets on the first replica, two on the second
for strategy in (tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
    with strategy.scope():
        model = helpers.loud(TransformerXL(helpers.tiny_config(num_layers=1)))
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    loss = model.fit(ids, targets, batch_size=4, verbose=0, shuffle=False).history["loss"]
    print(*loss, *np.ravel(tf.convert_to_tensor(model.softmax.biases[0])))
"""


@pytest.mark.slow
class ReplicasTest(absltest.TestCase):
    def test_fit_on_two_replicas_is_fit_on_one(self):
        """Replicas have to be there from the start of a process."""
        paths = f"{helpers.ROOT}{os.pathsep}{helpers.ROOT / 'tests'}"
        done = subprocess.run(
            [sys.executable, "-c", _ON_REPLICAS],
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        one, two = (np.array(line.split(), float) for line in done.stdout.splitlines())
        atol = rounding.of_gradients(CAUSAL)
        np.testing.assert_allclose(two, one, rtol=0, atol=atol)


if __name__ == "__main__":
    absltest.main()
