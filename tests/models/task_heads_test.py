"""Tests of task heads: encoders and causal backbones, padding, segments, saving, training."""

import functools
import re

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.configs.model import EncoderConfig, StarTransformerConfig
from txl_tf.models.masked_language_model import MaskedLanguageModel
from txl_tf.models.sequence_classifier import SequenceClassifier, TokenClassifier
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.dropout import DropoutKey

SEGMENT = 4


def encoder(**changes):
    sizes = dict(vocab_size=12, num_layers=2, d_model=8, num_heads=2, head_dim=4, d_inner=16)
    return EncoderConfig(**(sizes | dict(dropout=0.0) | changes))


def causal(**changes):
    return helpers.tiny_config(**(dict(vocab_size=12) | changes))


def star(**changes):
    sizes = dict(vocab_size=12, num_layers=2, d_model=8, num_heads=2, head_dim=4, num_positions=16)
    return StarTransformerConfig(**(sizes | dict(dropout=0.0) | changes))


def xlnet(**changes):
    return helpers.tiny_xlnet(**(dict(vocab_size=12) | changes))


MAKERS = {
    "encoder mean": lambda **c: SequenceClassifier(encoder(**c), 3),
    "encoder first": lambda **c: SequenceClassifier(encoder(**c), 3, "first"),
    "causal max": lambda **c: SequenceClassifier(causal(**c), 3, "max", segment_len=SEGMENT),
    "causal last": lambda **c: SequenceClassifier(causal(**c), 3, "last", segment_len=SEGMENT),
    "tokens": lambda **c: TokenClassifier(encoder(**c), 3),
    "causal tokens": lambda **c: TokenClassifier(causal(**c), 3, segment_len=SEGMENT),
    "star max": lambda **c: SequenceClassifier(star(**c), 3, "max"),
    "star tokens": lambda **c: TokenClassifier(star(**c), 3),
    "star masked": lambda **c: MaskedLanguageModel(star(**c)),
    "xlnet mean": lambda **c: SequenceClassifier(xlnet(**c), 3),
    "xlnet tokens": lambda **c: TokenClassifier(xlnet(**c), 3),
    "masked": lambda **c: MaskedLanguageModel(encoder(**c)),
    "masked linformer": lambda **c: MaskedLanguageModel(
        encoder(position="absolute", attention=("linformer(max_tokens=16, k=3)",), **c)
    ),
}
OF_TEXTS = ("encoder mean", "encoder first", "causal max", "causal last", "star max", "xlnet mean")


def make(kind, **changes):
    return helpers.loud(MAKERS[kind](**changes))


def targets_of(kind, ids):
    """Any targets that fit."""
    return ids[:, 0] % 3 if kind in OF_TEXTS else ids % 3


def atol_of(model):
    """Returns the tolerance of scores and losses: a head's sums are those of a language model."""
    return rounding.of_scores(model.backbone.config)


class HeadsTest(parameterized.TestCase):
    @parameterized.parameters(*MAKERS)
    def test_padding_changes_nothing(self, kind):
        model, ids = make(kind), helpers.draw_ids(3, 11)
        lengths = np.array([11, 6, 1], "int32")
        together = model(ids, lengths=lengths)
        for row, real in enumerate(lengths):
            alone = model(ids[row : row + 1, :real])[0]
            part = slice(None) if kind in OF_TEXTS else slice(real)
            np.testing.assert_allclose(together[row][part], alone, rtol=0, atol=atol_of(model))

    @parameterized.parameters(*MAKERS)
    def test_a_weight_is_of_a_row_or_of_a_target(self, kind):
        model, ids = make(kind), helpers.draw_ids(3, 3)
        targets = targets_of(kind, ids)
        scores, nats = model(ids), np.array(model.nll(ids, targets))
        of_rows = np.array([1, 0, 2])
        found = model.compute_loss(ids, targets, scores, of_rows)
        whole = np.broadcast_to(of_rows.reshape([3, *[1] * (nats.ndim - 1)]), nats.shape)
        expected = (nats * whole).sum() / whole.sum()
        self.assertAlmostEqual(float(found), expected, delta=atol_of(model))
        again = model.compute_loss(ids, targets, scores, whole)
        self.assertAlmostEqual(float(found), float(again), delta=atol_of(model))

    @parameterized.parameters(*MAKERS)
    def test_saved_and_loaded(self, kind):
        model, ids = make(kind), helpers.draw_ids(2, 9)
        path = helpers.temp_dir(self) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path)
        self.assertEqual(again.config, model.config)
        np.testing.assert_array_equal(again(ids), model(ids))

    @parameterized.product(kind=("encoder mean", "causal max", "masked"), jit=(False, True))
    def test_compiled_equals_eager(self, kind, jit):
        model, ids = make(kind), helpers.draw_ids(2, 8)
        compiled = tf.function(lambda ids: model(ids), jit_compile=jit)
        np.testing.assert_allclose(compiled(ids), model(ids), rtol=0, atol=atol_of(model))

    @parameterized.parameters("encoder mean", "causal max", "masked")
    def test_scores_are_float32_under_bfloat16(self, kind):
        exact, ids = make(kind), helpers.draw_ids(2, 8)
        configuration = exact.get_config() | {"dtype": "mixed_bfloat16"}
        model = type(exact).from_config(configuration)
        for weight, value in zip(model.weights, exact.weights, strict=True):
            weight.assign(value)
        found, expected = model(ids), np.array(exact(ids))
        self.assertEqual(found.dtype, tf.float32)
        error = np.abs(found - expected).mean()
        self.assertLess(error, rounding.typical_of_scores(model.backbone.config))

    @parameterized.parameters(*MAKERS)
    def test_every_weight_learns(self, kind):
        model, ids = make(kind, dropout=0.1), helpers.draw_ids(2, 12)
        with tf.GradientTape() as tape:
            nats = model.nll(ids, targets_of(kind, ids), training=True)
            self.assertEqual(nats.dtype, tf.float32)
            loss = tf.reduce_mean(nats)
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
            self.assertIsNotNone(gradient, weight.path)
            self.assertGreater(np.abs(tf.convert_to_tensor(gradient)).max(), 0, weight.path)

    @parameterized.parameters("causal max", "causal last")
    def test_segments_are_read_with_their_memory(self, kind):
        ids = helpers.draw_ids(2, 12)
        whole = SequenceClassifier(
            causal(mem_len=12), 3, kind.partition(" ")[2], segment_len=12, name="whole"
        )
        cut = make(kind, mem_len=12)
        np.testing.assert_allclose(helpers.loud(whole)(ids), cut(ids), rtol=0, atol=atol_of(cut))
        self.assertGreater(np.abs(cut(ids) - make(kind, mem_len=2)(ids)).max(), 1e-4)

    def test_the_gradient_reaches_every_segment(self):
        model = helpers.loud(SequenceClassifier(causal(), 3, "mean", segment_len=SEGMENT))
        ids = np.arange(12, dtype="int32")[np.newaxis]
        table = model.backbone.embedding.tables[0]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids) ** 2)
        gradient = tape.gradient(loss, table.value)
        self.assertGreater(np.abs(gradient).max(axis=1).min(), 0)

    def test_nll(self):
        model, ids = make("tokens"), helpers.draw_ids(2, 6)
        targets = ids % 3
        targets[0, 2] = -1
        expected = keras.losses.sparse_categorical_crossentropy(
            np.maximum(targets, 0), model(ids), from_logits=True
        )
        expected = np.where(targets < 0, 0.0, expected)
        np.testing.assert_allclose(model.nll(ids, targets), expected, rtol=0, atol=atol_of(model))
        with self.assertRaisesRegex(ValueError, "targets must lie in 0..2 .* got 3"):
            model.nll(ids, targets + 1)

    @parameterized.parameters(("encoder mean", 1), ("causal max", 3))
    def test_the_auxiliary_loss_is_the_mean_over_segments(self, kind, segments):
        model = make(kind, feed_forward=("switch(experts=2)",))
        ids = helpers.draw_ids(2, 12)
        self.assertEqual(float(model.auxiliary_loss()), 0.0)
        model(ids, training=True)
        self.assertLen(model.losses, 2 * segments)
        expected = np.sum(model.losses) / segments
        rtol = rounding.tolerance(2 * segments + 1)
        np.testing.assert_allclose(model.auxiliary_loss(), expected, rtol=rtol)

    def test_dropout_differs_from_segment_to_segment_and_follows_from_the_key(self):
        model = make("causal tokens", dropout=0.5, mem_len=0)
        key = DropoutKey(tf.constant([1, 2]), tf.constant([0]))
        ids = np.tile([[1, 2, 3, 4]], [1, 2]).astype("int32")
        found = np.array(model(ids, dropout_key=key, training=True))
        again = model(ids, dropout_key=key, training=True)
        np.testing.assert_array_equal(found, again)
        self.assertGreater(np.abs(found[0, :4] - found[0, 4:]).max(), 1e-2)

    @parameterized.parameters("encoder mean", "causal max", "tokens")
    def test_fit_learns(self, kind):
        keras.utils.set_random_seed(1)
        model, ids = MAKERS[kind](), helpers.draw_ids(32, 8)
        targets = (ids.max(axis=1) > 9).astype("int32") if kind in OF_TEXTS else ids % 3
        model.compile(optimizer=keras.optimizers.Adam(1e-2), jit_compile=False)
        history = model.fit(ids, targets, batch_size=8, epochs=8, verbose=0).history["loss"]
        self.assertLess(history[-1], 0.8 * history[0])

    def test_a_masked_model_learns_what_is_hidden(self):
        keras.utils.set_random_seed(1)
        model = MAKERS["masked"]()
        ids = np.tile(np.arange(11, dtype="int32"), [16, 2])
        inputs, targets = model.mask(ids, DropoutKey(tf.constant([1, 2]), tf.range(16)))
        self.assertEqual(np.max(inputs), model.mask_id)
        optimizer = keras.optimizers.Adam(1e-2)
        num_hidden = np.sum(targets >= 0)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model.nll(inputs, targets)) / num_hidden
            optimizer.apply(
                tape.gradient(loss, model.trainable_variables), model.trainable_variables
            )
            return loss

        losses = [float(step()) for _ in range(60)]
        self.assertLess(losses[-1], 0.5 * losses[0])


class RefusalsTest(parameterized.TestCase):
    def check(self, message, make_it):
        with self.assertRaisesRegex(ValueError, message):
            make_it()

    def test_mistakes_are_reported(self):
        self.check(
            "pooling must be mean, max or last for a causal backbone, .* got 'first'",
            lambda: SequenceClassifier(causal(), 2, "first", segment_len=4),
        )
        self.check(
            "pooling must be one of mean, max, first, last, got 'sum'",
            lambda: SequenceClassifier(encoder(), 2, "sum"),
        )
        for kind in (SequenceClassifier, TokenClassifier):
            for number in (1, 0, "2", 2.0, None):
                told = f"num_labels must be a whole number of at least 2, got {number!r}"
                self.check(re.escape(told), functools.partial(kind, encoder(), number))
            wrong = functools.partial(kind, {"d_model": 8}, 2)
            self.check("config must be a .*Config, got {'d_model': 8}", wrong)
        self.check(
            "segment_len must be none for an encoder, .* got 4",
            lambda: SequenceClassifier(encoder(), 2, segment_len=4),
        )
        self.check(
            "bidirectional must be true for an XLNet with a head, got False",
            lambda: SequenceClassifier(xlnet(bidirectional=False), 2),
        )
        self.check(
            "segment_len must be at least 1 for a causal backbone, .* got None",
            lambda: SequenceClassifier(causal(), 2),
        )
        self.check(
            "config must be an EncoderConfig, .* got a TransformerXLConfig",
            lambda: MaskedLanguageModel(causal()),
        )
        ids = helpers.draw_ids(2, 4)
        self.check(
            "global_tokens must be none for a causal backbone",
            lambda: make("causal max")(ids, global_tokens=ids > 3),
        )
        self.check("token_ids must lie in 0..11", lambda: make("encoder mean")(ids + 9))

    @parameterized.parameters("encoder mean", "causal tokens", "masked", "language model")
    def test_shapes_that_do_not_fit_are_reported(self, kind):
        model = TransformerXL(causal()) if kind == "language model" else make(kind)
        ids = helpers.draw_ids(3, 4)
        rule = "token_ids must be dense and of shape .B, T., T at least 1, got"
        self.check(rf"{rule} \[4\]", lambda: model(ids[0]))
        self.check(rf"{rule} \[3, 0\]", lambda: model(ids[:, :0]))
        self.check(f"{rule} .RaggedTensor", lambda: model(tf.RaggedTensor.from_tensor(ids)))
        lengths = np.array([4, 2, 1])
        for wrong in (lengths[:, np.newaxis], lengths[:2]):
            self.check(
                r"lengths must be of shape \[3\], got", lambda w=wrong: model(ids, lengths=w)
            )
        if kind != "language model":
            self.check(
                r"global_tokens must be of shape \[3, 4\], got \[3, 3\]",
                lambda: model(ids, global_tokens=ids[:, 1:] > 3),
            )


if __name__ == "__main__":
    absltest.main()
