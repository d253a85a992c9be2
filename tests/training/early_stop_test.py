"""Tests of early stopping, which counts across resumes."""

import math

from absl.testing import absltest, parameterized

from txl_tf.training.reporter import EarlyStop


class EarlyStopTest(parameterized.TestCase):
    @parameterized.parameters(
        ([2.0, 1.0, 1.5, 1.4], 2, [False, False, False, True]),
        ([2.0, 3.0, 1.5, 1.6, 1.4, 1.7, 1.8], 2, [False] * 6 + [True]),
        ([1.0, 1.0], 1, [False, True]),  # as good is not better
        ([2.0, math.nan, math.inf], 2, [False, False, True]),
        ([math.nan, 1.0], 2, [False, False]),
        ([3.0, 4.0, 5.0, 6.0], None, [False] * 4),
    )
    def test_is_due_after_so_many_in_a_row(self, values, limit, expected):
        stop, found = EarlyStop(limit), []
        for value in values:
            stop.note(value)
            found.append(stop.is_due)
        self.assertEqual(found, expected)

    @parameterized.parameters(range(5))
    def test_counts_on_from_the_lines_of_a_file(self, cut):
        values = [2.0, math.nan, 1.5, 1.6, 1.7]
        stop = EarlyStop(2)
        written = [None if math.isnan(value) else value for value in values[:cut]]
        lines = [{"step": i, "split": "valid", "nats": v} for i, v in enumerate(written)]
        stop.note_all([*lines, {"step": 9, "split": "train", "nats": 0.5}])
        for value in values[cut:]:
            self.assertFalse(stop.is_due)
            stop.note(value)
        self.assertTrue(stop.is_due)


if __name__ == "__main__":
    absltest.main()
