"""Tests of benchmarks.suites.libraries: each part has its rows, and unequal results are refused."""

import itertools
from unittest import mock

from absl.testing import absltest

from benchmarks import timing
from benchmarks.options import Options
from benchmarks.suites import libraries
from txl_tf.configs.run import Config
from txl_tf.data import tfrecord

import helpers  # isort: skip


def config():
    return Config(model=helpers.tiny_config())


class LibrariesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        for name, value in dict(_EXAMPLES=2, _BYTES=1000, _SEGMENT=4).items():
            self.enter_context(mock.patch.object(libraries, name, value))
        self.enter_context(mock.patch.object(timing, "_MIN_TURN", 0.001))

    def test_rows(self):
        with mock.patch.object(libraries, "_start", lambda module: (len(module), 1.0)):
            rows = libraries.run(config(), Options(repeats=1))
        for part, group in itertools.groupby(rows, lambda row: row["part"]):
            ways = list(group)
            self.assertGreater(len(ways), 1, part)
            self.assertEqual((ways[0]["times_faster"], ways[-1]["by"]), (1.0, "ours"))
        wrong = {row["by"]: row["wrong"] for row in rows if row["part"] == "lower_case"}
        self.assertEqual(wrong["ours"], 0)
        self.assertGreater(min(wrong["tf.strings.lower"], wrong["case_fold_utf8"]), 0)

    def test_start(self):
        seconds, peak = libraries._start("json")
        self.assertBetween(seconds, 0.0, 5.0)
        self.assertBetween(peak, 1.0, 200.0)  # MB: not those of this process, which has TensorFlow

    def test_unequal_results_are_refused(self):
        empty = mock.patch.object(tfrecord, "example", lambda features: b"")
        with empty, self.assertRaisesRegex(ValueError, "^files must be the same, got .* bytes$"):
            libraries.run(config(), Options(repeats=1))


if __name__ == "__main__":
    absltest.main()
