"""Tests of AdaptiveSoftmax in TensorFlow, XLA, Keras and TFLite."""

import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax
from words import (
    GRADIENTS_ATOL,
    HIDDEN,
    SCORES_ATOL,
    TARGETS,
    Words,
    naive_nats,
    nats_and_gradients,
    oracle,
    oracle_nats,
    our_nats,
)


class AdaptiveSoftmaxGraphTest(parameterized.TestCase):
    @parameterized.parameters("plain_narrow", "one_table_narrow", "quarters", "unprojected")
    def test_gradients_match_those_of_all_scores(self, kind):
        self.check_gradients(Words(kind), nats_and_gradients)

    @parameterized.parameters("plain_narrow", "one_table_narrow", "halves")
    def test_compiled_by_xla_is_the_same(self, kind):
        words = Words(kind)
        run = functools.partial(nats_and_gradients, our_nats, words)
        compiled = tf.function(run, jit_compile=True)
        self.check_gradients(words, lambda _, __, *tensors: compiled(*tensors))

    def check_gradients(self, words, run):
        tensors = tf.constant(HIDDEN), tf.constant(TARGETS)
        nats, gradients = run(our_nats, words, *tensors)
        expected, expected_gradients = nats_and_gradients(naive_nats, words, *tensors)
        np.testing.assert_allclose(nats, expected, rtol=0, atol=SCORES_ATOL)
        self.assertLen(gradients, 1 + len(words.variables))
        for got, wanted in zip(gradients, expected_gradients, strict=True):
            self.assertIsInstance(got, tf.Tensor)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=GRADIENTS_ATOL)

    @parameterized.parameters("plain_narrow", "one_table_narrow", "halves_own")
    def test_bfloat16_is_close_and_returns_float32(self, kind):
        exact, words = Words(kind), Words(kind, dtype="mixed_bfloat16")
        for options in ({}, dict(targets=TARGETS)):
            got = words(HIDDEN, **options)
            self.assertEqual(got.dtype, tf.float32)
            error = np.abs(got - exact(HIDDEN, **options)).mean()
            self.assertLess(error, rounding.typical(8, 16, scale=0.5 * 8**0.5))
        products = [
            op.outputs[0].dtype
            for op in tf.function(words).get_concrete_function(HIDDEN).graph.get_operations()
            if op.type == "MatMul"
        ]
        self.assertEqual(set(products), {tf.bfloat16})
        sums = np.exp(tf.nn.log_softmax(words(HIDDEN))).sum(-1)
        np.testing.assert_allclose(sums, np.ones([3, 7]), rtol=0, atol=SCORES_ATOL)

    @parameterized.parameters("plain", "one_table", "halves")
    def test_unknown_sizes(self, kind):
        words = Words(kind)
        spec = [tf.TensorSpec([None, None, 8]), tf.TensorSpec([None, None], tf.int32)]
        scores = tf.function(words, input_signature=spec[:1])
        nats = tf.function(functools.partial(our_nats, words), input_signature=spec)
        for rows, tokens in ((3, 7), (1, 1), (2, 4)):
            hidden, targets = HIDDEN[:rows, :tokens], TARGETS[:rows, :tokens]
            expected = oracle(words, hidden)
            np.testing.assert_allclose(scores(hidden), expected, rtol=0, atol=SCORES_ATOL)
            expected = oracle_nats(words, hidden, targets)
            np.testing.assert_allclose(nats(hidden, targets), expected, rtol=0, atol=SCORES_ATOL)

    @parameterized.parameters("plain", "halves")
    def test_keras_knows_the_shapes(self, kind):
        words, hidden = Words(kind), keras.KerasTensor((2, None, 8))
        self.assertEqual(words(hidden).shape, (2, None, 11))
        targets = keras.KerasTensor((2, None), dtype="int32")
        self.assertEqual(words(hidden, targets=targets).shape, (2, None))

    @parameterized.parameters(("ours", False), ("naive", True))
    def test_compiled_loss_holds_no_scores_of_a_tail_for_all_tokens(self, kind, expected):
        tokens, head, tail = 300, 29, 41  # more tokens than a chunk
        options = dict(vocab_size=head + tail, d_model=8, d_embed=8, cutoffs=(head,))
        softmax = AdaptiveSoftmax(**options)
        softmax.build()

        def words(hidden, **options):
            return softmax(hidden, [tf.ones([head + tail, 8])], [None], **options)

        def loss_and_gradient(hidden, targets):
            with tf.GradientTape() as tape:
                tape.watch(hidden)
                nats = (our_nats if kind == "ours" else naive_nats)(words, hidden, targets)
            return nats, tape.gradient(nats, hidden)

        compiled = tf.function(loss_and_gradient, jit_compile=True)
        text = compiled.experimental_get_compiler_ir(
            tf.zeros([1, tokens, 8]), tf.zeros([1, tokens], tf.int32)
        )(stage="hlo")
        self.assertIn(f"[{tokens},{head}]", text)
        self.assertEqual(f"[{tokens},{tail}]" in text, expected)

    def test_a_projection_of_several_clusters_is_applied_once(self):
        graph = tf.function(Words("one_table_all_tied")).get_concrete_function(HIDDEN).graph
        products = [op for op in graph.get_operations() if op.type == "MatMul"]
        self.assertLen(products, 3)  # projection, all words, tail clusters

    @parameterized.parameters("plain_narrow", "one_table_narrow", "halves")
    def test_converts_to_tflite_with_built_in_operations(self, kind):
        words = Words(kind)

        @functools.partial(tf.function, input_signature=[tf.TensorSpec([1, 5], tf.int32)])
        def scores(ids):
            return words(tf.tanh(words.embedding(ids)))

        converter = tf.lite.TFLiteConverter.from_concrete_functions(
            [scores.get_concrete_function()], words.softmax
        )
        interpreter = tf.lite.Interpreter(model_content=converter.convert())
        interpreter.allocate_tensors()
        ids = helpers.draw_ids(1, 5)
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], ids)
        interpreter.invoke()
        got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_allclose(got, scores(ids), rtol=0, atol=SCORES_ATOL)


if __name__ == "__main__":
    absltest.main()
