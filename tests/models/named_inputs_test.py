"""Lengths in `fit`, `predict` and saved graphs: padding of any length changes nothing."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.configs.model import EncoderConfig
from txl_tf.models.encoder import Encoder
from txl_tf.models.memory import Memory
from txl_tf.models.sequence_classifier import SequenceClassifier, TokenClassifier
from txl_tf.models.transformer_xl import TransformerXL

ENCODER = EncoderConfig(
    vocab_size=11, num_layers=1, d_model=8, num_heads=2, head_dim=4, d_inner=16, dropout=0.0
)
CAUSAL = helpers.tiny_config(num_layers=1)
ATOL = rounding.of_scores(CAUSAL)  # of all models' outputs
MAKERS = {
    "text": lambda: SequenceClassifier(ENCODER, 3),
    "causal text": lambda: SequenceClassifier(CAUSAL, 3, segment_len=4),
    "tokens": lambda: TokenClassifier(ENCODER, 3),
    "encoder": lambda: Encoder(ENCODER),
}
LENGTHS = np.array([6, 3, 1])
SPEC = {
    "token_ids": keras.InputSpec(shape=(None, None), dtype="int32"),
    "lengths": keras.InputSpec(shape=(None,), dtype="int32"),
}


def padded(num_tokens, pad=7):
    """The same three texts, padded to `num_tokens`; int64 lengths, as NumPy has them."""
    ids = np.full([3, num_tokens], pad, "int32")
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = helpers.draw_ids(length, seed=row)
    return {"token_ids": ids, "lengths": LENGTHS}


def real(outputs):
    """What the outputs of a model say of texts, or of real tokens."""
    if len(outputs) == 3 and outputs.ndim == 2:
        return outputs
    return np.concatenate([outputs[row, :length] for row, length in enumerate(LENGTHS)])


class PaddingTest(parameterized.TestCase):
    @parameterized.parameters(*MAKERS)
    def test_predict(self, kind):
        model = helpers.loud(MAKERS[kind]())
        model.compile(run_eagerly=True)
        found = [real(model.predict(padded(n), verbose=0)) for n in (6, 9, 16)]
        alone = [model(padded(6)["token_ids"][row : row + 1, :n]) for row, n in enumerate(LENGTHS)]
        expected = np.concatenate([np.reshape(x, [-1, x.shape[-1]]) for x in alone])
        for outputs in found:
            np.testing.assert_allclose(outputs, expected, rtol=0, atol=ATOL)
        without = real(model.predict(padded(9)["token_ids"], verbose=0))
        self.assertGreater(np.abs(without - expected).max(), 1e-2)

    @parameterized.parameters("text", "tokens")
    def test_fit_and_evaluate(self, kind):
        """Labels of tokens are padded with a label: what lies beyond lengths is ignored."""
        found = []
        for num_tokens in (6, 11):
            model = helpers.loud(MAKERS[kind]())
            model.compile("sgd", metrics=["accuracy"], run_eagerly=True)
            inputs = padded(num_tokens)
            labels = LENGTHS % 3 if kind == "text" else inputs["token_ids"] % 3
            model.fit(inputs, labels, verbose=0)
            found.append([*model.evaluate(inputs, labels, verbose=0), *model.get_weights()])
            nats = model.nll(inputs["token_ids"], labels, lengths=LENGTHS)
            count = 3 if kind == "text" else LENGTHS.sum()
            self.assertAlmostEqual(found[-1][0], np.sum(nats) / count, delta=ATOL)
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=ATOL)

    def test_other_arguments_by_name(self):
        config = EncoderConfig(
            vocab_size=11,
            num_layers=1,
            d_model=8,
            num_heads=2,
            head_dim=4,
            d_inner=16,
            attention=("longformer(window=2, max_global_tokens=1)",),
        )
        model, inputs = helpers.loud(SequenceClassifier(config, 3)), padded(6)
        marks = inputs["token_ids"] == inputs["token_ids"][:, :1]
        found = model.predict(inputs | {"global_tokens": marks}, verbose=0)
        expected = model(**inputs, global_tokens=marks)
        np.testing.assert_allclose(found, expected, rtol=0, atol=ATOL)

    def test_export(self):
        model, folder = helpers.loud(MAKERS["text"]()), str(helpers.temp_dir(self) / "export")
        model.export(folder, input_signature=[SPEC], verbose=False)
        inputs = padded(9) | {"lengths": LENGTHS.astype("int32")}
        loaded = tf.saved_model.load(folder)
        np.testing.assert_allclose(loaded.serve(inputs), model(padded(6)), rtol=0, atol=ATOL)

    def test_a_language_model(self):
        model = helpers.loud(TransformerXL(CAUSAL))
        scores, mems = model.predict(padded(9), verbose=0)
        expected, expected_mems = model(**padded(6))
        np.testing.assert_allclose(real(scores), real(expected.numpy()), rtol=0, atol=ATOL)
        np.testing.assert_array_equal(mems.length, expected_mems.length)

    def test_mistakes_are_reported(self):
        model, inputs = MAKERS["text"](), padded(6)
        names = "token_ids, lengths, global_tokens, dropout_key, training"
        ids, lengths = inputs["token_ids"], inputs["lengths"]
        with self.assertRaisesRegex(ValueError, f"no names but {names}, got token_ids, length\\b"):
            model({"token_ids": ids, "length": lengths})
        with self.assertRaisesRegex(ValueError, "inputs must have token_ids, .* got lengths"):
            model({"lengths": lengths})
        with self.assertRaisesRegex(ValueError, rf"dict of arguments \({names}\), got a tuple"):
            model((ids, lengths))


class FunctionalTest(parameterized.TestCase):
    def saved_and_loaded(self, model):
        path = helpers.temp_dir(self) / "model.keras"
        model.save(path)
        return keras.models.load_model(path)

    def test_lengths(self):
        model = helpers.loud(MAKERS["text"]())
        inputs = {name: keras.Input(spec.shape[1:], dtype="int32") for name, spec in SPEC.items()}
        again = self.saved_and_loaded(keras.Model(inputs, model(inputs)))
        found = again.predict(padded(9), verbose=0)
        np.testing.assert_allclose(found, model(padded(6)), rtol=0, atol=ATOL)

    @parameterized.parameters(False, True)
    def test_memory(self, by_name):
        model = helpers.loud(TransformerXL(CAUSAL))
        ids = keras.Input([5], dtype="int32")
        mems = Memory((keras.Input([4, 8]),), keras.Input([], dtype="int32"))
        outputs = model(ids, mems=mems) if by_name else model(ids, mems)
        again = self.saved_and_loaded(keras.Model([ids, mems], outputs))
        first, second = (tf.constant(helpers.draw_ids(3, 5, seed=seed)) for seed in (0, 1))
        _, remembered = model(first)
        expected, expected_mems = model(second, remembered)
        scores, (states, length) = again([second, [list(remembered.states), remembered.length]])
        np.testing.assert_array_equal(scores, expected)
        np.testing.assert_array_equal(states[0], expected_mems.states[0])
        forgotten = model.reset([states, length], [True, False, False])  # lists, too
        np.testing.assert_array_equal(forgotten.length, [0, 4, 4])


if __name__ == "__main__":
    absltest.main()
