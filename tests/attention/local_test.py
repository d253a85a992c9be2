"""Tests of the block-local core against dense attention, pair by pair."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
import spec_layers
from txl_tf.attention import make_core
from txl_tf.configs.layer_specs import Local
from txl_tf.ops.attention_mask import AttentionMask
from txl_tf.ops.dropout import DropoutKey


def draw(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def inputs(rows, queries, memory, heads=4, width=6, later=0):
    keys = memory + queries
    return [
        draw(rows, heads, queries, width, seed=1),
        draw(rows, heads, queries, width, seed=2),
        draw(rows, heads, keys, width, seed=3),
        draw(rows, heads, keys, width, seed=4),
        draw(heads, keys + later, width, seed=5),
    ]


def oracle(arrays, rules, window, dilations, k=None):
    """Dense attention in float64 under the mask of all pairs, by its definition."""
    content, position, keys, values, encodings = (np.array(x, np.float64) for x in arrays)
    heads, queries, width = content.shape[1:]
    slots = keys.shape[2] - queries
    looks_ahead = rules.lookahead != 0
    dilation = np.repeat(dilations, heads // len(dilations))[:, np.newaxis, np.newaxis]  # [H, 1, 1]
    key = np.arange(keys.shape[2])
    distance = slots + np.arange(queries)[:, np.newaxis] - key  # [T, S]
    seen = (distance % dilation == 0) & (distance <= window * dilation)  # [H, T, S]
    seen &= distance >= (-window * dilation if looks_ahead else 0)
    if rules.attention_span is not None:
        seen &= distance < rules.attention_span
    seen = seen & (key >= slots - of_rows(rules.remembered))  # [B, H, T, S]
    if rules.lengths is not None:
        seen &= key < slots + of_rows(rules.lengths)
    if rules.documents is not None:
        of_key = np.pad(rules.documents, [[0, 0], [slots, 0]])  # memory belongs to document 0
        same = np.array(rules.documents)[:, :, np.newaxis] == of_key[:, np.newaxis]  # [B, T, S]
        seen &= same[:, np.newaxis]

    nearest = (encodings.shape[1] - 1) // 2 if looks_ahead else encodings.shape[1] - 1
    encodings = encodings[:, np.minimum(nearest - distance, encodings.shape[1] - 1)]  # [H, T, S, K]
    scores = np.einsum("bhtk,bhsk->bhts", content, keys)
    scores += np.einsum("bhtk,htsk->bhts", position, encodings)
    scores = np.where(seen, scores / width**0.5, -np.inf)
    if k is not None:
        scores[scores < np.sort(scores)[..., [-k]]] = -np.inf
    highest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(highest), 0, highest))
    total = weights.sum(axis=-1, keepdims=True)  # 0 where nothing is seen
    return weights / np.where(total == 0, 1, total) @ values


def of_rows(x):
    """[B] -> [B, 1, 1, 1]"""
    return np.reshape(x, [-1, 1, 1, 1])


SIZES = (  # queries, memory, window, block
    (16, 8, 4, 4),
    (13, 6, 5, 4),
    (10, 0, 3, 4),
    (9, 20, 12, 8),
    (12, 12, 11, 4),
    (31, 5, 6, None),
    (17, 3, 1, 1),
    (40, 7, 2, 2),
)


class LocalAttentionTest(parameterized.TestCase):
    @parameterized.product(
        sizes=SIZES, dilations=((1,), (1, 2), (3,), (1, 1, 2, 3)), lookahead=(0, None), k=(None, 2)
    )
    def test_equals_dense_attention_by_hand(self, sizes, dilations, lookahead, k):
        queries, memory, window, block = sizes
        memory = memory if lookahead == 0 else 0
        arrays = inputs(2, queries, memory, later=0 if lookahead == 0 else queries - 1)
        rules = AttentionMask(
            remembered=tf.constant([memory, memory // 2]),
            lookahead=lookahead,
            lengths=None if lookahead == 0 else tf.constant([queries, queries - 3]),
        )
        core = make_core(Local(window=window, dilations=dilations, block=block, k=k))
        found = np.array(core(*arrays, visibility=rules))
        expected = oracle(arrays, rules, window, dilations, k)
        real = np.ones(found.shape, bool)
        if lookahead is None:
            real[1, :, queries - 3 :] = False  # pads see what they like
        atol = rounding.of_attention(6, memory + queries, arrays[3])
        np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=atol)

    @parameterized.product(dilations=((1,), (1, 2)), span=(None, 3))
    def test_documents_and_a_span(self, dilations, span):
        arrays = inputs(2, 24, 5)
        documents = np.cumsum(np.random.default_rng(3).random([2, 24]) > 0.8, axis=1)
        rules = AttentionMask(
            remembered=tf.constant([5, 2]),
            documents=tf.constant(documents, tf.int32),
            attention_span=span,
        )
        core = make_core(Local(window=4, dilations=dilations, block=4))
        found = np.array(core(*arrays, visibility=rules))
        expected = oracle(arrays, rules, 4, dilations)
        atol = rounding.of_attention(6, 29, arrays[3])
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    @parameterized.product(queries=(1, 2, 5, 64, 200), dilations=((1,), (2,)))
    def test_takes_the_cheaper_way(self, queries, dilations):
        core = make_core(Local(window=16, dilations=dilations, block=16))
        plan = core._plan(queries, queries + 40, dilations[0], AttentionMask(remembered=None))
        self.assertEqual(plan is None, queries < 64)

    def test_a_ring(self):
        arrays = inputs(2, 1, 8)
        rules = AttentionMask(remembered=tf.constant([8, 3]))
        core = make_core(Local(window=2, dilations=(1, 2)))
        expected = core(*arrays, visibility=rules)
        turned = [tf.roll(x, 3, axis=2) for x in arrays[2:4]]
        ring = dataclasses.replace(rules, ring_index=tf.constant(2))
        found = core(*arrays[:2], *turned, arrays[4], visibility=ring)
        atol = rounding.of_attention(6, 9, arrays[3])
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    def test_groups_of_heads_drop_on_their_own(self):
        core = make_core(Local(window=4, dilations=(1, 2), block=4), dropout=0.5)
        x = tf.ones([1, 4, 32, 6])
        key = DropoutKey(tf.constant([1, 2]), tf.constant([0]))
        told = core(
            x, x, x, x, None, visibility=AttentionMask(remembered=tf.constant([0])), dropout_key=key
        )
        self.assertGreater(np.abs(told[0, 1] - told[0, 3]).max(), 0.1)

    def test_gradients_are_those_of_dense_attention(self):
        arrays = inputs(1, 23, 6, heads=2)
        rules = AttentionMask(remembered=tf.constant([4]))
        gradients = []
        for spec in ("local(window=5, block=4)", "dense"):
            core = spec_layers.core(spec)
            narrow = dataclasses.replace(rules, attention_span=6)
            with tf.GradientTape() as tape:
                tape.watch(arrays)
                total = tf.reduce_sum(core(*arrays, visibility=narrow) * draw(1, 2, 23, 6, seed=9))
            gradients.append(tape.gradient(total, arrays))
        scale = max(np.abs(expected).max() for expected in gradients[1])
        atol = rounding.tolerance(2 * 2 * (6 + 29), 23, scale=scale)
        for found, expected in zip(*gradients, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


if __name__ == "__main__":
    absltest.main()
