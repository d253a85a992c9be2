"""Tests of benchmarks.timing on simulated clocks: the order of calls and the arithmetic."""

from unittest import mock

from absl.testing import absltest

from benchmarks import timing


class TurnsTest(absltest.TestCase):
    def test_take_turns_calls_once_per_turn(self):
        seconds = {"step": iter([3.0, 1.0, 2.0]), "program": iter([4.0, 6.0, 8.0])}
        called = []

        def contender(name):
            def call():
                called.append(name)
                return timing.Seconds(next(seconds[name]))

            return call

        found = timing.take_turns({name: contender(name) for name in seconds}, 3)
        self.assertEqual(found, {"step": (2.0, 1.0, 3.0), "program": (6.0, 4.0, 8.0)})
        self.assertEqual(called, ["step", "program"] * 3)


class RaceTest(absltest.TestCase):
    def race(self, durations, repeats):
        """Races contenders on a simulated clock; returns the calls in order."""
        now, called = [0.0], []

        def contender(name):
            def call():
                called.append(name)
                now[0] += durations[name]

            return call

        with mock.patch.object(timing.time, "perf_counter", lambda: now[0]):
            found = timing.race({name: contender(name) for name in durations}, repeats)
        return found, called

    def test_times_are_per_call(self):
        found, _ = self.race({"slow": 0.5, "fast": 0.01}, repeats=3)
        for name, seconds in (("slow", 0.5), ("fast", 0.01)):
            for value in found[name]:
                self.assertAlmostEqual(value, seconds)

    def test_contenders_take_turns(self):
        _, called = self.race({"slow": 0.5, "fast": 0.1}, repeats=2)
        before = ["slow", "slow", "fast", "fast"]  # to compile, and to count the calls of a turn
        self.assertEqual(called, before + ["slow", "slow", "fast", "fast", "fast"] * 3)

    def test_the_median_is_reported(self):
        # Two before, a turn to warm up, three that count; the first call of a turn does not.
        turns = iter([1.0, 1.0, 7.0, 9.0, 7.0, 3.0, 7.0, 1.0, 7.0, 8.0])
        now = [0.0]

        def call():
            now[0] += next(turns)

        with mock.patch.object(timing.time, "perf_counter", lambda: now[0]):
            found = timing.race({"only": call}, repeats=3)
        self.assertEqual(found["only"], timing.Timing(3.0, 1.0, 8.0))

    def test_reported_seconds_are_used(self):
        now, own = (
            [0.0],
            iter([4.0, 0.1, 7.0, 9.0, 9.0, 7.0, 0.1, 0.2, 7.0, 0.3, 0.1, 7.0, 0.5, 0.5]),
        )

        def call():
            now[0] += 5.0  # the way to another process, or what else is not counted
            return timing.Seconds(next(own))

        with mock.patch.object(timing.time, "perf_counter", lambda: now[0]):
            found = timing.race({"other": call}, repeats=3)["other"]
        self.assertIsNone(next(own, None))  # two calls of a turn count, by its own seconds
        self.assertAlmostEqual(found.median, 0.2)

    def test_only_seconds_are_reported_times(self):
        now = [0.0]

        def call():
            now[0] += 1.0
            return 0.25  # a loss, perhaps

        with mock.patch.object(timing.time, "perf_counter", lambda: now[0]):
            found = timing.race({"only": call}, repeats=1)
        self.assertEqual(found["only"].median, 1.0)


if __name__ == "__main__":
    absltest.main()
