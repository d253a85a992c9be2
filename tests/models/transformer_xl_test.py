"""The laws of the model: memory, causality, spans, padding, documents, saving."""

import subprocess
import sys

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.models.memory import reorder
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.dropout import DropoutKey


def make(seed=0, **changes):
    return helpers.loud(TransformerXL(helpers.tiny_config(**changes)), seed)


def read(model, ids, cuts=None, mems=None, **kwargs):
    """Scores of `ids` read in segments of the lengths `cuts`, and the last memory."""
    parts, start = [], 0
    for length in cuts or [ids.shape[1]]:
        scores, mems = model(ids[:, start : start + length], mems, **kwargs)
        parts.append(np.array(scores))
        start += length
    return np.concatenate(parts, axis=1), mems


ADAPTIVE = dict(cutoffs=(4, 7), div_val=2, tie_projections=(False, True))
KINDS = dict(
    plain={},
    untied=dict(untie_biases=True, d_embed=6, tie_output_projection=False),
    pre_norm=dict(pre_norm=True),
    adaptive=ADAPTIVE,
    narrow=dict(d_embed=6, head_dim=3),
)


class SegmentsTest(parameterized.TestCase):
    @parameterized.product(cuts=((4, 4, 4), (5, 7), (1,) * 12), kind=tuple(KINDS))
    def test_segments_with_memory_equal_one_pass(self, cuts, kind):
        model = make(mem_len=12, **KINDS[kind])
        ids = helpers.draw_ids(2, 12)
        whole, _ = read(model, ids)
        atol = rounding.of_scores(model.config, 12)
        np.testing.assert_allclose(read(model, ids, cuts)[0], whole, rtol=0, atol=atol)

    def test_a_short_memory_forgets(self):
        ids = helpers.draw_ids(2, 12)
        long, short = make(mem_len=12), make(mem_len=4)
        difference = read(long, ids)[0][:, -1] - read(short, ids, (4, 4, 4))[0][:, -1]
        self.assertGreater(np.abs(difference).max(), 1e-3)

    @parameterized.parameters(False, True)
    def test_no_memory_is_initial_memory(self, zeros):
        model = make(attend_to_initial_zeros=zeros)
        ids = helpers.draw_ids(2, 4)
        without, after = read(model, ids)
        initial, after_initial = read(model, ids, mems=model.initial_mems(2))
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(without, initial, rtol=0, atol=atol)
        np.testing.assert_array_equal(after.length, after_initial.length)
        for a, b in zip(after.states, after_initial.states, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=atol)

    def test_zeros_that_count_take_attention(self):
        ids = helpers.draw_ids(2, 4)
        masked, counted = make(), make(attend_to_initial_zeros=True)
        self.assertGreater(np.abs(read(masked, ids)[0] - read(counted, ids)[0]).max(), 1e-3)

    @parameterized.parameters((5, 3), (5, 4), (5, 2), (2, 3), (0, 3))
    def test_lowest_memory_holds_the_scaled_embeddings(self, mem_len, step):
        model = make(mem_len=mem_len)
        ids = np.arange(1, 1 + 2 * step)[np.newaxis].astype("int32")
        table = np.array(model.embedding.tables[0]) * 8**0.5
        mems = None
        for count in (step, 2 * step):
            _, mems = model(ids[:, count - step : count], mems)
            kept = min(mem_len, count)
            self.assertEqual(mems.states[0].shape, (1, mem_len, 8))
            np.testing.assert_array_equal(mems.length, [kept])
            newest = np.array(mems.states[0])[0, mem_len - kept :]
            rtol = rounding.tolerance(2)  # a root and a product
            np.testing.assert_allclose(newest, table[1 + count - kept : 1 + count], rtol=rtol)

    def test_reset_rows_are_as_initial_and_the_others_read_on(self):
        model = make()
        ids = helpers.draw_ids(3, 8)
        _, mems = read(model, ids[:, :4])
        mems = model.reset(mems, [False, True, False])
        scores, _ = read(model, ids[:, 4:], mems=mems)
        fresh, _ = read(model, ids[:, 4:])
        onward, _ = read(model, ids, (4, 4))
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(scores[1], fresh[1], rtol=0, atol=atol)
        np.testing.assert_allclose(scores[[0, 2]], onward[[0, 2], 4:], rtol=0, atol=atol)
        self.assertGreater(np.abs(scores[1] - onward[1, 4:]).max(), 1e-3)
        initial = model.initial_mems(3)
        np.testing.assert_array_equal(mems.states[0][1], initial.states[0][1])

    def test_reordered_rows_take_their_memory_along(self):
        model = make()
        ids = helpers.draw_ids(3, 8)
        _, mems = read(model, ids[:, :4])
        rows = np.array([2, 0, 2, 1], "int32")
        scores, _ = read(model, ids[rows, 4:], mems=reorder(mems, rows))
        expected = read(model, ids, (4, 4))[0][rows, 4:]
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=atol)

    def test_memory_of_another_size_is_refused(self):
        with self.assertRaisesRegex(ValueError, "mems must have mem_len 4 .* got mem_len 6"):
            make()(helpers.draw_ids(2, 4), make(mem_len=6).initial_mems(2))

    def test_memory_of_another_batch_size_is_refused(self):
        model, ids = make(), helpers.draw_ids(2, 4)
        states, length = model.initial_mems(2)
        compiled = tf.function(model)
        for mems in (
            model.initial_mems(3),
            (states, length[:1]),
            (model.initial_mems(1)[0], length),
        ):
            for call in (model, compiled):
                told = f"batch size of token_ids, 2, got {3 if mems[0][0].shape[0] == 3 else 1}"
                with self.assertRaisesRegex(ValueError, told):
                    call(ids, mems)

    def test_other_lengths_share_the_weights(self):
        model = make(mem_len=4)
        twin = model.with_lengths(mem_len=12, clamp_len=3)
        self.assertEqual((twin.config.mem_len, twin.config.clamp_len), (12, 3))
        self.assertIsNone(twin.with_lengths(clamp_len=None).config.clamp_len)
        ids = helpers.draw_ids(2, 12)
        unclamped = model.with_lengths(mem_len=12)
        found, expected = read(unclamped, ids, (4, 4, 4))[0], read(make(mem_len=12), ids)[0]
        atol = rounding.of_scores(unclamped.config, 12)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        self.assertGreater(np.abs(read(twin, ids)[0] - read(unclamped, ids)[0]).max(), 1e-3)
        model.embedding.tables[0].assign_add(np.ones((11, 8)))
        self.assertGreater(
            np.abs(read(unclamped, ids)[0] - read(make(mem_len=12), ids)[0]).max(), 1e-3
        )


class GradientTest(parameterized.TestCase):
    def test_none_flows_through_memory(self):
        model = make(tie_embeddings=False)
        first, second = np.array([[0, 1, 2, 3]]), np.array([[5, 6, 7, 8]])

        def gradients(inside):
            outer_mems = model(first)[1]
            with tf.GradientTape() as tape:
                mems = model(first)[1] if inside else outer_mems
                tape.watch(mems.states)
                nll, _ = model.nll(second, np.array([[6, 7, 8, 9]]), mems)
                loss = tf.reduce_mean(nll)
            weights = model.trainable_variables
            return tape.gradient(loss, [*mems.states, *weights])

        inside, outside = gradients(True), gradients(False)
        for found in inside[:2]:
            self.assertTrue(found is None or not np.any(found))
        table = np.array(tf.convert_to_tensor(inside[2]))
        self.assertEqual(model.trainable_variables[0].path, model.embedding.tables[0].path)
        self.assertFalse(np.any(table[:4]))
        self.assertTrue(np.any(table[5:9]))
        atol = rounding.of_gradients(model.config, 4)
        for a, b in zip(inside[2:], outside[2:], strict=True):
            a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
            np.testing.assert_allclose(a, b, rtol=0, atol=atol)


# (length, memory, span, kind): all pairs of their values.
CAUSAL = [
    (length, memory, (None, 3)[(i + j) % 2], ("plain", "pre_norm")[(i // 2 + j) % 2])
    for i, length in enumerate((1, 3, 4, 7))
    for j, memory in enumerate((0, 2, 7))
]


class CausalityTest(parameterized.TestCase):
    @parameterized.parameters(*CAUSAL)
    def test_the_future_does_not_leak(self, length, memory, span, kind):
        model = make(mem_len=memory, attention_span=span, **KINDS[kind])
        _, mems = model(helpers.draw_ids(1, 7, seed=1))
        ids = helpers.draw_ids(1, length)
        before, _ = read(model, ids, mems=mems)
        for place in range(length):
            changed = ids.copy()
            changed[0, place] = (ids[0, place] + 1) % 11
            after, _ = read(model, changed, mems=mems)
            np.testing.assert_array_equal(after[0, :place], before[0, :place])
            self.assertGreater(np.abs(after[0, place] - before[0, place]).max(), 1e-3)

    @parameterized.parameters(
        (4, 4, 4, (4, 4, 4, 4)),
        (5, 4, 4, (5, 5, 5, 5)),
        (4, 4, 0, (1, 2, 3, 4)),
        (4, 4, 2, (3, 4, 4, 4)),
        (5, 4, 2, (3, 4, 5, 5)),
        (4, 0, 4, (1, 2, 3, 4)),
    )
    def test_span_counts_keys(self, span, mem_len, remembered, expected):
        model = make(num_layers=1, mem_len=mem_len, attention_span=span)
        past, ids = helpers.draw_ids(1, remembered, seed=1), helpers.draw_ids(1, 4)

        def last_scores(past, ids):
            mems = model(past)[1] if past.size else None
            return read(model, ids, mems=mems)[0][0]

        base = last_scores(past, ids)
        self.assertTrue(np.isfinite(base).all())
        counts = np.zeros(4, int)
        for place in range(remembered + 4):
            joined = np.concatenate([past, ids], axis=1)
            joined[0, place] = (joined[0, place] + 1) % 11
            changed = last_scores(joined[:, :remembered], joined[:, remembered:])
            counts += np.abs(changed - base).max(axis=-1) > rounding.of_scores(model.config)
        self.assertSequenceEqual(list(counts), expected)


class PaddingTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_padded_rows_equal_rows_alone(self, kind):
        model = make(mem_len=5, **KINDS[kind])
        atol = rounding.of_scores(model.config)
        lengths = np.array([4, 1, 0, 3], "int32")
        ids, onward = helpers.draw_ids(4, 4), helpers.draw_ids(4, 3, seed=1)
        _, past = model(helpers.draw_ids(4, 2, seed=2))
        scores, mems = model(ids, past, lengths=lengths)
        after, _ = model(onward, mems)
        nll, _ = model.nll(ids, helpers.draw_ids(4, 4, seed=3), past, lengths=lengths)
        for row, length in enumerate(lengths):
            alone = reorder(past, [row])
            if length:
                expected, alone = model(ids[row : row + 1, :length], alone)
                found = scores[row, :length]
                np.testing.assert_allclose(found, expected[0], rtol=0, atol=atol)
            np.testing.assert_array_equal(mems.length[row], alone.length[0])
            expected, _ = model(onward[row : row + 1], alone)
            np.testing.assert_allclose(after[row], expected[0], rtol=0, atol=atol)
            self.assertFalse(np.any(nll[row, length:]))

    def test_documents_are_read_apart(self):
        model = make(mem_len=6)
        ids = helpers.draw_ids(1, 10)
        start = np.zeros((1, 10), bool)
        start[0, [0, 3, 7]] = True
        mems, parts = None, []
        for a, b in ((0, 5), (5, 10)):
            scores, mems = model(ids[:, a:b], mems, document_start=start[:, a:b])
            parts.append(scores)
        together = np.concatenate(parts, axis=1)
        for a, b in ((0, 3), (3, 7), (7, 10)):
            alone, _ = model(ids[:, a:b])
            atol = rounding.of_scores(model.config)
            np.testing.assert_allclose(together[:, a:b], alone, rtol=0, atol=atol)
        np.testing.assert_array_equal(mems.length, [3])
        self.assertGreater(np.abs(together[:, 7:] - read(model, ids)[0][:, 7:]).max(), 1e-3)


class LossTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_nll_is_that_of_the_scores(self, kind):
        model = make(**KINDS[kind])
        ids, targets = helpers.draw_ids(2, 5), helpers.draw_ids(2, 5, seed=1)
        targets[1, 2] = -1
        scores, _ = model(ids)
        nll, _ = model.nll(ids, targets)
        log_probs = np.array(tf.nn.log_softmax(scores))
        for row in range(2):
            for place in range(5):
                target = targets[row, place]
                expected = 0.0 if target < 0 else -log_probs[row, place, target]
                atol = rounding.of_scores(model.config)
                self.assertAlmostEqual(float(nll[row, place]), expected, delta=atol)

    def test_zero_output_is_uniform(self):
        model = make(tie_embeddings=False)
        model.softmax.tables[0].assign(np.zeros((11, 8)))
        model.softmax.biases[0].assign(np.zeros(11))
        nll, _ = model.nll(np.arange(1, 9)[None], np.arange(2, 10)[None])
        np.testing.assert_allclose(nll, np.full((1, 8), np.log(11)), rtol=rounding.tolerance(11))

    def test_wrong_ids_are_named(self):
        model = make()
        with self.assertRaisesRegex(ValueError, r"token_ids .* \(vocabulary of 11\), got 11"):
            model(np.array([[1, 11]]))
        with self.assertRaisesRegex(ValueError, r"targets .* \(vocabulary of 11\), got 12"):
            model.nll(np.array([[1, 2]]), np.array([[12, -1]]))
        with self.assertRaisesRegex(ValueError, "targets .* got -2"):
            model.nll(np.array([[1, 2]]), np.array([[1, -2]]))


class DropoutPlacesTest(parameterized.TestCase):
    def key(self, rows, step=0):
        return DropoutKey(tf.constant([7, step]), tf.constant(rows))

    def test_rows_draw_the_same_wherever_they_are_computed(self):
        model = make(dropout=0.3, attention_dropout=0.2)
        ids = helpers.draw_ids(4, 5)
        whole, _ = model(ids, dropout_key=self.key([0, 1, 2, 3]), training=True)
        half, _ = model(ids[2:], dropout_key=self.key([2, 3]), training=True)
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(whole[2:], half, rtol=0, atol=atol)
        other, _ = model(ids, dropout_key=self.key([0, 1, 2, 3], step=1), training=True)
        self.assertGreater(np.abs(whole - other).max(), 1e-2)

    def test_none_outside_training(self):
        model = make(dropout=0.3)
        ids = helpers.draw_ids(2, 5)
        np.testing.assert_array_equal(model(ids)[0], model(ids)[0])

    def test_without_a_key_each_call_draws_anew(self):
        model = make(dropout=0.3)
        ids = helpers.draw_ids(2, 5)
        first, second = model(ids, training=True)[0], model(ids, training=True)[0]
        self.assertGreater(np.abs(first - second).max(), 1e-2)

    def test_memory_holds_the_dropped_embedding(self):
        model = make(dropout=0.5, mem_len=6)
        _, mems = model(helpers.draw_ids(2, 6), dropout_key=self.key([0, 1]), training=True)
        self.assertAlmostEqual((np.array(mems.states[0]) == 0).mean(), 0.5, delta=0.25)


class CompiledTest(parameterized.TestCase):
    @parameterized.product(kind=tuple(KINDS), jit=(False, True))
    def test_compiled_equals_eager_with_gradients(self, kind, jit):
        model = make(mem_len=6, **KINDS[kind])
        ids, targets = helpers.draw_ids(2, 5), helpers.draw_ids(2, 5, seed=1)
        _, mems = model(helpers.draw_ids(2, 4, seed=2))

        def step(ids, targets, mems):
            with tf.GradientTape() as tape:
                nll, mems = model.nll(ids, targets, mems)
                loss = tf.reduce_mean(nll)
            gradients = tape.gradient(loss, model.trainable_variables)
            return nll, mems, [tf.convert_to_tensor(g) for g in gradients]

        eager = step(ids, targets, mems)
        compiled = tf.function(step, jit_compile=jit)(ids, targets, mems)
        atol = rounding.of_gradients(model.config, 10)
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), eager, compiled
        )

    def test_unknown_batch_and_length(self):
        model = make(mem_len=6)
        spec = tf.TensorSpec([None, None], tf.int32)
        run = tf.function(lambda ids, mems: model(ids, mems))
        signature = tf.nest.map_structure(
            lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), model.initial_mems(1)
        )
        run = run.get_concrete_function(spec, signature)
        for rows, length in ((1, 1), (3, 7)):
            ids = tf.constant(helpers.draw_ids(rows, length))
            scores, _ = run(ids, model.initial_mems(rows))
            atol = rounding.of_scores(model.config)
            np.testing.assert_allclose(scores, model(ids)[0], rtol=0, atol=atol)

    def test_bfloat16_is_close(self):
        config = helpers.tiny_config(mem_len=6)
        exact = make(mem_len=6)
        rough = TransformerXL(config, dtype="mixed_bfloat16")
        rough.set_weights(exact.get_weights())
        ids, targets = helpers.draw_ids(2, 12), helpers.draw_ids(2, 12, seed=1)
        scores, mems = rough(ids)
        self.assertEqual(scores.dtype, tf.float32)
        self.assertEqual(mems.states[0].dtype, tf.bfloat16)
        nll, _ = rough.nll(ids, targets, mems)
        expected, _ = exact.nll(ids, targets, exact(ids)[1])
        error = np.abs(nll - expected).mean()
        self.assertLess(error, rounding.typical_of_scores(config))


class KerasTest(parameterized.TestCase):
    def test_saved_models_load_in_a_fresh_process(self):
        folder = helpers.temp_dir(self)
        ids = helpers.draw_ids(2, 5)
        models = {kind: make(**changes) for kind, changes in KINDS.items()}
        for kind, model in models.items():
            model.save(folder / f"{kind}.keras")
        np.save(folder / "ids.npy", ids)
        program = (
            "import sys, keras, numpy as np, txl_tf.models.transformer_xl\n"
            "folder, *kinds = sys.argv[1:]\n"
            "for kind in kinds:\n"
            "    model = keras.saving.load_model(f'{folder}/{kind}.keras')\n"
            "    np.save(f'{folder}/{kind}.npy', model(np.load(f'{folder}/ids.npy'))[0])\n"
        )
        command = [sys.executable, "-c", program, str(folder), *KINDS]
        subprocess.run(command, check=True, cwd=helpers.ROOT)
        for kind, model in models.items():
            loaded = np.load(folder / f"{kind}.npy")
            atol = rounding.of_scores(model.config)
            np.testing.assert_allclose(loaded, model(ids)[0], rtol=0, atol=atol, err_msg=kind)

    def test_fit_lowers_the_loss_and_evaluate_agrees_with_nll(self):
        keras.utils.set_random_seed(1)
        model = TransformerXL(helpers.tiny_config(dropout=0.1))
        ids = np.tile(np.arange(8), (16, 1)).astype("int32")
        targets = np.roll(ids, -1, axis=1)
        targets[:, -1] = -1
        model.compile(optimizer=keras.optimizers.Adam(0.02))
        history = model.fit(ids, targets, batch_size=8, epochs=8, verbose=0).history["loss"]
        self.assertLess(history[-1], 0.5 * history[0])
        nll, _ = model.nll(ids, targets)
        expected = np.sum(nll) / np.sum(targets >= 0)
        atol = rounding.of_scores(model.config)
        self.assertAlmostEqual(model.evaluate(ids, targets, verbose=0), expected, delta=atol)

    def test_a_given_loss_and_metric_read_the_scores(self):
        model = make()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="sgd", loss=loss, metrics=["sparse_categorical_accuracy"])
        ids, targets = helpers.draw_ids(4, 5), helpers.draw_ids(4, 5, seed=1)
        found = model.evaluate(ids, targets, verbose=0, return_dict=True)
        scores, _ = model(ids)
        atol = rounding.of_scores(model.config)
        self.assertAlmostEqual(found["loss"], float(loss(targets, scores)), delta=atol)
        accuracy = (np.argmax(scores, axis=-1) == targets).mean()
        rate = found["sparse_categorical_accuracy"]
        self.assertAlmostEqual(rate, accuracy, delta=rounding.tolerance(20))

    def test_predict_returns_scores_and_memory(self):
        model = make()
        ids = helpers.draw_ids(4, 5)
        scores, mems = model.predict(ids, batch_size=2, verbose=0)
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(scores, model(ids)[0], rtol=0, atol=atol)
        np.testing.assert_array_equal(mems.length, [4, 4, 4, 4])

    def test_symbolic_call_knows_the_shapes(self):
        model = make()
        scores, mems = model(keras.KerasTensor((2, 5), "int32"))
        self.assertEqual(tuple(scores.shape), (2, 5, 11))
        self.assertEqual(tuple(mems.states[1].shape), (2, 4, 8))


if __name__ == "__main__":
    absltest.main()
