"""Prefetching yields the same items, raises errors in order, and leaves no thread running."""

import pathlib
import subprocess
import sys
import threading

from absl.testing import absltest

import helpers
from txl_tf.data import prefetch


def count(limit=None, closed=None, begun=None):
    """0, 1, ... ; appends to `closed` when it is closed, and to `begun` each number it comes to."""
    number = 0
    try:
        while limit is None or number < limit:
            if begun is not None:
                begun.append(number)
            yield number
            number += 1
    finally:
        if closed is not None:
            closed.append(number)


class PrefetchedTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        before = set(threading.enumerate())
        self.addCleanup(lambda: self.assertEqual(set(threading.enumerate()), before))

    def test_all_items_in_order(self):
        for limit in (0, 1, 7, 8, 9, 100):
            with prefetch.prefetched(count(limit)) as items:
                self.assertEqual(list(items), list(range(limit)))

    def test_reads_ahead_but_not_without_bound(self):
        begun = []
        with prefetch.prefetched(count(begun=begun)) as items:
            self.assertEqual([next(items) for _ in range(10)], list(range(10)))
        self.assertLessEqual(len(begun), 10 + prefetch._AHEAD)

    def test_works_in_another_thread(self):
        def names():
            yield threading.current_thread().name

        with prefetch.prefetched(names()) as items:
            self.assertRegex(next(items), "^prefetch")

    def test_an_error_comes_in_place_of_its_item(self):
        def failing():
            yield from range(3)
            raise ValueError("shard 3 must be there")

        found = []
        with (
            self.assertRaisesRegex(ValueError, "shard 3 must be there"),
            prefetch.prefetched(failing()) as items,
        ):
            found.extend(items)
        self.assertEqual(found, [0, 1, 2])

    def test_leaving_closes_the_generator(self):
        for error in (None, ValueError, KeyboardInterrupt):
            closed = []
            try:
                with prefetch.prefetched(count(closed=closed)) as items:
                    next(items)
                    if error is not None:
                        raise error
            except (ValueError, KeyboardInterrupt):
                pass
            self.assertLen(closed, 1)

    def test_items_that_were_never_asked_for(self):
        with prefetch.prefetched(count()):
            pass


class ProcessTest(absltest.TestCase):
    def test_the_interpreter_ends_though_the_block_was_never_left(self):
        """As in a notebook, or where a traceback holds the frame."""
        code = (
            "import itertools\n"
            "from txl_tf.data import prefetch\n"
            "block = prefetch.prefetched(i for i in itertools.count())\n"
            "items = block.__enter__()\n"
            "print(next(items))\n"
            "raise KeyError(items)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=helpers.ROOT,
        )
        self.assertEqual((done.returncode, done.stdout), (1, "0\n"), done.stderr)

    def test_nothing_makes_tensorflow_change_malloc(self):
        """Only tf.data's reader of Python generators does, and then for the whole process."""
        for path in [*helpers.ROOT.glob("txl_tf/**/*.py"), *helpers.ROOT.glob("scripts/*.py")]:
            for word in ("from_generator(", "py_function(", "numpy_function("):
                self.assertNotIn(word, pathlib.Path(path).read_text(), str(path))


if __name__ == "__main__":
    absltest.main()
