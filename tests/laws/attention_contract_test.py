"""Laws for every causal row of ATTENTION, and the dense core against a plain loop in float64."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
import spec_layers
from txl_tf.attention import ATTENTION, dense
from txl_tf.ops.attention_mask import AttentionMask

SPECS = {
    "dense": "dense",
    "topk": "topk(k=2)",
    "local": "local(window=2)",
    "longformer": "longformer(window=2)",
    # With a window of all tokens; model_laws.py has the laws that a smaller one breaks.
    "routing": "routing(clusters=2, local_heads=1, window=8)",
}
TWO_SIDED_ALONE = {"bigbird", "linformer"}  # two_sided_attention_test.py has those that look ahead


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def inputs(rows=2, queries=3, keys=5, heads=2, width=4):
    """content_query, position_query, keys, values, encodings."""
    return [
        draw(rows, heads, queries, width, seed=1),
        draw(rows, heads, queries, width, seed=2),
        draw(rows, heads, keys, width, seed=3),
        draw(rows, heads, keys, width, seed=4),
        draw(heads, keys, width, seed=5),
    ]


def make(spec, **kwargs):
    """Returns a core with its weights, and the inputs that it takes."""
    core = spec_layers.core(spec, **kwargs)
    core.build_weights(8, 2, 4, 0.5)
    core.built = True
    content, position, keys, values, encodings = inputs()
    heads = core.spec.num_query_heads(2)
    return core, [content[:, :heads], position[:, :heads], keys, values, encodings[:heads]]


def visibility(remembered=(2, 1), **kwargs):
    return AttentionMask(remembered=tf.constant(remembered), **kwargs)


class AttentionContractTest(parameterized.TestCase):
    def test_every_core_is_covered(self):
        self.assertEqual(SPECS.keys() | TWO_SIDED_ALONE, ATTENTION.keys())

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_the_future_does_not_leak(self, spec):
        core, arrays = make(spec)
        before = np.array(core(*arrays, visibility=visibility()))
        arrays[2][:, :, -1] += 1.0  # only the last query may see the last key
        arrays[3][:, :, -1] += 1.0
        after = np.array(core(*arrays, visibility=visibility()))
        np.testing.assert_array_equal(after[:, :, :-1], before[:, :, :-1])
        self.assertGreater(np.abs(after[:, :, -1] - before[:, :, -1]).max(), 1e-3)

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_slots_that_hold_nothing_are_not_seen(self, spec):
        core, arrays = make(spec)
        before = np.array(core(*arrays, visibility=visibility()))
        arrays[2][:, :, 0] += 1.0  # row 0 remembers this slot, row 1 does not
        arrays[3][:, :, 0] += 1.0
        after = np.array(core(*arrays, visibility=visibility()))
        np.testing.assert_array_equal(after[1], before[1])
        self.assertGreater(np.abs(after[0] - before[0]).max(), 1e-3)

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_compiled_equals_eager(self, spec):
        core, arrays = make(spec)
        compiled = tf.function(
            lambda *arrays: core(*arrays, visibility=visibility(attention_span=2)),
            jit_compile=True,
        )
        eager = core(*arrays, visibility=visibility(attention_span=2))
        atol = rounding.of_attention(4, 5, arrays[3])
        np.testing.assert_allclose(compiled(*arrays), eager, rtol=0, atol=atol)

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_comes_back_from_its_config(self, spec):
        core, _ = make(spec, dropout=0.25, site=9)
        again = type(core).from_config(core.get_config())
        self.assertEqual(again.get_config(), core.get_config())
        self.assertEqual((again.dropout, again.site), (0.25, 9))

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_bfloat16_scores_in_float32(self, spec):
        keras.utils.set_random_seed(1)
        core, arrays = make(spec, dtype="mixed_bfloat16")
        rough = core(*[tf.cast(a, tf.bfloat16) for a in arrays], visibility=visibility())
        self.assertEqual(rough.dtype, tf.bfloat16)
        exact = make(spec)[0](*arrays, visibility=visibility())
        scale = np.abs(arrays[3]).max()
        atol = rounding.typical(2 * 4, 2 * 5, scale=scale)
        np.testing.assert_allclose(tf.cast(rough, tf.float32), exact, rtol=0, atol=atol)


class DenseAttentionTest(parameterized.TestCase):
    @parameterized.product(memory=(0, 2, 7), queries=(1, 3), span=(None, 2), far=(0, 1))
    def test_equals_a_plain_loop(self, memory, queries, span, far):
        arrays = inputs(queries=queries, keys=memory + queries)
        arrays[-1] = arrays[-1][:, far:]  # what is farther scores 0
        remembered = (memory, max(memory - 1, 0))
        core = spec_layers.core("dense")
        rules = visibility(remembered, attention_span=span)
        found = np.array(core(*arrays, visibility=rules))
        atol = rounding.of_attention(4, memory + queries, arrays[3])
        expected = by_hand(*arrays, remembered, span)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    @parameterized.parameters(1, 2, 3)
    def test_rows_one_after_another_are_the_same(self, at_once):
        arrays = inputs(rows=5)
        documents = np.cumsum(draw(5, 3, seed=9) > 0.5, axis=1).astype("int32")
        rules = visibility((2, 1, 0, 2, 1), documents=tf.constant(documents), attention_span=3)
        core = spec_layers.core("dense")
        expected = core(*arrays, visibility=rules)
        bytes_of_a_row = 4 * 2 * 3 * 5  # heads, queries, keys
        with absltest.mock.patch.object(dense, "_CACHE", at_once * bytes_of_a_row):
            found = core(*arrays, visibility=rules)
            attend = self.enter_context(absltest.mock.patch.object(core, "_attend"))
            attend.side_effect = lambda *args: args[0]
            core(*arrays, visibility=rules)
        self.assertEqual(attend.call_count, -(-5 // at_once))
        atol = rounding.of_attention(4, 5, arrays[3])
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    @parameterized.product(memory=(0, 2, 7), span=(None, 2, 9), far=(0, 4), block=(2, 3, 4))
    def test_queries_in_blocks_are_the_same(self, memory, span, far, block):
        queries = 8
        arrays = inputs(queries=queries, keys=memory + queries)
        arrays[-1] = arrays[-1][:, far:]
        remembered = (memory, max(memory - 1, 0))
        core = spec_layers.core("dense")
        with absltest.mock.patch.object(dense, "_BLOCK", block):
            found = core(*arrays, visibility=visibility(remembered, attention_span=span))
        atol = rounding.of_attention(4, memory + queries, arrays[3])
        expected = by_hand(*arrays, remembered, span)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    def test_a_block_meets_no_key_that_none_of_it_sees(self):
        block, rules = visibility(attention_span=5).for_block(slice(4, 6), 8, 10)
        self.assertEqual(block, slice(2, 8))
        np.testing.assert_array_equal(rules.remembered, [6, 5])

    def test_documents_are_seen_as_one(self):
        arrays = inputs(queries=6, keys=8)
        documents = tf.constant([[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]])
        rules = visibility(documents=documents)
        core = spec_layers.core("dense")
        expected = core(*arrays, visibility=rules)
        with absltest.mock.patch.object(dense, "_BLOCK", 2):
            found = core(*arrays, visibility=rules)
        np.testing.assert_array_equal(found, expected)


def by_hand(content, position, keys, values, encodings, remembered, span):
    rows, heads, queries, width = content.shape
    slots, result = keys.shape[2] - queries, np.zeros(content.shape)
    for b, h, i in np.ndindex(rows, heads, queries):
        scores, seen = [], []
        for j in range(slots - remembered[b], slots + i + 1):
            distance = slots + i - j
            if span is None or distance < span:
                q_u, q_v = content[b, h, i].astype(float), position[b, h, i].astype(float)
                score = q_u @ keys[b, h, j]
                if distance < encodings.shape[1]:
                    score += q_v @ encodings[h, encodings.shape[1] - 1 - distance]
                scores.append(score / width**0.5)
                seen.append(values[b, h, j])
        weights = np.exp(np.array(scores) - max(scores))
        result[b, h, i] = weights / weights.sum() @ np.array(seen)
    return result


if __name__ == "__main__":
    absltest.main()
