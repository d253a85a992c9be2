"""Laws of the encoder: padding, both directions, positions, saving; and a layer by hand."""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.configs.model import EncoderConfig
from txl_tf.models import block_stack
from txl_tf.models.encoder import Encoder
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.dropout import DropoutKey

KINDS = {
    "xl": {},
    "clamped": dict(clamp_len=3),
    "absolute": dict(position="absolute"),
    "pre_norm": dict(pre_norm=True, untie_biases=True),
    "topk": dict(attention=("topk(k=3)",)),
    "local": dict(attention=("local(window=2, block=2)",)),
    "mixed": dict(attention=("local(window=3, block=2, dilations=(1, 2))", "dense")),
    "longformer": dict(attention=("longformer(window=2, block=2, max_global_tokens=2)", "dense")),
    "bigbird": dict(attention=("bigbird(block=2, random=1)",)),
    "linformer": dict(position="absolute", attention=("linformer(max_tokens=24, k=3)",)),
    "layerwise": dict(
        position="absolute", attention=("linformer(max_tokens=24, k=3, sharing='layerwise')",)
    ),
    "local absolute": dict(position="absolute", attention=("local(window=2, block=2)",)),
}


def tiny(**changes):
    sizes = dict(vocab_size=11, num_layers=2, d_model=8, num_heads=2, head_dim=4, d_inner=16)
    return EncoderConfig(**(sizes | dict(dropout=0.0) | changes))


def make(kind="xl", **changes):
    return helpers.loud(Encoder(tiny(**KINDS[kind] | changes)))


def read(model, ids, **kwargs):
    """A call in which the first and the fifth token are global, where there are such."""
    if model.config.has_global_tokens:
        kwargs["global_tokens"] = tf.range(tf.shape(ids)[1])[tf.newaxis] % 4 + 0 * ids == 0
    return model(ids, **kwargs)


class EncoderTest(parameterized.TestCase):
    @parameterized.parameters(*((kind, 13) for kind in KINDS), ("xl", 24), ("mixed", 24))
    def test_padding_is_not_seen(self, kind, length):
        model = make(kind)
        ids = helpers.draw_ids(4, length)
        lengths = np.array([length, length - 1, 7, 1], "int32")
        atol = rounding.of_states(model.config, length)
        together = read(model, ids, lengths=lengths)
        for row, real in enumerate(lengths):
            if kind == "bigbird" and real < length:
                continue  # its last block is that of the padded text, which is all that differs
            alone = read(model, ids[row : row + 1, :real])[0]
            np.testing.assert_allclose(together[row, :real], alone, rtol=0, atol=atol)
        changed = np.where(np.arange(length) < lengths[:, np.newaxis], ids, 10 - ids)
        changed = changed.astype("int32")
        again = read(model, changed, lengths=lengths)
        np.testing.assert_allclose(again[2, :7], together[2, :7], rtol=0, atol=atol)
        self.assertGreater(np.abs(read(model, changed)[2, :7] - again[2, :7]).max(), 1e-3)

    @parameterized.parameters(*KINDS)
    def test_both_sides_are_seen(self, kind):
        model, ids = make(kind), helpers.draw_ids(1, 9)
        before = np.array(read(model, ids))
        ids[0, 4] = (ids[0, 4] + 1) % 11
        difference = np.abs(np.array(read(model, ids)) - before).max(axis=-1)[0]
        self.assertGreater(difference[3], 1e-4)
        self.assertGreater(difference[5], 1e-4)

    def test_a_window_ends_on_both_sides(self):
        model, ids = make("local"), helpers.draw_ids(1, 15)
        before = np.array(model(ids))
        ids[0, 7] = (ids[0, 7] + 1) % 11
        difference = np.abs(np.array(model(ids)) - before).max(axis=-1)[0]
        is_other = difference > rounding.of_states(model.config)
        np.testing.assert_array_equal(np.flatnonzero(is_other), np.arange(3, 12))

    @parameterized.parameters("xl", "absolute")
    def test_order_matters(self, kind):
        model, ids = make(kind), np.array([[1, 2, 3, 4]], "int32")
        turned = np.array(model(ids[:, ::-1]))[:, ::-1]
        self.assertGreater(np.abs(turned - model(ids)).max(), 1e-3)

    @parameterized.parameters(
        "clamped", "pre_norm", "mixed", "local absolute", "longformer", "bigbird", "layerwise"
    )
    def test_saved_and_loaded(self, kind):
        model, ids = make(kind), helpers.draw_ids(2, 9)
        path = helpers.temp_dir(self) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path)
        self.assertEqual(again.config, model.config)
        np.testing.assert_array_equal(read(again, ids), read(model, ids))

    @parameterized.product(
        kind=("xl", "local", "absolute", "longformer", "bigbird", "linformer"), jit=(False, True)
    )
    def test_compiled_equals_eager(self, kind, jit):
        model, ids = make(kind), helpers.draw_ids(2, 9)
        lengths = np.array([9, 6], "int32")
        compiled = tf.function(lambda ids, n: read(model, ids, lengths=n), jit_compile=jit)
        found = np.array(compiled(ids, lengths))
        expected = np.array(read(model, ids, lengths=lengths))
        atol = rounding.of_states(model.config)
        np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=atol)
        np.testing.assert_allclose(found[1, :6], expected[1, :6], rtol=0, atol=atol)

    @parameterized.parameters("xl", "local", "absolute", "longformer", "bigbird", "layerwise")
    def test_bfloat16(self, kind):
        exact, ids = make(kind), helpers.draw_ids(2, 12)
        model = Encoder(exact.config, dtype="mixed_bfloat16")
        for weight, value in zip(model.weights, exact.weights, strict=True):
            weight.assign(value)
        rough = tf.function(lambda ids: read(model, ids))(ids)  # where constants are of one dtype
        self.assertEqual(rough.dtype, tf.bfloat16)
        found = tf.cast(rough, tf.float32)
        for expected in (read(model, ids), read(exact, ids)):
            error = np.abs(found - tf.cast(expected, tf.float32)).mean()
            self.assertLess(error, rounding.typical_of_states(model.config, 12))

    @parameterized.parameters(*KINDS)
    def test_every_weight_learns(self, kind):
        model, ids = make(kind, dropout=0.1), helpers.draw_ids(2, 12)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(read(model, ids, training=True) ** 3)
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
            self.assertIsNotNone(gradient, weight.path)
            largest = np.abs(tf.convert_to_tensor(gradient)).max()
            self.assertGreater(largest, 0, weight.path)

    def test_dropout_follows_from_the_key(self):
        model, ids = make(dropout=0.3, attention_dropout=0.2), helpers.draw_ids(2, 8)

        def run(step, rows):
            key = DropoutKey(tf.constant([1, step]), tf.constant(rows))
            return np.array(model(ids[rows], dropout_key=key, training=True))

        atol = rounding.of_states(model.config)  # the batch's size may change the order of sums
        np.testing.assert_allclose(run(3, [0, 1])[1:], run(3, [1]), rtol=0, atol=atol)
        self.assertGreater(np.abs(run(3, [0, 1]) - run(4, [0, 1])).max(), 1e-2)
        np.testing.assert_array_equal(model(ids), make()(ids))

    def test_layers_share_one_mixture(self):
        model, apart = make("layerwise", num_layers=3), make("linformer", num_layers=3)
        size = 3 * 24
        self.assertEqual(apart.count_params() - model.count_params(), (2 * 3 - 1) * size)
        names = [weight.path.partition("/")[2] for weight in model.weights]
        owned = [name for name in names if "mixture" in name]
        self.assertEqual(owned, ["block_0/attention/core/key_mixture"])

    def test_switch_adds_its_loss_only_in_training(self):
        model = make(feed_forward=("switch(experts=2)", "dense"))
        model(helpers.draw_ids(2, 8))
        self.assertEmpty(model.losses)
        model(helpers.draw_ids(2, 8), training=True)
        self.assertLen(model.losses, 1)

    def test_global_tokens_are_passed_on(self):
        ids = helpers.draw_ids(2, 8)
        with mock.patch.object(block_stack, "run", wraps=block_stack.run) as run:
            make("longformer")(ids, global_tokens=ids > 5)
        np.testing.assert_array_equal(run.call_args.kwargs["visibility"].global_tokens, ids > 5)

    def test_global_tokens_that_no_layer_has_are_refused(self):
        message = r"global_tokens must be none for attention dense, which does not .* longformer\("
        with self.assertRaisesRegex(ValueError, message):
            make()(helpers.draw_ids(2, 8), global_tokens=np.ones([2, 8], bool))

    @parameterized.parameters(*KINDS)
    def test_sizes_that_no_trace_knows(self, kind):
        model, signature = make(kind), [tf.TensorSpec([None, None], tf.int32)]
        compiled = tf.function(lambda ids: read(model, ids), input_signature=signature)
        for length in (1, 7, 16):
            ids = helpers.draw_ids(2, length)
            atol = rounding.of_states(model.config)
            np.testing.assert_allclose(compiled(ids), read(model, ids), rtol=0, atol=atol)

    def test_ids_are_checked(self):
        with self.assertRaisesRegex(ValueError, "token_ids must lie in 0..10 .* got 11"):
            make()(np.array([[3, 11]]))

    def test_weights_have_names_of_their_place(self):
        once, again = make("longformer"), make("longformer")
        names, others = (
            [weight.path.partition("/")[2] for weight in model.weights] for model in (once, again)
        )
        self.assertEqual(others, names)
        self.assertLen(set(names), len(names))
        self.assertContainsSubset(["block_0/attention/core/global_key_kernel"], names)


class OracleTest(parameterized.TestCase):
    """One layer against NumPy in float64, score by score."""

    @parameterized.parameters(None, 2)
    def test_a_layer_by_hand(self, clamp_len):
        model = make(num_layers=1, clamp_len=clamp_len)
        ids, lengths = helpers.draw_ids(2, 6), (6, 4)
        found = model(ids, lengths=np.array(lengths, "int32"))
        for row, length in enumerate(lengths):
            expected = encoded(model, ids[row, :length], clamp_len)
            atol = rounding.of_states(model.config)
            np.testing.assert_allclose(found[row, :length], expected, rtol=0, atol=atol)


def encoded(model, ids, clamp_len):
    """The encoder of one post-norm layer with shared biases. [T] -> [T, D] float64."""
    w = {weight.path.partition("/")[2]: np.array(weight, float) for weight in model.weights}
    x = w["embedding/table"][ids] * 8**0.5
    q, k, v = (
        np.einsum("td,dhk->htk", x, w[f"block_0/attention/{name}_kernel"])
        for name in ("query", "key", "value")
    )
    scores = np.zeros([2, len(ids), len(ids)])
    for h, i, j in np.ndindex(scores.shape):
        distance = i - j if clamp_len is None else np.clip(i - j, -clamp_len, clamp_len)
        angles = distance / 10000.0 ** (np.arange(0, 8, 2) / 8)
        sinusoid = np.concatenate([np.sin(angles), np.cos(angles)])
        r = sinusoid @ w["block_0/attention/position_kernel"][:, h]
        content = (q[h, i] + w["biases/content"][h]) @ k[h, j]
        scores[h, i, j] = (content + (q[h, i] + w["biases/position"][h]) @ r) / 4**0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    context = np.einsum("hts,hsk->thk", weights, v)
    x = x + np.einsum("thk,hkd->td", context, w["block_0/attention/output_kernel"])
    x = normed(x, w, "block_0/attention_norm")
    net = {name.rpartition("/")[2]: value for name, value in w.items() if "/feed_forward/" in name}
    inner = np.maximum(x @ net["inner_kernel"] + net["inner_bias"], 0)
    x = x + inner @ net["outer_kernel"] + net["outer_bias"]
    return normed(x, w, "block_0/feed_forward_norm")


def normed(x, w, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / deviation * w[f"{name}/gamma"] + w[f"{name}/beta"]


class EncoderConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(position="shaw"), "position must be one of xl, absolute, got 'shaw'"),
        (dict(d_model=7), "d_model must be even .* got 7"),
        (dict(num_layers=0), "num_layers must be at least 1, got 0"),
        (dict(dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (dict(attention=()), r"attention must not be empty, got \(\)"),
        (dict(attention=("far",)), "attention 'far': unknown kind 'far'"),
        (
            dict(attention=("dense", "linformer(max_tokens=9, k=2)")),
            "position must be absolute for linformer, .* got 'xl'",
        ),
        (dict(clamp_len=0), "clamp_len must be at least 1, got 0"),
    )
    def test_mistakes_are_reported(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            tiny(**changes)

    def test_configs_of_other_models_are_refused(self):
        with self.assertRaisesRegex(ValueError, "be an EncoderConfig, got a TransformerXLConfig"):
            Encoder(helpers.tiny_config())
        with self.assertRaisesRegex(ValueError, "be a TransformerXLConfig, got a EncoderConfig"):
            TransformerXL(tiny())

    def test_token_limit_is_the_lowest_of_the_layers(self):
        kinds = ("linformer(max_tokens=9, k=2)", "local(window=2)", "linformer(max_tokens=5, k=2)")
        for num_layers, expected in ((2, 9), (3, 5)):
            config = tiny(attention=kinds, position="absolute", num_layers=num_layers)
            self.assertEqual(config.token_limit, expected)
        self.assertIsNone(tiny().token_limit)

    def test_it_has_no_memory(self):
        self.assertEqual(tiny().mem_len, 0)
        self.assertFalse(tiny().is_causal)
        with self.assertRaisesRegex(TypeError, "mem_len"):
            tiny(mem_len=4)


if __name__ == "__main__":
    absltest.main()
