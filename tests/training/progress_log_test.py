"""Tests of the training log: means over real tokens, rates, curves, NaN and infinity."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import run_files
from txl_tf.configs.run import TrainConfig
from txl_tf.data.text_size import TextSize
from txl_tf.inference.evaluation import Evaluation
from txl_tf.training.metric_writers import MetricsFile, Summaries
from txl_tf.training.progress_log import ProgressLog
from txl_tf.training.skips import NonFiniteError
from txl_tf.training.step import Metrics


def metrics(nats, tokens=10, gradient_norm=1.0):
    skipped = 0.0 if math.isfinite(nats + gradient_norm) else 1.0
    return Metrics(*map(tf.constant, (nats, float(tokens), 0.5, gradient_norm, skipped)))


class JournalTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = helpers.temp_dir(self)
        self.now = 100.0
        self.enter_context(absltest.mock.patch("time.monotonic", side_effect=lambda: self.now))

    def journal(self, unit="byte", unknown=0, train_steps=20, **changes):
        config = TrainConfig(train_steps=train_steps, **changes)
        size = TextSize(tokens=40, bytes=40, characters=40, unknown=unknown)
        records = [Summaries(str(self.path)), MetricsFile(str(self.path))]
        return ProgressLog(config, unit, size, records)

    def told(self, function, *args):
        with self.assertLogs(level="INFO") as logs:
            result = function(*args)
        (line,) = logs.output
        return line.partition("absl:")[2], result

    def test_the_first_line_has_the_compile_time_and_the_next_the_rate(self):
        journal = self.journal()
        journal.note(1, metrics(2.0))
        self.now += 30.0  # compiles
        line, nats = self.told(journal.log_interval, 1)
        self.assertRegex(line, r"^step=1 loss=2 bits_per_byte=2.885 lr=0.5 gradient_norm=1 first")
        self.assertEndsWith(line, "first_step_s=30.0")
        self.assertEqual(nats, 2.0)
        for step in (2, 3, 4, 5):
            journal.note(step, metrics(1.0))
        self.now += 2.0
        line, _ = self.told(journal.log_interval, 5)
        self.assertEndsWith(line, "tokens_per_s=20 seconds_left=8")  # 15 steps of half a second

    def test_pauses_do_not_count(self):
        journal = self.journal()
        journal.note(1, metrics(2.0))
        journal.log_interval(1)
        journal.note(2, metrics(2.0))
        self.now += 1.0
        with journal.paused():
            self.now += 500.0
        journal.note(3, metrics(2.0))
        self.now += 1.0
        line, _ = self.told(journal.log_interval, 3)
        self.assertIn("tokens_per_s=10 ", line)

    def test_means_are_weighted_by_tokens(self):
        journal = self.journal()
        journal.note(1, metrics(1.0, tokens=30))
        journal.note(2, metrics(2.0, tokens=10))
        self.assertAlmostEqual(journal.log_interval(2), 1.25)

    @parameterized.parameters(
        ("byte", 0, "bits_per_byte=1.443"),
        ("character", 0, "bits_per_character=1.443"),
        ("character", 1, "perplexity=2.718"),
        (None, 0, "perplexity=2.718"),
    )
    def test_a_loss_is_logged_in_the_unit_of_its_tokens(self, unit, unknown, expected):
        journal = self.journal(unit, unknown)
        journal.note(1, metrics(1.0))
        self.assertIn(expected, self.told(journal.log_interval, 1)[0])

    def test_is_due_at_first_then_each_period_and_after_a_minute_of_silence(self):
        journal = self.journal()
        self.assertTrue(journal.is_due(1, 10))
        journal.note(1, metrics(1.0))
        journal.log_interval(1)
        self.assertFalse(journal.is_due(9, 10))
        self.assertTrue(journal.is_due(10, 10))
        self.now += 61.0
        self.assertTrue(journal.is_due(11, 10))

    @parameterized.parameters(
        (dict(nats=math.nan), "loss must be finite, got nan at step 2"),
        (dict(nats=math.inf), "loss must be finite, got inf at step 2"),
        (dict(nats=1.0, gradient_norm=math.nan), "gradient_norm must be finite, got nan at step 2"),
    )
    def test_nan_stops_the_run_before_it_is_saved(self, bad, message):
        for ask in ("tell", "paused"):
            journal = self.journal(max_skipped_steps=0)
            journal.note(1, metrics(1.0))
            journal.note(2, metrics(**bad))
            journal.note(3, metrics(math.nan))
            with self.assertRaisesRegex(NonFiniteError, message):
                if ask == "tell":
                    journal.log_interval(3)
                else:
                    with journal.paused():
                        self.fail("what went wrong was about to be saved")

    def test_skipped_steps_are_counted_and_named_up_to_a_limit(self):
        journal = self.journal(max_skipped_steps=2)
        for step, nats in enumerate((1.0, math.nan, math.inf, 3.0, math.nan), 1):
            journal.note(step, metrics(nats))
        with self.assertLogs(level="WARNING") as logs:
            self.assertEqual(journal.log_interval(5), 2.0)  # the mean of the others
        self.assertLen(logs.output, 3)
        self.assertIn("step=3 skipped: loss=inf, weights and memory unchanged", logs.output[1])
        for step in (6, 7):
            journal.note(step, metrics(1.0, gradient_norm=math.inf))
        with self.assertRaisesRegex(
            NonFiniteError, "gradient_norm must be finite, got inf at step 7, number 3 in a row"
        ):
            journal.log_interval(7)

    def test_curves_hold_what_the_lines_say(self):
        journal = self.journal()
        journal.note(1, metrics(2.0))
        journal.log_interval(1)
        valid = Evaluation(
            split="valid",
            targets=9,
            scored=9,
            unknown=0,
            nats=27.0,
            nats_per_token=3.0,
            perplexity=math.exp(3),
            bits_per_byte=3 / math.log(2),
            bits_per_character=None,
            bits_unavailable=None,
        )
        line, _ = self.told(journal.log_validation, 1, valid)
        self.assertEqual(line, "step=1 valid: loss=3 bits_per_byte=4.328 scored=9")
        train, valid = (
            run_files.curve(self.path / "tensorboard" / name) for name in ("train", "valid")
        )
        self.assertEqual(train["loss", 1], 2.0)
        self.assertEqual(train["lr", 1], 0.5)
        np.testing.assert_allclose(train["bits_per_byte", 1], 2 / math.log(2), rtol=1e-6)
        self.assertEqual(valid["loss", 1], 3.0)
        self.assertGreater(train["memory_bytes", 1], 50e6)  # TensorFlow alone is more
        self.assertEqual(train["skipped_steps", 1], 0.0)

    def test_a_file_holds_what_the_lines_say(self):
        journal = self.journal(max_skipped_steps=2)
        journal.note(1, metrics(2.0))
        journal.log_interval(1)
        self.now += 2.0
        journal.note(2, metrics(math.nan))
        journal.note(3, metrics(1.0))
        journal.log_interval(3)
        journal.note(4, metrics(math.nan))
        self.now += 1.0
        self.assertTrue(math.isnan(journal.log_interval(4)))
        first, second, third = run_files.metrics(self.path)
        common = "step split steps loss bits_per_byte lr gradient_norm skipped_steps memory_bytes"
        self.assertCountEqual(first, [*common.split(), "first_step_s"])
        self.assertCountEqual(second, [*common.split(), "tokens_per_s"])
        told = [second[name] for name in ("step", "split", "steps", "loss", "skipped_steps")]
        self.assertEqual(told, [3, "train", 2, 1.0, 1])
        self.assertEqual(second["tokens_per_s"], 5.0)
        self.assertEqual((third["loss"], third["skipped_steps"]), (None, 2))  # NaN is not JSON

    def test_skipped_steps_are_counted_on(self):
        journal = self.journal()
        journal.resume([{"step": 1, "skipped_steps": 3}, {"step": 1, "split": "valid"}])
        journal.note(2, metrics(1.0))
        self.assertIn("skipped_steps=3", self.told(journal.log_interval, 2)[0])


if __name__ == "__main__":
    absltest.main()
