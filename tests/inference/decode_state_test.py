"""Tests of txl_tf.inference.decode_state: key-value caches equal hidden states."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.inference import decode_state as states
from txl_tf.inference.decode_state import HiddenState, KeyValueState
from txl_tf.models.transformer_xl import TransformerXL

ADAPTIVE = dict(cutoffs=(4, 7), div_val=2, d_embed=8)
KINDS = {
    "plain": {},
    "untied biases": dict(untie_biases=True),
    "pre_norm": dict(pre_norm=True),
    "clamp and span": dict(clamp_len=3, attention_span=4),
    "initial zeros": dict(attend_to_initial_zeros=True),
    "initial zeros, pre_norm": dict(attend_to_initial_zeros=True, pre_norm=True),
    "no memory": dict(mem_len=0),
    "adaptive": ADAPTIVE,
}


@functools.cache
def make_model(kind="plain", **changes):
    return helpers.loud(TransformerXL(helpers.tiny_config(**KINDS[kind], **changes)))


def chain(state, segments, lengths=None, document_start=None):
    """Nats and scores of each segment, read one after the other."""
    carried, found = state.initial(len(segments[0])), []
    for i, ids in enumerate(segments):
        real = None if lengths is None else lengths[i]
        starts = None if document_start is None else document_start[i]
        scores, _ = state.scores(ids, carried, real)
        nll, carried = state.nll(ids, ids[:, ::-1], carried, real, starts)
        found.append((np.asarray(nll), np.asarray(scores)))
    return found


def assert_same(found, expected, atol, lengths=None):
    for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            if lengths is not None:  # what padding scores is nobody's business
                real = np.arange(a.shape[1]) < lengths[i][:, np.newaxis]
                a, b = a[real], b[real]
            np.testing.assert_allclose(a, b, rtol=0, atol=atol)


class KeyValueStateTest(parameterized.TestCase):
    @parameterized.product(kind=tuple(KINDS), sizes=((4, 4, 4), (5, 1, 7), (1,) * 6))
    def test_equals_the_hidden_state(self, kind, sizes):
        model = make_model(kind)
        segments = [helpers.draw_ids(2, size, seed=i) for i, size in enumerate(sizes)]
        expected = chain(HiddenState(model), segments)
        atol = rounding.of_scores(model.config, sum(sizes))
        assert_same(chain(KeyValueState(model), segments), expected, atol)
        if model.config.mem_len and len(sizes) == 3:  # and memory shows
            forgetful = chain(HiddenState(make_model(kind).with_lengths(mem_len=0)), segments)
            self.assertGreater(np.abs(forgetful[-1][1] - expected[-1][1]).max(), 1e-2)

    @parameterized.parameters("plain", "pre_norm", "adaptive")
    def test_rows_of_different_lengths(self, kind):
        segments = [helpers.draw_ids(3, 5, seed=i) for i in range(4)]
        lengths = [np.array(row, "int32") for row in ((5, 2, 0), (3, 5, 5), (0, 1, 5), (5, 5, 5))]
        model = make_model(kind)
        expected = chain(HiddenState(model), segments, lengths)
        found = chain(KeyValueState(model), segments, lengths)
        assert_same(found, expected, rounding.of_scores(model.config), lengths)

    def test_documents_end_memory(self):
        segments = [helpers.draw_ids(2, 5, seed=i) for i in range(3)]
        starts = [np.random.default_rng(i).random((2, 5)) < 0.3 for i in range(3)]
        self.assertGreater(np.sum(starts), 2)
        model = make_model()
        expected = chain(HiddenState(model), segments, document_start=starts)
        found = chain(KeyValueState(model), segments, document_start=starts)
        assert_same(found, expected, rounding.of_scores(model.config))

    @parameterized.parameters(True, False)
    def test_segments_longer_than_the_kept_distances(self, static):
        model = make_model(mem_len=6)
        state = KeyValueState(model, segment_len=2)
        spec = [tf.TensorSpec([None, 5 if static else None], tf.int32)]
        scores = tf.function(
            lambda ids: state.scores(ids, state.initial(tf.shape(ids)[0]))[0], input_signature=spec
        )
        ids = helpers.draw_ids(2, 5)
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(scores(ids), model(ids)[0], rtol=0, atol=atol)
        if not static:
            expected = model(ids[:, :1])[0]
            np.testing.assert_allclose(scores(ids[:, :1]), expected, rtol=0, atol=atol)

    def test_compiled_by_xla(self):
        state = KeyValueState(make_model())
        ids = helpers.draw_ids(2, 4)
        compiled = tf.function(state.nll, jit_compile=True)
        nll, after = compiled(ids, ids, state.initial(2))
        expected = state.nll(ids, ids, state.initial(2))[0]
        atol = rounding.of_scores(state.model.config)
        np.testing.assert_allclose(nll, expected, rtol=0, atol=atol)
        self.assertEqual(after.length.numpy().tolist(), [4, 4])

    def test_distances_are_projected_once(self):
        state = KeyValueState(make_model(), segment_len=4)
        spec = tf.TensorSpec([2, 4], tf.int32)
        graph = tf.function(lambda ids: state.scores(ids, state.initial(2))).get_concrete_function(
            spec
        )
        kinds = {node.op for node in graph.graph.as_graph_def().node}
        self.assertNoCommonElements(kinds, {"Sin", "Cos"})

    def test_refresh_follows_new_weights(self):
        model = helpers.loud(TransformerXL(helpers.tiny_config()), seed=1)
        state, ids = KeyValueState(model), helpers.draw_ids(2, 4)
        helpers.loud(model, seed=2)
        expected, _ = model(ids)
        stale, _ = state.scores(ids, state.initial(2))
        self.assertGreater(np.abs(stale - expected).max(), 1e-2)
        state.refresh()
        found, _ = state.scores(ids, state.initial(2))
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    @parameterized.product(kind=tuple(k for k in KINDS if k != "no memory"), rounds=(1, 3))
    def test_a_loop_of_single_tokens(self, kind, rounds):
        """Twice round the ring; one row stands still at the end of each loop, and then reads on."""
        state = KeyValueState(make_model(kind))
        atol = rounding.of_scores(state.model.config, 24)
        past = state.advance(helpers.draw_ids(2, 3), state.initial(2), np.array([3, 1], np.int32))
        step = tf.function(state.next_scores, autograph=False)
        in_order = tf.function(state.scores, autograph=False)
        for begin in range(0, 24, rounds):
            looped = state.to_ring_buffer(past, rounds)
            for i in range(begin, begin + rounds):
                last = helpers.draw_ids(2, 1, seed=i)
                real = np.array([1, i - begin < rounds // 2], np.int32)
                expected, past = in_order(last, past, real)
                found, looped = step(last[:, 0], looped, real)
                read = real == 1
                np.testing.assert_allclose(found[read], expected[:, 0][read], rtol=0, atol=atol)
            past_again = state.from_ring_buffer(looped)
            following = helpers.draw_ids(2, 4, seed=99)
            found, expected = (in_order(following, each)[0] for each in (past_again, past))
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    def test_reorder(self):
        state = KeyValueState(make_model())
        before = state.advance(
            helpers.draw_ids(3, 4), state.initial(3), np.array([4, 1, 2], "int32")
        )
        after = state.reorder(before, [2, 0, 0, 1])
        for old, new in zip(tf.nest.flatten(before), tf.nest.flatten(after), strict=True):
            np.testing.assert_array_equal(np.asarray(old)[[2, 0, 0, 1]], new)

    def test_bfloat16(self):
        exact = make_model()
        model = TransformerXL(exact.config, dtype="mixed_bfloat16")
        for weight, value in zip(model.variables, exact.variables, strict=True):
            weight.assign(value)
        state, ids = KeyValueState(model), helpers.draw_ids(2, 4)
        carried = state.advance(ids, state.initial(2))
        self.assertEqual(carried.keys[0].dtype, tf.bfloat16)
        rough, _ = state.nll(ids, ids, carried)
        _, mems = exact(ids)
        error = np.abs(rough - exact.nll(ids, ids, mems)[0]).mean()
        self.assertLess(error, rounding.typical_of_scores(exact.config))

    def test_names(self):
        self.assertIsInstance(states.make("hidden", make_model(), 4), HiddenState)
        with self.assertRaisesRegex(ValueError, "state must be one of kv, hidden, got 'KV'"):
            states.make("KV", make_model(), 4)


if __name__ == "__main__":
    absltest.main()
