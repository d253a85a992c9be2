"""Tests of benchmarks.suites.growth: its points, checks and rows."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized
from benchmark_test import SMALL

import helpers
import trained
from benchmarks import timing
from benchmarks.options import Options
from benchmarks.suites import growth
from benchmarks.suites.growth import Point
from txl_tf.configs.run import Config, EvalConfig, TrainConfig

CONFIG = Config(
    model=helpers.tiny_config(mem_len=6, init_std=0.5),
    train=TrainConfig(batch_size=4, segment_len=8, jit=False, accumulate_steps=2),
    eval=EvalConfig(batch_size=3, mem_len=10),
)


class PointsTest(absltest.TestCase):
    def test_one_length_at_a_time(self):
        points = growth.points(CONFIG)
        self.assertLen(set(points), 2 * 7 + 2)
        for work, base in (("eval", (3, 8, 10)), ("train", (4, 8, 6))):
            for name, *lengths, _ in (p[1:] for p in points if p.work == work):
                expected = dict(zip(("batch_size", "segment_len", "mem_len"), base, strict=True))
                found = dict(zip(expected, lengths, strict=True))
                if name in expected:
                    self.assertIn(
                        found[name],
                        {expected[name] // 2, -(-expected[name] // 2)} | {2 * expected[name]},
                    )
                    expected[name] = found[name]
                self.assertEqual(found, expected)

    def test_a_text_four_times_as_long(self):
        short, long = (p for p in growth.points(CONFIG) if p.varied == "segments")
        self.assertEqual(long, short._replace(segments=4 * short.segments))


class WorkTest(parameterized.TestCase):
    @parameterized.parameters("eval", "train")
    def test_wrong_losses_are_rejected(self, work):
        point = Point(work, "none", 2, 3, 4)
        made = growth._WORKS[work](CONFIG, point)
        made.check()
        wrong = mock.patch.object(type(made), "__call__", lambda self: np.float32(0.5))
        with wrong, self.assertRaisesRegex(ValueError, "^loss .* must be within 0.0001 of"):
            made.check()

    def test_with_dropout_the_loss_must_be_finite(self):
        config = dataclasses.replace(CONFIG, model=helpers.tiny_config(dropout=0.5))
        made = growth.Training(config, Point("train", "none", 2, 3, 4))
        made.check()
        wrong = mock.patch.object(type(made), "__call__", lambda self: np.float32(np.nan))
        with wrong, self.assertRaisesRegex(ValueError, "difference of nan"):
            made.check()

    def test_precision_must_be_known(self):
        self.assertEqual(growth.policy("bfloat16"), "mixed_bfloat16")
        message = "precision must be one of float32, bfloat16, got 'float16'"
        with self.assertRaisesRegex(ValueError, message):
            growth.policy("float16")

    def test_rows(self):
        points = [Point("train", "none", 2, 3, 4), Point("eval", "mem_len", 2, 5, 4)]
        peaks = mock.Mock(side_effect=[100e6, 130e6, 170e6])  # at rest, eval, train
        times = mock.Mock(side_effect=lambda x, _: dict.fromkeys(x, timing.Timing(0.3, 0.2, 0.6)))
        with (
            mock.patch.object(growth, "peak", peaks),
            mock.patch.object(timing, "race", times),
        ):
            rows = growth.measure(CONFIG, Options(), points)
        self.assertEqual([row["work"] for row in rows], ["eval", "train"])
        self.assertEqual([row["own_mb"] for row in rows], [30, 70])
        for row, tokens in zip(rows, (10, 6), strict=True):
            figures = [row[name] for name in ("ms_per_token", "fastest", "slowest")]
            np.testing.assert_allclose(figures, [300 / tokens, 200 / tokens, 600 / tokens])


@pytest.mark.slow
class ProgramTest(absltest.TestCase):
    def test_rows(self):
        sizes = ("--set=train.segment_len=4", "--set=train.batch_size=2", "--set=eval.batch_size=2")
        flags = ("--suite=growth", "--repeats=1", "--varied=segments")
        stdout, _ = trained.run("benchmark", *flags, *sizes, *SMALL)
        rows = trained.last_json(stdout)["rows"]
        found = [(row["work"], row["varied"]) for row in rows]
        texts = [("eval", "segments")] * 2
        self.assertEqual(found, [("eval", "none"), *texts, ("train", "none")])
        for row in rows:
            self.assertEqual(row.keys(), rows[0].keys())
            self.assertLessEqual(row["fastest"], row["ms_per_token"])
            self.assertLessEqual(row["ms_per_token"], row["slowest"])
            self.assertBetween(row["own_mb"], 1, row["peak_mb"])
        short, long = (row["own_mb"] for row in rows if row["varied"] == "segments")
        self.assertLess(abs(long - short), 30)


if __name__ == "__main__":
    absltest.main()
