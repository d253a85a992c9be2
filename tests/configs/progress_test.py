"""Tests of progress lines: their contents, and no thread left running."""

import threading
import time
from unittest import mock

from absl.testing import absltest

from txl_tf import progress
from txl_tf.progress import Progress


class LineTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = self.enter_context(mock.patch.object(progress.time, "monotonic"))
        self.clock.return_value = 100.0

    def test_rate_and_time_left_of_a_known_total(self):
        job = Progress("count:train", "mb", total=50)
        job.reach(0.0)
        self.clock.return_value = 105.0
        job.reach(20.0)
        told = "job=count:train mb=20 of_mb=50 mb_per_s=4 seconds_left="
        for clock, left in ((105.0, 8), (108.4, 4), (120.0, 0)):  # it goes on without word
            self.clock.return_value = clock
            self.assertEqual(job.line(), f"{told}{left}")

    def test_a_share_in_place_of_a_total(self):
        job = Progress("score", "tokens")
        job.reach(1000, 0.1)
        self.clock.return_value = 102.0
        job.reach(3000, 0.3, nats="2.5")
        told = "job=score tokens=3000 tokens_per_s=1000 nats=2.5 seconds_left=7"
        self.assertEqual(job.line(), told)

    def test_time_before_the_first_report_does_not_count(self):
        """Compiling takes an hour here; a hundred steps of a second are left."""
        job = Progress("evaluate", "batches", total=110)
        self.clock.return_value = 3700.0
        job.reach(1)
        self.clock.return_value = 3709.0
        job.reach(10)
        told = "job=evaluate batches=10 of_batches=110 batches_per_s=1 seconds_left=100"
        self.assertEqual(job.line(), told)

    def test_nothing_is_counted_yet(self):
        job = Progress("import")
        self.clock.return_value = 120.4
        self.assertEqual(job.line(), "job=import seconds=20")

    def test_neither_total_nor_share(self):
        job = Progress("predict", "texts")
        job.reach(1)
        self.assertEqual(job.line(), "job=predict texts=1")
        self.clock.return_value = 102.0
        job.reach(6)
        self.assertEqual(job.line(), "job=predict texts=6 texts_per_s=2.5")


class ThreadTest(absltest.TestCase):
    def test_lines_come_while_the_job_is_at_work_and_its_thread_ends(self):
        before = set(threading.enumerate())
        with self.assertLogs(level="INFO") as logs, Progress("outer", every=0.01) as outer:

            def wait_for(line, times):
                while [r.getMessage() for r in logs.records[-times:]] != [line] * times:
                    time.sleep(0.01)

            outer.reach(1)
            wait_for("job=outer steps=1", 1)
            with Progress("inner", every=0.01) as inner:
                inner.reach(3)
                wait_for("job=inner steps=3", 5)  # the outer one is silent
            wait_for("job=outer steps=1", 1)
        self.assertEqual(set(threading.enumerate()), before)

    def test_a_short_job_is_quiet(self):
        with self.assertNoLogs(), Progress("short", "steps", total=2) as job:
            job.reach(2)


if __name__ == "__main__":
    absltest.main()
