import functools
import math

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
    KINDS,
    SCORES_ATOL,
    TARGETS,
    Words,
    nats_and_gradients,
    oracle,
    oracle_nats,
    our_nats,
    to_numpy,
)

ADAPTIVE = tuple(kind for kind in KINDS if not kind.startswith("plain"))
BIASES = {"bias_0": (4,), "bias_1": (3,), "bias_2": (4,), "cluster_bias": (2,)}
OWN_WEIGHTS = dict(
    plain={"bias": (11,)},
    plain_narrow={"bias": (11,)},
    plain_own={"bias": (11,), "table": (11, 6)},
    plain_own_projection={"bias": (11,), "projection": (6, 8)},
    one_table=BIASES | {"cluster_weight": (2, 8)},
    one_table_narrow=BIASES | {"cluster_weight": (2, 6), "projection_0": (6, 8)},
    one_table_all_tied=BIASES | {"cluster_weight": (2, 6)},
    one_table_own=BIASES
    | {"cluster_weight": (2, 6), "table": (11, 6)}
    | {f"projection_{i}": (6, 8) for i in range(3)},
    halves=BIASES | {"cluster_weight": (2, 8), "projection_0": (8, 8)},
    halves_own=BIASES
    | {"cluster_weight": (2, 8), "table_0": (4, 8), "table_1": (3, 4), "table_2": (4, 2)}
    | {"projection_0": (8, 8), "projection_1": (4, 8), "projection_2": (2, 8)},
    quarters=BIASES | {"cluster_weight": (2, 16), "projection_1": (4, 8)},
    unprojected=BIASES | {"cluster_weight": (2, 8), "projection_1": (4, 8), "projection_2": (2, 8)},
    unprojected_tied=BIASES | {"cluster_weight": (2, 16), "projection_0": (16, 8)},
)


def check(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=SCORES_ATOL)


class ByHandTest(parameterized.TestCase):
    """Vocabulary 10, cut-offs 4 and 7, zero weights: counts of words and clusters are all."""

    def make(self):
        options = dict(vocab_size=10, d_model=8, d_embed=8, cutoffs=(4, 7))
        softmax = AdaptiveSoftmax(**options)
        softmax.build()
        tables = [tf.zeros([10, 8])]
        hidden = tf.random.stateless_normal([1, 10, 8], seed=[0, 0])
        return softmax, functools.partial(softmax, hidden, tables, [None])

    def test_zero_weights(self):
        _, call = self.make()
        nats = call(targets=tf.range(10)[tf.newaxis])
        expected = [math.log(6)] * 4 + [math.log(18)] * 6
        atol = rounding.tolerance(2 * 6, scale=math.log(18))
        np.testing.assert_allclose(nats[0], expected, rtol=0, atol=atol)
        sums = tf.reduce_sum(tf.exp(call()), axis=-1)
        np.testing.assert_allclose(sums, np.ones([1, 10]), rtol=0, atol=10 * atol)

    def test_bias_of_the_first_tail_cluster(self):
        softmax, call = self.make()
        softmax.cluster_bias.assign([math.log(2), 0.0])
        nats = call(targets=tf.range(10)[tf.newaxis])
        expected = [math.log(7)] * 4 + [math.log(7 / 2 * 3)] * 3 + [math.log(7 * 3)] * 3
        atol = rounding.tolerance(2 * 6, scale=math.log(21))
        np.testing.assert_allclose(nats[0], expected, rtol=0, atol=atol)

    @parameterized.parameters(
        ((4, 12), r"cutoffs must lie below vocab_size 10, got \(4, 12\)"),
        ((7, 4), r"cutoffs must rise from above 0, got \(7, 4\)"),
        ((0, 4), r"cutoffs must rise from above 0, got \(0, 4\)"),
    )
    def test_impossible_cutoffs_are_refused(self, cutoffs, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(vocab_size=10, cutoffs=cutoffs)


class AdaptiveSoftmaxTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_matches_a_plain_loop(self, kind):
        words = Words(kind)
        check(words(HIDDEN), oracle(words, HIDDEN))
        check(words(HIDDEN, targets=TARGETS), oracle_nats(words, HIDDEN, TARGETS))

    @parameterized.parameters(*KINDS)
    def test_owns_what_the_original_does_not_share(self, kind):
        words = Words(kind)
        owned = {weight.name: tuple(weight.shape) for weight in words.softmax.weights}
        self.assertEqual(owned, OWN_WEIGHTS[kind])

    @parameterized.parameters(*ADAPTIVE)
    def test_probabilities_sum_to_one_and_are_those_of_the_loss(self, kind):
        words = Words(kind)
        probabilities = np.exp(words(HIDDEN))
        check(probabilities.sum(-1), np.ones([3, 7]))
        for word in range(11):
            nats = words(HIDDEN, targets=np.full([3, 7], word, "int32"))
            check(np.exp(-nats), probabilities[..., word])

    def test_without_cutoffs_it_is_the_plain_softmax(self):
        words = Words("plain")
        logits = HIDDEN @ to_numpy(words.embedding.tables[0]).T + to_numpy(words.softmax.biases[0])
        check(words(HIDDEN), logits)
        targets = np.maximum(TARGETS, 0)
        expected = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        check(words(HIDDEN, targets=targets), expected)

    @parameterized.parameters("plain", "halves")
    def test_an_ignored_target_changes_nothing(self, kind):
        words, targets = Words(kind), tf.constant(TARGETS)
        changed = HIDDEN.copy()
        changed[TARGETS == -1] += 1.0
        nats, (slope, *gradients) = nats_and_gradients(
            our_nats, words, tf.constant(HIDDEN), targets
        )
        np.testing.assert_array_equal(nats[TARGETS == -1], 0.0)
        np.testing.assert_array_equal(slope[TARGETS == -1], 0.0)
        again, (_, *gradients_again) = nats_and_gradients(
            our_nats, words, tf.constant(changed), targets
        )
        np.testing.assert_array_equal(again, nats)
        for got, wanted in zip(gradients_again, gradients, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=GRADIENTS_ATOL)

    @parameterized.product(kind=("plain", "one_table", "halves"), wrong=(-2, 11))
    def test_other_targets_outside_the_vocabulary_are_errors(self, kind, wrong):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "label value"):
            Words(kind)(HIDDEN[:1, :2], targets=np.array([[0, wrong]], "int32"))

    def test_fresh_weights(self):
        softmax = AdaptiveSoftmax(
            vocab_size=400, d_model=64, d_embed=64, cutoffs=(100, 200), div_val=2,
            tie_embeddings=False, init_std=0.5,
        )  # fmt: skip
        softmax.build()
        for weights, deviation in ((softmax.tables, 0.5), (softmax.projections, 0.01)):
            for weight in weights:
                np.testing.assert_allclose(to_numpy(weight).std(), deviation, rtol=0.1)
        for weight in (*softmax.biases, softmax.cluster_weight, softmax.cluster_bias):
            np.testing.assert_array_equal(to_numpy(weight), np.zeros(weight.shape))

    @parameterized.parameters("plain_own", "halves", "unprojected_tied")
    def test_config_and_weights_make_the_same_layer_again(self, kind):
        words = Words(kind)
        config = keras.saving.serialize_keras_object(words.softmax)
        twin = keras.saving.deserialize_keras_object(config)
        self.assertEqual(twin.get_config(), words.softmax.get_config())
        twin.set_weights(words.softmax.get_weights())
        expected = words(HIDDEN)
        words.softmax = twin
        np.testing.assert_array_equal(words(HIDDEN), expected)


if __name__ == "__main__":
    absltest.main()
