"""Work by several processes: in order, lazily, and with errors that come through."""

import os
import signal
import sys

from absl.testing import absltest, parameterized

from txl_tf.data import parallel


def square(x):
    return x * x


def fail_at_three(x):
    if x == 3:
        raise ValueError("three must not be, got 3")
    return x


def die(x):
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def loaded_tensorflow(x):
    del x
    import txl_tf.data.prepare  # noqa: F401

    return "tensorflow" in sys.modules


class OrderedMapTest(parameterized.TestCase):
    @parameterized.parameters(1, 2)
    def test_order(self, num_workers):
        found = parallel.ordered_map(square, range(50), num_workers)
        self.assertEqual(list(found), [x * x for x in range(50)])

    @parameterized.parameters(1, 2)
    def test_few_items_are_taken_ahead(self, num_workers):
        taken = []
        items = (taken.append(i) or i for i in range(1000))
        found = parallel.ordered_map(square, items, num_workers)
        next(found)
        self.assertLessEqual(len(taken), 2 * num_workers + 1)
        found.close()

    @parameterized.parameters(1, 2)
    def test_errors_of_the_task(self, num_workers):
        with self.assertRaisesRegex(ValueError, "three must not be, got 3"):
            list(parallel.ordered_map(fail_at_three, range(50), num_workers))

    @parameterized.parameters(1, 2)
    def test_errors_of_the_items(self, num_workers):
        def items():
            yield 1
            raise ValueError("no more")

        with self.assertRaisesRegex(ValueError, "no more"):
            list(parallel.ordered_map(square, items(), num_workers))

    def test_killed_worker(self):
        with self.assertRaisesRegex(OSError, "a worker process was killed"):
            list(parallel.ordered_map(die, range(5), 2))

    def test_workers_do_not_load_tensorflow(self):
        self.assertEqual(list(parallel.ordered_map(loaded_tensorflow, range(4), 2)), [False] * 4)


if __name__ == "__main__":
    absltest.main()
