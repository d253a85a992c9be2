"""The progress line."""

from unittest import mock

from absl.testing import absltest

from txl_tf.data import progress


class ProgressTest(absltest.TestCase):
    def test_rate_and_time_left(self):
        with mock.patch.object(progress.time, "monotonic") as clock:
            clock.return_value = 100.0
            meter = progress.Progress("count:train", 50_000_000, every=5)
            clock.return_value = 104.9
            with self.assertNoLogs():
                meter.reach(10_000_000)
            clock.return_value = 105.0
            with self.assertLogs(level="INFO") as logs:
                meter.reach(20_000_000)
            clock.return_value = 106.0
            with self.assertNoLogs():
                meter.reach(30_000_000)
        self.assertEqual(meter.done, 30_000_000)
        self.assertEqual(
            [record.getMessage() for record in logs.records],
            ["pass=count:train mb=20.0 of_mb=50.0 mb_per_s=4.0 seconds_left=8"],
        )


if __name__ == "__main__":
    absltest.main()
