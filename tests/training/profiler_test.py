"""Tests of the steps in a trace, and of invalid ones."""

from absl.testing import absltest, parameterized

import helpers
from txl_tf.training import profiler


class ProfileTest(parameterized.TestCase):
    @parameterized.parameters(("2,5", (2, 5)), ("3,3", (3, 3)), (" 1 , 20", (1, 20)))
    def test_reads_two_steps(self, text, expected):
        self.assertEqual(profiler.parse(text), expected)

    @parameterized.parameters("", "5", "5,3", "0,2", "-1,2", "1,2,3", "a,b", "1.5,2", ",")
    def test_invalid_steps_are_rejected(self, text):
        message = f"profile_steps must be FIRST,LAST, 1 <= FIRST <= LAST, got '{text}'"
        with self.assertRaisesRegex(ValueError, message):
            profiler.parse(text)

    def test_steps_that_never_come(self):
        profiler.check(None, 8)
        profiler.check((1, 8), 8)
        with self.assertRaisesRegex(ValueError, "profile_steps must end by train_steps 8, got 9"):
            profiler.check((2, 9), 8)

    @parameterized.parameters(
        ((3, 5), range(1, 9), [3, 4, 5]),
        ((3, 5), range(4, 9), [4, 5]),  # a run that goes on
        ((3, 5), range(1, 5), [3, 4]),  # a run that is stopped
        ((3, 3), range(1, 9), [3]),
        ((3, 5), range(6, 9), []),
        (None, range(1, 9), []),
    )
    def test_traces_these_steps_in_one_piece(self, steps, run, expected):
        tensorflows = absltest.mock.Mock()
        self.enter_context(absltest.mock.patch.object(profiler.tf, "profiler", tensorflows))
        tensorflows.experimental.Trace = absltest.mock.MagicMock()
        folder = str(helpers.temp_dir(self))
        traced = profiler.Profile(folder, steps)
        for step in run:
            with traced.step(step):
                pass
            if traced.is_edge(step):
                traced.end()
        traced.end()
        calls = tensorflows.experimental.Trace.call_args_list
        self.assertEqual([call.kwargs["step_num"] for call in calls], expected)
        self.assertEqual(tensorflows.experimental.start.call_count, bool(expected))
        self.assertEqual(tensorflows.experimental.stop.call_count, bool(expected))


if __name__ == "__main__":
    absltest.main()
