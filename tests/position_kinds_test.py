"""Laws of every kind of position; tests/golden_test.py holds them to the originals' numbers."""

import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
from txl_tf import config as configs
from txl_tf.inference.state import KeyValueState
from txl_tf.layers.positions import POSITIONS
from txl_tf.models.transformer_xl import TransformerXL

OPTIONS = {
    "xl": {},
    "shaw": dict(num_positions=6),
    "absolute": dict(mem_len=0),
    "absolute_per_layer": dict(mem_len=0, num_positions=6),
}
REMEMBERING = ("xl", "shaw")


@functools.cache
def make_model(kind, **changes):
    sizes = dict(position=kind, **(OPTIONS[kind] | changes))
    return helpers.loud(TransformerXL(helpers.tiny_config(**sizes)))


class KindsTest(parameterized.TestCase):
    def test_every_kind_is_covered(self):
        self.assertEqual(tuple(POSITIONS), configs.POSITIONS)
        self.assertEqual(tuple(OPTIONS), configs.POSITIONS)

    @parameterized.parameters(*OPTIONS)
    def test_the_future_does_not_leak(self, kind):
        model, ids = make_model(kind), helpers.draw_ids(2, 5)
        before = np.asarray(model(ids)[0])
        for place in range(5):
            changed = ids.copy()
            changed[:, place] = (changed[:, place] + 1) % 11
            after = np.asarray(model(changed)[0])
            np.testing.assert_allclose(after[:, :place], before[:, :place], rtol=0, atol=1e-6)
            self.assertGreater(np.abs(after[:, place] - before[:, place]).max(), 1e-3)

    @parameterized.parameters(*OPTIONS)
    def test_places_matter(self, kind):
        model = make_model(kind)
        scores, _ = model(np.array([[3, 5, 7, 1], [5, 3, 7, 1]], "int32"))
        self.assertGreater(np.abs(scores[0, -1] - scores[1, -1]).max(), 1e-3)

    @parameterized.parameters(*OPTIONS)
    def test_padding_is_not_seen(self, kind):
        model, ids = make_model(kind), helpers.draw_ids(2, 5)
        lengths = np.array([5, 3], "int32")
        padded, _ = model(ids, lengths=lengths)
        alone, _ = model(ids[1:, :3])
        np.testing.assert_allclose(padded[1:, :3], alone, rtol=0, atol=1e-5)

    @parameterized.parameters(*REMEMBERING)
    def test_segments_equal_one_pass(self, kind):
        model, ids = make_model(kind, mem_len=12), helpers.draw_ids(2, 12)
        whole, _ = model(ids)
        mems, parts = None, []
        for start in range(0, 12, 4):
            scores, mems = model(ids[:, start : start + 4], mems)
            parts.append(scores)
        np.testing.assert_allclose(tf.concat(parts, axis=1), whole, rtol=0, atol=1e-5)

    @parameterized.parameters(*OPTIONS)
    def test_keys_and_values_give_the_same(self, kind):
        model, ids = make_model(kind), helpers.draw_ids(2, 4)
        state = KeyValueState(model, segment_len=2)
        carried, mems = state.initial(2), None
        for lengths in (np.array([4, 3], "int32"), np.array([2, 4], "int32")):
            found, carried = state.nll(ids, ids[:, ::-1], carried, lengths)
            expected, mems = model.nll(ids, ids[:, ::-1], mems, lengths=lengths)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        state.refresh()

    @parameterized.parameters(*OPTIONS)
    def test_saved_and_loaded(self, kind):
        model, ids = make_model(kind), helpers.draw_ids(2, 4)
        path = helpers.temp_dir(self) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path)
        self.assertEqual(again.config, model.config)
        np.testing.assert_array_equal(again(ids)[0], model(ids)[0])

    @parameterized.parameters(*OPTIONS)
    def test_compiled_equals_eager(self, kind):
        model, ids = make_model(kind), helpers.draw_ids(2, 4)
        compiled = tf.function(lambda ids: model(ids)[0], jit_compile=True)
        np.testing.assert_allclose(compiled(ids), model(ids)[0], rtol=0, atol=1e-5)

    @parameterized.parameters(*OPTIONS)
    def test_bfloat16(self, kind):
        exact = make_model(kind)
        model = TransformerXL(exact.config, dtype="mixed_bfloat16")
        for weight, value in zip(model.variables, exact.variables, strict=True):
            weight.assign(value)
        ids = helpers.draw_ids(2, 4)
        expected = np.asarray(exact(ids)[0])
        self.assertLess(np.abs(model(ids)[0] - expected).mean(), 0.1 * np.abs(expected).mean())

    @parameterized.parameters(*OPTIONS)
    def test_every_weight_learns(self, kind):
        model, ids = make_model(kind, dropout=0.1), helpers.draw_ids(2, 4)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.nll(ids, ids[:, ::-1], training=True)[0])
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
            self.assertIsNotNone(gradient, weight.path)
            self.assertGreater(np.abs(tf.convert_to_tensor(gradient)).max(), 0, weight.path)

    def test_beyond_the_table_the_first_row_serves(self):
        ids = helpers.draw_ids(1, 5)
        for kind in ("shaw", "absolute_per_layer"):
            small, large = make_model(kind, num_positions=2), make_model(kind, num_positions=5)
            for weight, source in zip(large.variables, small.variables, strict=True):
                value = np.asarray(source.numpy())
                if value.shape != weight.shape:  # three more rows like the first
                    value = np.concatenate([np.repeat(value[:1], 3, axis=0), value])
                weight.assign(value)
            np.testing.assert_allclose(small(ids)[0], large(ids)[0], rtol=0, atol=1e-6)


class ConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(position="absolute"), "mem_len must be 0 for position absolute: what is .* got 4"),
        (dict(position="absolute_per_layer", num_positions=6), "mem_len must be 0 .* got 4"),
        (dict(position="shaw"), "num_positions must be given for position shaw, got none"),
        (dict(num_positions=6), "num_positions must be none for position xl, .* got 6"),
        (dict(position="shaw", num_positions=0), "num_positions must be at least 1, got 0"),
    )
    def test_refusals(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(**changes)

    def test_odd_widths_where_there_are_no_sinusoids(self):
        config = helpers.tiny_config(position="shaw", num_positions=6, d_model=7)
        scores, _ = TransformerXL(config)(helpers.draw_ids(1, 3))
        self.assertEqual(scores.shape, (1, 3, 11))

    def test_memory_is_not_given_to_absolute_places_later(self):
        with self.assertRaisesRegex(ValueError, "mem_len must be 0 for position absolute"):
            make_model("absolute").with_lengths(mem_len=4)


if __name__ == "__main__":
    absltest.main()
