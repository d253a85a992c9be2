"""The laws of XLNet: who sees whom, memory, padding, saving; and equality with Transformer-XL."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.models.xlnet import XLNet
from txl_tf.ops.dropout import DropoutKey

KINDS = {
    "bidirectional": {},
    "causal": dict(bidirectional=False),
    "clamped": dict(clamp_len=3),
    "pre_norm": dict(pre_norm=True),
    "topk": dict(attention=("topk(k=5)",)),
    "reuse": dict(reuse_len=3),
    "span": dict(bidirectional=False, attention_span=5),
}
LENGTH = 8
ORDER = np.array([-1, 3, -1, 1, 0, -1, 4, 2])  # of targets; the others are seen by all
POSITIONS = np.array([[1, 3, 4, 6, 7]] * 2, "int32")
VISIBLE = np.broadcast_to((ORDER[:, np.newaxis] > ORDER) | (ORDER == -1), [2, LENGTH, LENGTH])


def make(kind="bidirectional", **changes):
    return helpers.loud(XLNet(helpers.tiny_xlnet(**(KINDS[kind] | changes))))


def inputs():
    """A segment with targets and segments."""
    return dict(
        segments=np.array([[0] * 3 + [1] * 5, [0] * 6 + [1] * 2], "int32"),
        visible=VISIBLE,
        target_positions=POSITIONS,
    )


def each_kind(test):
    return parameterized.parameters(*KINDS)(test)


class XLNetTest(parameterized.TestCase):
    def assert_scores(self, found, expected, model, tokens=16):
        atol = rounding.of_scores(model.config, tokens)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    @parameterized.parameters("bidirectional", "clamped", "pre_norm", "reuse")
    def test_a_target_sees_what_its_mask_says_and_not_itself(self, kind):
        model, ids = make(kind), helpers.draw_ids(2, LENGTH)
        scores = tf.function(lambda ids: model(ids, **inputs())[0])
        before = np.array(scores(ids))
        for j in range(LENGTH):
            changed = ids.copy()
            changed[:, j] = (changed[:, j] + 1) % 11
            difference = np.abs(scores(changed) - before).max(axis=(0, 2))
            for p, i in enumerate(POSITIONS[0]):
                if VISIBLE[0, i, j]:
                    self.assertGreater(difference[p], 1e-4, (i, j))
                else:
                    self.assertEqual(difference[p], 0, (i, j))

    def test_a_causal_target_sees_no_later_token(self):
        model, ids = make("causal"), helpers.draw_ids(2, LENGTH)
        visible = ~np.eye(LENGTH, dtype=bool)[np.newaxis].repeat(2, axis=0)

        def scores(ids):
            return np.array(model(ids, visible=visible, target_positions=POSITIONS)[0])

        before = scores(ids)
        ids[:, 4] = (ids[:, 4] + 1) % 11
        difference = np.abs(scores(ids) - before).max(axis=(0, 2))
        np.testing.assert_array_equal(difference > 1e-4, POSITIONS[0] > 4)
        np.testing.assert_array_equal(difference > 0, POSITIONS[0] > 4)

    def test_scores_of_a_target_do_not_depend_on_the_others(self):
        model, ids = make(), helpers.draw_ids(2, LENGTH)
        together, _ = model(ids, **inputs())
        alone, _ = model(ids, **(inputs() | dict(target_positions=POSITIONS[:, ::-1][:, :2])))
        self.assert_scores(alone, np.array(together)[:, ::-1][:, :2], model)

    def test_unused_positions_have_no_loss_and_change_nothing(self):
        model, ids = make(), helpers.draw_ids(2, LENGTH)
        targets = np.take_along_axis(ids, POSITIONS, axis=1)
        expected, _ = model.nll(ids, targets, **inputs())
        unused = np.full([2, 1], -1, "int32")
        more = inputs() | dict(target_positions=np.concatenate([POSITIONS, unused], axis=1))
        found, _ = model.nll(ids, np.concatenate([targets, unused], axis=1), **more)
        self.assert_scores(found[:, :-1], expected, model)
        np.testing.assert_array_equal(found[:, -1], 0)

    @each_kind
    def test_no_memory_equals_an_empty_one(self, kind):
        model, ids = make(kind), helpers.draw_ids(2, LENGTH)
        blind = np.zeros([2, LENGTH, LENGTH], bool)  # targets that see nothing at all
        for given in (inputs(), inputs() | dict(visible=blind)):
            expected, _ = model(ids, **given)
            found, _ = model(ids, mems=model.initial_mems(2), **given)
            self.assert_scores(found, expected, model)

    @each_kind
    def test_padding_is_neither_seen_nor_remembered(self, kind):
        model, ids, real = make(kind), helpers.draw_ids(2, LENGTH), LENGTH - 2
        padded, mems = model(ids, lengths=np.array([LENGTH, real], "int32"))
        alone, expected = model(ids[1:, :real])
        self.assert_scores(padded[1:, :real], alone, model)
        self.assertEqual(mems.length[1], expected.length[0])
        size = int(mems.length[1])
        for found, state in zip(mems.states, expected.states, strict=True):
            self.assert_scores(found[1:, -size:], state[:, -size:], model)

    def test_memory_is_seen_and_has_no_gradient(self):
        model, ids = make(), helpers.draw_ids(2, 2 * LENGTH)
        _, mems = model(ids[:, :LENGTH])
        with tf.GradientTape() as tape:
            tape.watch(mems.states)
            scores, _ = model(ids[:, LENGTH:], mems, **inputs())
        self.assertEqual(tape.gradient(scores, mems.states), (None, None))
        without, _ = model(ids[:, LENGTH:], **inputs())
        self.assertGreater(np.abs(scores - without).max(), 1e-3)

    def test_reuse_len_keeps_the_first_tokens(self):
        model, ids = make("reuse"), helpers.draw_ids(2, LENGTH)
        content, _, mems = model.hidden_states(ids)
        np.testing.assert_array_equal(mems.length, [3, 3])
        for state, output in zip(mems.states, content, strict=False):
            np.testing.assert_array_equal(state[:, 1:], output[:, :3])

    def test_memory_belongs_to_segment_0(self):
        model, ids = make(), helpers.draw_ids(2, 2 * LENGTH)
        _, mems = model(ids[:, :LENGTH])
        zeros = np.zeros([2, LENGTH], "int32")
        same, _ = model(ids[:, LENGTH:], mems, segments=zeros)
        other, _ = model(ids[:, LENGTH:], mems, segments=zeros + 1)
        self.assertGreater(np.abs(same - other).max(), 1e-3)
        zero, _ = model(ids[:, LENGTH:], segments=zeros)
        one, _ = model(ids[:, LENGTH:], segments=zeros + 1)
        np.testing.assert_array_equal(zero, one)

    @parameterized.parameters("causal", "pre_norm", "topk", "reuse")
    def test_saved_and_loaded(self, kind):
        model, ids = make(kind), helpers.draw_ids(2, LENGTH)
        path = helpers.temp_dir(self) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path)
        self.assertEqual(again.config, model.config)
        np.testing.assert_array_equal(again(ids, **inputs())[0], model(ids, **inputs())[0])

    @parameterized.parameters("bidirectional", "causal", "topk")
    def test_compiled_equals_eager(self, kind):
        model, ids = make(kind), helpers.draw_ids(2, LENGTH)
        _, mems = model(helpers.draw_ids(2, LENGTH, seed=1))
        compiled = tf.function(
            lambda ids, mems: model(ids, mems, **inputs())[0], jit_compile=True, autograph=False
        )
        self.assert_scores(compiled(ids, mems), model(ids, mems, **inputs())[0], model)

    def test_sizes_that_no_trace_knows(self):
        model = make()
        signature = [
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, None, None], tf.bool),
            tf.TensorSpec([None, None], tf.int32),
        ]
        compiled = tf.function(
            lambda ids, visible, positions: model(
                ids, model.initial_mems(tf.shape(ids)[0]), None, ids % 2, visible, positions
            )[0],
            input_signature=signature,
        )
        for size in (2, LENGTH):
            ids = helpers.draw_ids(2, size)
            visible, positions = VISIBLE[:, :size, :size], POSITIONS[:, :1]
            expected, _ = model(ids, None, None, ids % 2, visible, positions)
            self.assert_scores(compiled(ids, visible, positions), expected, model)

    def test_bfloat16(self):
        exact, ids = make(), helpers.draw_ids(2, LENGTH)
        model = XLNet(exact.config, dtype="mixed_bfloat16")
        for weight, value in zip(model.weights, exact.weights, strict=True):
            weight.assign(value)
        targets = np.take_along_axis(ids, POSITIONS, axis=1)
        error = np.abs(model(ids, **inputs())[0] - exact(ids, **inputs())[0]).mean()
        self.assertLess(error, rounding.typical_of_scores(model.config, LENGTH))
        nats, _ = tf.function(model.nll, jit_compile=True)(ids, targets, **inputs())
        error = np.abs(nats - exact.nll(ids, targets, **inputs())[0]).mean()
        self.assertLess(error, 2 * rounding.typical_of_scores(model.config, LENGTH))

    @parameterized.parameters(*[(kind, False) for kind in KINDS], ("bidirectional", True))
    def test_every_weight_learns(self, kind, rematerialize):
        model, ids = make(kind, dropout=0.1, attention_dropout=0.1), helpers.draw_ids(2, LENGTH)
        if rematerialize:
            model = XLNet(model.config, weights_of=model, rematerialize=True)
        targets = np.take_along_axis(ids, POSITIONS, axis=1)
        key = DropoutKey(tf.constant([1, 2]), tf.range(2))
        with tf.GradientTape() as tape:
            given = inputs() | dict(dropout_key=key, training=True)
            loss = tf.reduce_mean(model.nll(ids, targets, **given)[0])
        weights = model.trainable_variables
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        for weight, gradient in zip(weights, gradients, strict=True):
            self.assertIsNotNone(gradient, weight.path)
            self.assertGreater(np.abs(tf.convert_to_tensor(gradient)).max(), 0, weight.path)

    def test_dropout_follows_from_the_key(self):
        model, ids = make(dropout=0.3, attention_dropout=0.2), helpers.draw_ids(2, LENGTH)

        def run(step, rows):
            key = DropoutKey(tf.constant([1, step]), tf.constant(rows))
            given = {name: value[rows] for name, value in inputs().items()}
            return np.array(model(ids[rows], **given, dropout_key=key, training=True)[0])

        self.assert_scores(run(3, [0, 1])[1:], run(3, [1]), model)
        self.assertGreater(np.abs(run(3, [0, 1]) - run(4, [0, 1])).max(), 1e-2)
        self.assert_scores(model(ids, **inputs())[0], make()(ids, **inputs())[0], model)

    def test_fit_scores_the_targets(self):
        model, ids = make(), helpers.draw_ids(2, LENGTH)
        targets = np.take_along_axis(ids, POSITIONS, axis=1)
        x = inputs() | dict(token_ids=ids, lengths=np.array([LENGTH, LENGTH], "int32"))
        model.compile()
        expected = np.mean(model.nll(ids, targets, **inputs())[0])
        atol = rounding.of_scores(model.config)
        self.assertAlmostEqual(model.evaluate(x, targets, verbose=0), expected, delta=atol)

    def test_other_lengths_share_the_weights(self):
        model, ids = make(), helpers.draw_ids(2, LENGTH)
        other = model.with_lengths(mem_len=2, clamp_len=3)
        self.assertIs(other.weights[0], model.weights[0])
        self.assert_scores(other(ids)[0], make(clamp_len=3)(ids)[0], model)

    def test_mistakes_are_told(self):
        model, ids = make(), helpers.draw_ids(2, LENGTH)
        for given, message in (
            (dict(target_positions=POSITIONS), "visible must be given with target_positions"),
            (dict(visible=VISIBLE[:, 1:]), r"visible must be of shape \[2, 8, 8\]"),
            (inputs() | dict(target_positions=POSITIONS + 1), "target_positions .* 0..7 .* got 8"),
            (dict(segments=VISIBLE[:, 0, 1:]), r"segments must be of shape \[2, 8\]"),
            (dict(mems=make(mem_len=3).initial_mems(2)), "mems must have mem_len 4 .* 3"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                model(ids, **given)
        with self.assertRaisesRegex(ValueError, "token_ids must lie in 0..10 .* got 11"):
            model(np.array([[11]]))


class TransformerXLTest(parameterized.TestCase):
    """In natural order, the content stream is a Transformer-XL of the same weights.

    That model has biases of each layer, GELU and the small epsilon of XLNet, and output tables of
    its own: XLNet ties its tables but does not scale embeddings by sqrt(D). Segments are left out.
    """

    @parameterized.product(
        lengths=({}, dict(clamp_len=3), dict(attention_span=4)), natural_order_mask=(False, True)
    )
    def test_equals_transformer_xl(self, lengths, natural_order_mask):
        ours = make(bidirectional=natural_order_mask, **lengths)
        config = helpers.tiny_config(
            untie_biases=True,
            tie_embeddings=False,
            feed_forward=ours.config.feed_forward,
            layer_norm_epsilon=ours.config.layer_norm_epsilon,
            **lengths,
        )
        theirs = TransformerXL(config)
        table = ours.embedding.tables[0].numpy()
        theirs.embedding.tables[0].assign(table / config.d_model**0.5)
        theirs.softmax.tables[0].assign(table)
        theirs.softmax.biases[0].assign(ours.softmax.biases[0])
        for block, source in zip(theirs.blocks, ours.blocks, strict=True):
            weights = {weight.path.rpartition("block_")[2]: weight for weight in source.weights}
            for weight in block.weights:
                weight.assign(weights[weight.path.rpartition("block_")[2]])
        ids = helpers.draw_ids(2, 15)
        mems, expected_mems = None, None
        for start in range(0, 15, 5):
            segment = ids[:, start : start + 5]
            natural = np.tri(5, dtype=bool)[np.newaxis].repeat(2, axis=0)
            visible = natural if natural_order_mask else None
            scores, mems = ours(segment, mems, visible=visible)
            expected, expected_mems = theirs(segment, expected_mems)
            atol = rounding.of_scores(config)
            np.testing.assert_allclose(scores, expected, rtol=0, atol=atol)
            np.testing.assert_array_equal(mems.length, expected_mems.length)


class XLNetConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(position="absolute"), "position must be one of xl, got 'absolute'"),
        (dict(d_model=7), "d_model must be even .* got 7"),
        (dict(untie_biases=False), "untie_biases must be true for XLNet, got False"),
        (dict(reuse_len=0), "reuse_len must be at least 1, got 0"),
        (dict(attention=("local(window=4)",)), "attention must be dense or topk .* got 'local"),
        (dict(feed_forward=("switch(experts=2)",)), "feed_forward must be dense, .* got 'switch"),
    )
    def test_mistakes_are_told(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_xlnet(**changes)

    def test_configs_of_other_models_are_refused(self):
        with self.assertRaisesRegex(ValueError, "be a XLNetConfig, got a TransformerXLConfig"):
            XLNet(helpers.tiny_config())


if __name__ == "__main__":
    absltest.main()
