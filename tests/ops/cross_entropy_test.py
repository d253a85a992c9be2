import functools
import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from txl_tf.ops import cross_entropy

TOKENS, WORDS, WIDTH, CHUNK = 13, 7, 5, 4
# Tolerances of nats (logits, softmax) and of gradients (backward, sum over tokens); all inputs, of
# deviation 0.5, are below 2.
ATOL = rounding.tolerance(WIDTH, WORDS, scale=2.0 * 2.0)
GRADIENTS_ATOL = 2 * ATOL + rounding.tolerance(TOKENS, scale=2.0 * 2.0)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(scale=0.5, size=shape).astype("float32")


def draw_targets(count, tokens=TOKENS):
    """`count` of the tokens, anywhere, have a target; the others have -1."""
    rng = np.random.default_rng(count)
    targets = np.full(tokens, -1, "int32")
    targets[rng.permutation(tokens)[:count]] = rng.integers(WORDS, size=count)
    return targets


def oracle(hidden, table, bias, targets, upstream):
    """Nats and gradients of sum(nats * upstream), token by token in float64."""
    hidden, table, bias = (x.astype("float64") for x in (hidden, table, bias))
    nats = np.zeros(len(targets))
    gradients = [np.zeros_like(x) for x in (hidden, table, bias)]
    for i, target in enumerate(targets):
        if target == -1:
            continue
        logits = table @ hidden[i] + bias
        chances = np.exp(logits) / np.exp(logits).sum()
        nats[i] = -math.log(chances[target])
        slope = upstream[i] * (chances - np.eye(len(bias))[target])
        gradients[0][i] = slope @ table
        gradients[1] += np.outer(slope, hidden[i])
        gradients[2] += slope
    return nats, gradients


def value_and_gradients(loss, sources, targets, upstream):
    sources = [tf.convert_to_tensor(source) for source in sources]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        nats = loss(*sources, targets)
    return nats, tape.gradient(nats, sources, upstream)


def dense(hidden, table, bias, targets):
    return cross_entropy.cross_entropy(cross_entropy.linear(hidden, table, bias), targets)


class CrossEntropyTest(absltest.TestCase):
    def test_counts_only_real_targets(self):
        logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], "float32"))
        nats = cross_entropy.cross_entropy(logits, tf.constant([1, -1]))
        np.testing.assert_allclose(nats, [-math.log(0.75), 0.0], rtol=0, atol=ATOL)

    def test_other_negatives_and_words_outside_are_errors(self):
        for wrong in (-2, 2):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"label value of {wrong}"):
                cross_entropy.cross_entropy(tf.zeros([1, 2]), tf.constant([wrong]))


class ClusterCrossEntropyTest(parameterized.TestCase):
    @parameterized.parameters(0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 11, TOKENS)
    def test_matches_a_plain_loop(self, count):
        self.check_chunks(draw_targets(count), CHUNK)

    @parameterized.parameters(1, TOKENS, 1000)
    def test_any_chunk_size(self, chunk):
        self.check_chunks(draw_targets(9), chunk)

    def test_compiles(self):
        loss = functools.partial(cross_entropy.cluster_cross_entropy, chunk=CHUNK)
        run = tf.function(functools.partial(value_and_gradients, loss), jit_compile=True)
        for count in (0, CHUNK + 1, TOKENS):
            self.check(draw_targets(count), run)

    def check_chunks(self, targets, chunk):
        loss = functools.partial(cross_entropy.cluster_cross_entropy, chunk=chunk)
        self.check(targets, functools.partial(value_and_gradients, loss))

    def check(self, targets, run):
        sources = draw(TOKENS, WIDTH), draw(WORDS, WIDTH, seed=1), draw(WORDS, seed=2)
        upstream = draw(TOKENS, seed=3)
        nats, gradients = run(sources, tf.constant(targets), tf.constant(upstream))
        expected, expected_gradients = oracle(*sources, targets, upstream)
        np.testing.assert_allclose(nats, expected, rtol=0, atol=ATOL)
        for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=GRADIENTS_ATOL)

    def test_any_number_of_tokens(self):
        spec = [tf.TensorSpec([None, WIDTH]), tf.TensorSpec([None], tf.int32)]
        table, bias = draw(WORDS, WIDTH), draw(WORDS, seed=1)

        @functools.partial(tf.function, input_signature=spec)
        def nats_and_gradient(hidden, targets):
            loss = functools.partial(cross_entropy.cluster_cross_entropy, chunk=CHUNK)
            nats, (gradient, *_) = value_and_gradients(loss, (hidden, table, bias), targets, None)
            return nats, gradient

        for tokens in (0, 1, 3, 9):
            hidden, targets = draw(tokens, WIDTH, seed=2), draw_targets(tokens // 2 + 1, tokens)
            nats, gradient = nats_and_gradient(hidden, targets)
            expected, expected_gradients = oracle(hidden, table, bias, targets, np.ones(tokens))
            np.testing.assert_allclose(nats, expected, rtol=0, atol=ATOL)
            slope = expected_gradients[0]
            np.testing.assert_allclose(gradient, slope, rtol=0, atol=GRADIENTS_ATOL)

    def test_table_gradients_of_bfloat16_products_are_summed_in_float32(self):
        tokens = 400  # equal terms: a bfloat16 sum of them stands still after 256
        hidden = tf.ones([tokens, WIDTH], tf.bfloat16)
        sources = hidden, tf.zeros([2, WIDTH]), tf.zeros([2])
        loss = functools.partial(cross_entropy.cluster_cross_entropy, chunk=1)
        run = tf.function(functools.partial(value_and_gradients, loss))
        nats, gradients = run(sources, tf.zeros([tokens], tf.int32), tf.ones([tokens]))
        self.assertEqual([g.dtype for g in gradients], [tf.bfloat16, tf.float32, tf.float32])
        np.testing.assert_allclose(nats, [math.log(2)] * tokens, rtol=rounding.tolerance(2 * 2))
        np.testing.assert_array_equal(gradients[1], [[-200.0] * WIDTH, [200.0] * WIDTH])
        np.testing.assert_array_equal(gradients[2], [-200.0, 200.0])

    @parameterized.parameters(("chunks", False), ("dense", True))
    def test_compiled_code_holds_no_scores_of_all_tokens(self, kind, expected):
        tokens, words = 37, 23
        loss = functools.partial(cross_entropy.cluster_cross_entropy, chunk=8)
        run = functools.partial(value_and_gradients, loss if kind == "chunks" else dense)
        compiled = tf.function(run, jit_compile=True)
        text = compiled.experimental_get_compiler_ir(
            (tf.zeros([tokens, WIDTH]), tf.zeros([words, WIDTH]), tf.zeros([words])),
            tf.zeros([tokens], tf.int32),
            tf.ones([tokens]),
        )(stage="hlo")
        self.assertIn(f"[{words},{WIDTH}]", text)
        held = f"[{tokens},{words}]" in text or f"[{words},{tokens}]" in text
        self.assertEqual(held, expected)


class ChunksTest(parameterized.TestCase):
    @parameterized.product(count=(0, 1, 3, 4, 5, 8, 12, TOKENS), size=(1, CHUNK, 100))
    def test_hands_out_each_wanted_token_once_in_no_more_chunks_than_needed(self, count, size):
        targets = draw_targets(count)
        chunks = cross_entropy.Chunks(tf.constant(targets), size)
        seen = []

        def add(rows, labels, steps):
            for row, label in zip(rows.numpy(), labels.numpy(), strict=True):
                if label != -1:
                    self.assertEqual(label, targets[row])
                    seen.append(row)
            return (steps + 1,)

        (steps,) = chunks.fold(add, tf.constant(0))
        self.assertEqual(seen, np.flatnonzero(targets != -1).tolist())
        self.assertEqual(int(steps), math.ceil(count / min(size, TOKENS)))


if __name__ == "__main__":
    absltest.main()
