"""Tests of txl_tf.inference.metrics."""

import json
import math

import numpy as np
from absl.testing import absltest, parameterized

import rounding
from txl_tf.data.text_size import TextSize
from txl_tf.inference import metrics as sums
from txl_tf.inference.metrics import Totals


class TotalsTest(absltest.TestCase):
    def test_weighs_by_tokens(self):  # AC13
        totals = Totals()
        for nats in ([1.0, 1.0], [0.5, 1.5], [6.0]):
            totals.add(np.array(nats))
        self.assertEqual(totals.scored, 5)
        self.assertAlmostEqual(totals.nats_per_token, 2.0)
        self.assertAlmostEqual(sums.perplexity(totals.nats_per_token), math.exp(2.0))

    def test_ignored_targets_do_not_count(self):
        totals = Totals()
        totals.add(np.array([[1.0, 50.0], [3.0, np.nan]]), np.array([[4, -1], [0, -1]]))
        self.assertEqual((totals.nats, totals.scored), (4.0, 2))

    def test_adds_up_in_float64(self):
        totals = Totals()
        for _ in range(100):
            totals.add(np.full(1000, 0.1, np.float32))
        expected = 1e5 * float(np.float32(0.1))
        atol = rounding.tolerance(100_000, scale=expected, dtype="float64")
        self.assertAlmostEqual(totals.nats, expected, delta=atol)

    def test_nothing_scored(self):
        with self.assertRaisesRegex(ValueError, "at least one target must be scored, got none"):
            _ = Totals().nats_per_token


class MeasuresTest(parameterized.TestCase):
    def test_bits_of_tokens_that_are_bytes(self):
        self.assertEqual(sums.bits_per(2.0, 1000, 1000), 2.0 / math.log(2))

    def test_the_first_token_pays_too(self):
        # 5 tokens for 20 bytes, 4 of them scored at 3 nats: the text costs 5 * 3.
        self.assertAlmostEqual(sums.bits_per(3.0, 5, 20), 15.0 / math.log(2) / 20)

    def test_bits_of_a_text(self):
        size = TextSize(tokens=5, bytes=20, characters=10)
        per_byte = 15.0 / math.log(2) / 20
        found = sums.bits(3.0, size)
        self.assertAlmostEqual(found.bits_per_byte, per_byte)
        self.assertAlmostEqual(found.bits_per_character, 2 * per_byte)
        self.assertIsNone(found.bits_unavailable)

    def test_bits_of_binary_data(self):
        found = sums.bits(1.0, TextSize(tokens=2, bytes=2, characters=0))  # 2 later bytes of UTF-8
        self.assertEqual(found[:2], (1.0 / math.log(2), None))
        self.assertEqual(found.bits_unavailable, "the text has no known characters")

    @parameterized.parameters(
        (3.0, TextSize(5, 20, 20, 2), "2 of 5 tokens stand for symbols outside the vocabulary"),
        (None, TextSize(1, 4, 4), "no token was scored"),
        (3.0, TextSize(5), "the text has no known bytes and characters"),
    )
    def test_bits_that_are_not_known(self, nats, size, reason):
        found = sums.bits(nats, size)
        self.assertEqual(found[:2], (None, None))
        self.assertStartsWith(found.bits_unavailable, reason)

    def test_perplexity_has_no_limit(self):
        self.assertEqual(sums.perplexity(1e4), math.inf)

    def test_json_has_neither_infinity_nor_nan(self):
        deep = sums.plain({"a": {"b": (None, math.nan, 1.5, "x"), "c": -math.inf}})
        self.assertEqual(deep, {"a": {"b": [None, None, 1.5, "x"], "c": None}})
        values = sums.plain({"a": math.inf, "b": math.nan, "c": 1.5, "d": "x", "e": None})
        self.assertEqual(
            json.dumps(values), '{"a": null, "b": null, "c": 1.5, "d": "x", "e": null}'
        )


if __name__ == "__main__":
    absltest.main()
