"""Event files of a killed run contain each point once."""

import pathlib

import tensorflow as tf
from absl.testing import absltest

import helpers
from txl_tf.training.metric_writers import Summaries


class SummariesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)

    def run_until(self, step, start=0, config="c"):
        """A process that starts after `start` and tells of each step, and of every second twice."""
        summaries = Summaries(str(self.folder))
        summaries.begin(start, config)
        for number in range(start + 1, step + 1):
            summaries.write("train", number, {"nats": number / 2, "lr": 1.0})
            if number % 2 == 0:
                summaries.write("valid", number, {"nats": number / 4})
                summaries.write_text("valid", number, "sample", f"text {number}")

    def points(self, curve):
        """(name, step) of all points, file by file, in order."""
        found = []
        for path in sorted((self.folder / "tensorboard" / curve).glob("*tfevents*")):
            for event in tf.compat.v1.train.summary_iterator(str(path)):
                found += [(value.tag, event.step) for value in event.summary.value]
        return found

    def test_a_resumed_run_logs_each_step_once(self):
        self.run_until(7)
        self.run_until(6, start=4)  # killed again, before it saved
        self.run_until(9, start=4)
        train = self.points("train")
        self.assertCountEqual(train, set(train))
        steps = [step for name, step in train if name == "nats"]
        self.assertEqual(steps, list(range(1, 10)))
        self.assertEqual([step for name, step in train if name == "config"], [0, 4])
        expected = [(name, step) for step in (2, 4, 6, 8) for name in ("nats", "sample")]
        self.assertEqual(self.points("valid"), expected)
        names = [
            p.name for p in pathlib.Path(self.folder / "tensorboard").rglob("*") if p.is_file()
        ]
        self.assertTrue(all("tfevents" in name for name in names), names)

    def test_without_the_rule_they_are_there_twice(self):
        self.run_until(7)
        with absltest.mock.patch("txl_tf.training.metric_writers._keep_until"):
            self.run_until(9, start=4)
        self.assertEqual(self.points("train").count(("nats", 5)), 2)

    def test_a_torn_end_goes(self):
        self.run_until(3)
        (path,) = (self.folder / "tensorboard" / "train").glob("*tfevents*")
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        self.run_until(3, start=2)
        steps = [step for name, step in self.points("train") if name == "lr"]
        self.assertEqual(steps, [1, 2, 3])

    def test_files_that_lose_nothing_stay_as_they_are(self):
        self.run_until(4)
        (path,) = (self.folder / "tensorboard" / "train").glob("*tfevents*")
        before = path.stat()
        self.run_until(6, start=4)
        after = path.stat()
        self.assertEqual((after.st_ino, after.st_size), (before.st_ino, before.st_size))


if __name__ == "__main__":
    absltest.main()
