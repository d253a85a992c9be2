"""Compiled calls never pass a step with other work, and are the same after a resume."""

from absl.testing import absltest, parameterized

from txl_tf.configs.run import TrainConfig
from txl_tf.training.loop import stride


def calls(start, profile_steps=None, **settings):
    """The steps of each call from `start` to the end."""
    train = TrainConfig(**settings)
    found, done = [], start
    while done < train.train_steps:
        found.append(stride(done, train, profile_steps))
        done += found[-1]
    assert done == train.train_steps
    return found


class StrideTest(parameterized.TestCase):
    def test_is_one_by_default(self):
        self.assertEqual(calls(0, train_steps=3), [1, 1, 1])

    @parameterized.parameters("log_every", "eval_every", "checkpoint_every")
    def test_ends_where_something_is_due(self, period):
        periods = dict(log_every=100, eval_every=100, checkpoint_every=100) | {period: 6}
        found = calls(0, train_steps=12, steps_per_loop=4, **periods)
        self.assertEqual(found, [4, 1, 1, 1, 1, 4])

    def test_ends_with_the_run(self):
        self.assertEqual(calls(0, train_steps=7, steps_per_loop=3), [3, 3, 1])
        self.assertEqual(calls(0, train_steps=2, steps_per_loop=3), [1, 1])

    def test_without_validation(self):
        self.assertEqual(calls(0, train_steps=6, steps_per_loop=3, eval_every=None), [3, 3])

    def test_resumed_makes_the_calls_of_a_whole_run(self):
        whole = calls(0, train_steps=20, steps_per_loop=4, checkpoint_every=6)
        for start in (6, 12, 18):
            rest = calls(start, train_steps=20, steps_per_loop=4, checkpoint_every=6)
            self.assertEqual(rest, whole[-len(rest) :])
            self.assertEqual(sum(rest), 20 - start)

    def test_a_trace_has_calls_of_its_own(self):
        found = calls(0, (7, 10), train_steps=16, steps_per_loop=4)
        self.assertEqual(found, [4, 1, 1, 1, 1, 1, 1, 1, 1, 4])
        self.assertEqual(calls(0, (5, 8), train_steps=12, steps_per_loop=4), [4, 4, 4])


if __name__ == "__main__":
    absltest.main()
