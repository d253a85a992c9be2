"""Properties of the Star-Transformer: padding, the ring, saving, compilation, dropout."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.configs.model import EncoderConfig, StarTransformerConfig
from txl_tf.models.star_transformer import StarTransformer
from txl_tf.ops.dropout import DropoutKey

KINDS = {
    "cyclic": {},
    "open": dict(cyclic=False),
    "no positions": dict(num_positions=None),
    "other widths": dict(num_heads=3, head_dim=5),
}


def tiny(**changes):
    sizes = dict(vocab_size=11, num_layers=2, d_model=8, num_heads=2, head_dim=4, num_positions=24)
    return StarTransformerConfig(**(sizes | dict(dropout=0.0) | changes))


def make(kind="cyclic", **changes):
    return helpers.loud(StarTransformer(tiny(**KINDS[kind] | changes)))


def tolerance(model, num_tokens=16):
    """Tolerance of states: sums of projections, of five or T keys, and of both products.

    Weights of standard deviation 0.5 multiply a state's size by up to 0.5 sqrt(D) at each of two
    projections of a layer.
    """
    config = model.config
    width = config.num_heads * config.head_dim
    terms = 3 * config.d_model + width + 2 * config.head_dim + 2 * (num_tokens + 6)
    growth = (0.5 * config.d_model**0.5) * (0.5 * width**0.5)
    scale = config.d_model**0.5 * growth**config.num_layers
    return rounding.tolerance(config.num_layers * terms, scale=scale)


def assert_close(found, expected, atol):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


class StarTransformerTest(parameterized.TestCase):
    @parameterized.parameters("cyclic", "no positions", "other widths")
    def test_padding_has_no_effect(self, kind):
        model, ids = make(kind), helpers.draw_ids(4, 13)
        lengths = np.array([13, 12, 7, 1], "int32")
        states, relay = model(ids, lengths=lengths)
        for row, real in enumerate(lengths):
            alone = model(ids[row : row + 1, :real])
            found = states[row : row + 1, :real], relay[row : row + 1]
            assert_close(found, alone, tolerance(model))
            np.testing.assert_array_equal(states[row, real:], 0.0)

    def test_the_published_code_sees_padding(self):
        model, ids = make("open"), helpers.draw_ids(1, 9)
        states, relay = model(ids, lengths=np.array([6]))
        alone, relay_alone = model(ids[:, :6])
        self.assertGreater(np.abs(states[:, :6] - alone).max(), 1e-3)
        self.assertGreater(np.abs(relay - relay_alone).max(), 1e-3)
        np.testing.assert_array_equal(states[:, 6:], 0.0)

    def test_the_ring_has_no_beginning(self):
        model, ids = make("no positions"), helpers.draw_ids(2, 9)
        states, relay = model(ids)
        for shift in (1, 4):
            turned = model(np.roll(ids, shift, axis=1))
            assert_close(turned, (np.roll(states, shift, axis=1), relay), tolerance(model))
        opened = make("no positions", cyclic=False)
        self.assertGreater(np.abs(opened(np.roll(ids, 1, axis=1))[1] - opened(ids)[1]).max(), 1e-3)

    def test_only_positions_tell_left_from_right(self):
        ids = helpers.draw_ids(2, 9)
        for kind, differs in (("no positions", False), ("cyclic", True)):
            model = make(kind)
            difference = np.abs(model(ids[:, ::-1])[1] - model(ids)[1]).max()
            self.assertEqual(difference > tolerance(model), differs)

    @parameterized.parameters("cyclic", "open")
    def test_a_layer_reaches_neighbours_and_then_all(self, kind):
        ids = helpers.draw_ids(1, 9)
        changed = ids.copy()
        changed[0, 4] = (ids[0, 4] + 1) % 11
        for num_layers in (1, 2):
            model = make(kind, num_layers=num_layers)
            self.assertGreater(np.abs(model(changed)[0] - model(ids)[0]).max(axis=-1).min(), 1e-5)

    @parameterized.parameters(*KINDS)
    def test_saved_and_loaded(self, kind):
        model, ids = make(kind), helpers.draw_ids(2, 9)
        path = helpers.temp_dir(self) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path)
        self.assertEqual(again.config, model.config)
        for one, other in zip(again(ids), model(ids), strict=True):
            np.testing.assert_array_equal(one, other)

    @parameterized.product(kind=("cyclic", "open"), jit=(False, True))
    def test_compiled_equals_eager(self, kind, jit):
        model, ids = make(kind), helpers.draw_ids(3, 9)
        lengths = np.array([9, 6, 1], "int32")
        compiled = tf.function(lambda ids, n: model(ids, lengths=n), jit_compile=jit)
        assert_close(compiled(ids, lengths), model(ids, lengths=lengths), tolerance(model))

    @parameterized.parameters("cyclic", "open")
    def test_dynamic_shapes(self, kind):
        model, signature = make(kind), [tf.TensorSpec([None, None], tf.int32)]
        compiled = tf.function(lambda ids: model(ids), input_signature=signature)
        for length in (1, 2, 16):
            ids = helpers.draw_ids(2, length)
            assert_close(compiled(ids), model(ids), tolerance(model))

    def test_bfloat16(self):
        exact, ids = make(), helpers.draw_ids(2, 12)
        model = StarTransformer(exact.config, dtype="mixed_bfloat16")
        for weight, value in zip(model.weights, exact.weights, strict=True):
            weight.assign(value)
        for rough, expected in zip(tf.function(model)(ids), exact(ids), strict=True):
            self.assertEqual(rough.dtype, tf.bfloat16)
            error = np.abs(tf.cast(rough, tf.float32) - expected).mean()
            scale = np.abs(expected).mean()
            self.assertLess(error, rounding.typical(2 * (4 * 8 + 2 * 4 + 2 * 5), scale=scale))

    @parameterized.parameters(*KINDS)
    def test_every_weight_learns(self, kind):
        model, ids = make(kind, dropout=0.1), helpers.draw_ids(2, 12)
        with tf.GradientTape() as tape:
            states, relay = model(ids, training=True)
            loss = tf.reduce_mean(states**3) + tf.reduce_mean(relay**3)
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
            self.assertIsNotNone(gradient, weight.path)
            if "/key/bias" not in weight.path:  # softmax ignores what all keys share
                largest = np.abs(tf.convert_to_tensor(gradient)).max()
                self.assertGreater(largest, 0, weight.path)

    def test_dropout_is_a_function_of_the_key(self):
        model, ids = make(dropout=0.3), helpers.draw_ids(2, 8)

        def run(step, rows):
            key = DropoutKey(tf.constant([1, step]), tf.constant(rows))
            return np.array(model(ids[rows], dropout_key=key, training=True)[0])

        np.testing.assert_allclose(run(3, [0, 1])[1:], run(3, [1]), rtol=0, atol=tolerance(model))
        self.assertGreater(np.abs(run(3, [0, 1]) - run(4, [0, 1])).max(), 1e-2)
        np.testing.assert_array_equal(model(ids)[0], make()(ids)[0])

    def test_inputs_that_are_refused(self):
        with self.assertRaisesRegex(ValueError, "token_ids must lie in 0..10 .* got 11"):
            make()(np.array([[3, 11]]))
        with self.assertRaisesRegex(ValueError, "token_ids must have at most 24 columns, got 25"):
            make()(helpers.draw_ids(1, 25))
        make("no positions")(helpers.draw_ids(1, 25))

    def test_weights_are_named_by_their_site(self):
        names = [weight.path.partition("/")[2] for weight in make().weights]
        self.assertLen(set(names), len(names))
        expected = ["positions", "layer_0/norm/gamma", "layer_1/star/output/bias"]
        self.assertContainsSubset(expected, names)


class ConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(num_layers=0), "num_layers must be at least 1, got 0"),
        (dict(num_positions=0), "num_positions must be at least 1, got 0"),
        (dict(dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (dict(init_std=-1.0), "init_std must be at least 0, got -1.0"),
        (dict(cyclic=1), "cyclic must be"),
    )
    def test_mistakes_are_reported(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            tiny(**changes)

    def test_a_head_is_a_share_of_the_width(self):
        self.assertEqual(tiny(head_dim=None, num_heads=3).head_dim, 2)

    def test_other_configs_are_refused(self):
        with self.assertRaisesRegex(ValueError, "StarTransformerConfig, got a EncoderConfig"):
            StarTransformer(EncoderConfig(vocab_size=11))


if __name__ == "__main__":
    absltest.main()
