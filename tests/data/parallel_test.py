"""Parallel maps are ordered and lazy, and raise the errors of workers."""

import os
import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import absltest, parameterized

import helpers
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


_PARENT = """
import time

from txl_tf.data import parallel


if __name__ == "__main__":
    for _ in parallel.ordered_map(time.sleep, [0, 600, 600, 600], 2):
        print("working", flush=True)
"""


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


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

    def test_workers_end_with_their_parent(self):
        script = helpers.temp_dir(self) / "parent.py"
        script.write_text(_PARENT)
        with subprocess.Popen(
            [sys.executable, script],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
            text=True,
        ) as parent:
            parent.stdout.readline()
            children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
            if not children.exists():
                self.skipTest("needs a list of child processes, which this system has not")
            workers = [int(process) for process in children.read_text().split()]
            parent.kill()
        self.assertNotEmpty(workers)
        for _ in range(600):
            if not any(map(is_alive, workers)):
                return
            time.sleep(0.1)
        self.fail("a worker outlives its parent")

    def test_workers_do_not_load_tensorflow(self):
        self.assertEqual(list(parallel.ordered_map(loaded_tensorflow, range(4), 2)), [False] * 4)


if __name__ == "__main__":
    absltest.main()
