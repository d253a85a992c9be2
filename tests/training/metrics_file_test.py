"""metrics.jsonl survives a killed process without repeated or partial lines."""

import math

from absl.testing import absltest, parameterized

import helpers
import run_files
from txl_tf.training.metric_writers import MetricsFile


class MetricsFileTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.path = self.folder / "metrics.jsonl"
        self.metrics = MetricsFile(str(self.folder))

    def write(self, *steps):
        for step in steps:
            self.metrics.write("train", step, {"nats": step / 3})

    def test_numbers_come_back_as_they_were(self):
        self.write(1, 2)
        self.metrics.write("valid", 2, {"nats": math.nan, "perplexity": math.inf, "scored": 9})
        expected = [
            {"step": 1, "split": "train", "nats": 1 / 3},
            {"step": 2, "split": "train", "nats": 2 / 3},
            {"step": 2, "split": "valid", "nats": None, "perplexity": None, "scored": 9},
        ]
        self.assertEqual(run_files.metrics(self.folder), expected)
        self.assertEqual(self.metrics.keep_until(2), expected)

    @parameterized.parameters((0, []), (3, [1, 3]), (4, [1, 3]), (9, [1, 3, 5]))
    def test_what_comes_after_the_step_goes(self, step, expected):
        self.write(1, 3, 5)
        kept = self.metrics.keep_until(step)
        self.assertEqual([line["step"] for line in kept], expected)
        self.assertEqual(run_files.metrics(self.folder), kept)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["metrics.jsonl"])
        self.write(step + 1)
        steps = [line["step"] for line in run_files.metrics(self.folder)]
        self.assertEqual(steps, [*expected, step + 1])

    @parameterized.parameters(
        b'{"step": 2, "split": "tr',
        b'{"step": 2, "split": "train"}',  # whole but for its end: a next line would stick to it
        b'{"step": 2, "split": "train", "nats": "\xe2\x82',
        b"{}\n",
        b"[2]\n",
        b"\n",
    )
    def test_a_line_that_is_not_whole_goes(self, torn):
        self.write(1)
        whole = self.path.read_bytes()
        self.path.write_bytes(whole + torn)
        with self.assertLogs(level="INFO") as logs:
            self.assertLen(self.metrics.keep_until(9), 1)
        self.assertIn("metrics.jsonl: dropped 1 lines", logs.output[0])
        self.assertEqual(self.path.read_bytes(), whole)

    def test_no_file_is_no_line(self):
        self.assertEqual(self.metrics.keep_until(3), [])
        self.assertFalse(self.path.exists())


if __name__ == "__main__":
    absltest.main()
