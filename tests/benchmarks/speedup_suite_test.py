"""Tests of benchmarks.suites.speedup: its arithmetic, inputs and checks."""

from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized
from benchmark_test import SMALL

import helpers
import rounding
import trained
from benchmarks import comparison
from benchmarks.options import Options
from benchmarks.suites import speedup
from txl_tf.configs import presets
from txl_tf.configs.run import Config
from txl_tf.models.transformer_xl import TransformerXL


class FlopsTest(parameterized.TestCase):
    @parameterized.parameters((800, 723), (1800, 1660), (2800, 2617), (3800, 3586))
    def test_bound_at_the_published_size(self, attention_len, expected):
        counted = speedup.flops(presets.preset("enwik8_base").model, attention_len)
        np.testing.assert_allclose(counted["vanilla"] / counted["ours"], expected, rtol=0.005)

    def test_equals_the_closed_form(self):
        config = helpers.tiny_config(num_layers=3, head_dim=5)  # D 8, H K 10, F 16
        layer = 2 * (4 * 8 * 10 + 2 * 8 * 16)
        for attention_len, distances in ((7, 7), (821, 821), (900, 821)):
            seen = 3 * (layer + 2 * attention_len * 10 + 2 * attention_len * 10)
            expected = dict(vanilla=attention_len * seen, ours=seen + 3 * 2 * distances * 10)
            self.assertEqual(speedup.flops(config, attention_len), expected)


class ContendersTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.config = Config(model=helpers.tiny_config(init_std=0.5))

    @parameterized.product(jit=(False, True), skips=(False, True))
    def test_each_call_reads_the_next_window(self, jit, skips):
        config = speedup.vanilla_config(self.config.model)
        model, text = helpers.loud(TransformerXL(config)), helpers.draw_ids(9)
        sliding = speedup.SlidingWindow(model, text, 6, jit, skips)
        for start in (0, 1, 2, 0):
            scores, _ = model(text[np.newaxis, start : start + 6])
            atol = rounding.of_scores(config)
            np.testing.assert_allclose(sliding(), scores[0, -1], rtol=0, atol=atol)

    @parameterized.parameters(False, True)
    def test_segments_equal_one_pass(self, jit):
        config = helpers.tiny_config(mem_len=6, attention_span=6)
        model, text = helpers.loud(TransformerXL(config)), helpers.draw_ids(15)
        reading = speedup.Segments(model, text, 4, jit)
        self.assertEqual(reading.num_segments, 3)
        found = np.concatenate([reading() for _ in range(3)])
        dense = model.with_lengths(mem_len=0)
        nll, _ = dense.nll(text[np.newaxis, :12], text[np.newaxis, 1:13])
        np.testing.assert_allclose(found, nll[0], rtol=0, atol=rounding.of_scores(config))
        self.assertGreater(np.abs(found - reading()[0]).max(), 1e-2)

    @parameterized.parameters(
        (dict(mem_len=3), "loss of ours float32 jit=false must be within"),
        (dict(attention_span=5), "loss of ours float32 jit=false must be within"),
        (dict(init_std=0.1), "scores of vanilla float32 jit=false must be within"),
    )
    def test_wrong_outputs_are_rejected(self, changes, message):
        copy = comparison.copy
        is_of_ours = "init_std" not in changes

        def wrong_copy(model, precision, **lengths):
            if is_of_ours != (model.config.position == "xl"):
                return copy(model, precision, **lengths)
            if is_of_ours:
                return copy(model, precision, **lengths | changes)
            return TransformerXL(model.config)  # other weights

        options = Options(repeats=1, precisions=("float32",), jits=(False,))
        race = mock.patch.object(speedup.timing, "race", side_effect=AssertionError)
        with race, self.assertRaises(AssertionError):  # the right ones come as far as the race
            speedup.measure(self.config, options, [6], segment_len=4)
        with (
            mock.patch.object(comparison, "copy", wrong_copy),
            self.assertRaisesRegex(ValueError, message),
        ):
            speedup.measure(self.config, options, [6], segment_len=4)


@pytest.mark.slow
class ProgramTest(absltest.TestCase):
    @pytest.mark.half_precision
    def test_a_row_for_each_length_and_precision(self):
        flags = ("--suite=speedup", "--repeats=1", "--attention_len=800", "--attention_len=6")
        stdout, _ = trained.run("benchmark", *flags, "--set=model.init_std=0.3", *SMALL)
        rows = trained.last_json(stdout)["rows"]
        lengths = [(row["attention_len"], row["paper"]) for row in rows]
        self.assertEqual(list(dict.fromkeys(lengths)), [(800, 363), (6, None)])
        for row in rows:
            self.assertEqual(row.keys(), rows[0].keys())
            self.assertAlmostEqual(row["times_faster"], row["vanilla_ms"] / row["ours_ms"])
            self.assertAlmostEqual(row["of_bound"], row["times_faster"] / row["bound"])
            self.assertAlmostEqual(row["over_skipping"], row["skipping_ms"] / row["ours_ms"])
            for who in ("vanilla", "skipping", "ours"):
                self.assertLessEqual(row[f"{who}_fastest"], row[f"{who}_ms"])
                self.assertLessEqual(row[f"{who}_ms"], row[f"{who}_slowest"])
            for who in ("vanilla", "ours"):
                self.assertBetween(row[f"{who}_of_ceiling"], 0, 1)


if __name__ == "__main__":
    absltest.main()
