"""Tests of visible_log: lines show unless the program has configured logging."""

import logging as python_logging

from absl import logging
from absl.testing import absltest, parameterized

from txl_tf import visible_log

# A line that a module of the package logs, by the name of its file.
_LINE = compile("logging.info('job=%s', job)", visible_log.__file__, "exec")


def log_in_package(job):
    exec(_LINE, {"logging": logging, "job": job})


@visible_log.shown()
def work(step):
    """Logs a line of this package, one of another, and a warning."""
    log_in_package("count")
    logging.info("of others")
    logging.warning("look at %d", step)
    return step


class VisibleLogTest(parameterized.TestCase):
    def setUp(self):
        """As in a program that has not set up anything, but for a handler that collects lines."""
        super().setUp()
        logger, root = logging.get_absl_logger(), python_logging.getLogger()
        self.lines = []
        handler = python_logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())
        for each in (logger, root):
            self.addCleanup(each.setLevel, each.level)
        root.addHandler(handler)
        self.addCleanup(root.removeHandler, handler)
        logger.setLevel(python_logging.NOTSET)
        root.setLevel(python_logging.WARNING)

    def count(self, text):
        return sum(text in line for line in self.lines)

    def test_shown_where_nothing_is_set_up(self):
        self.assertEqual((work(1), work(2)), (1, 2))
        log_in_package("after")
        self.assertEqual([self.count("job=count"), self.count("look at")], [2, 2])
        self.assertEqual([self.count("of others"), self.count("job=after")], [0, 0])
        logger = logging.get_absl_logger()
        self.assertEqual((logger.level, logger.filters), (python_logging.NOTSET, []))

    @parameterized.parameters(("absl", "WARNING", 0), ("absl", "INFO", 1), ("root", "INFO", 1))
    def test_a_program_that_decided_is_left_alone(self, name, level, lines):
        logger = logging.get_absl_logger() if name == "absl" else python_logging.getLogger()
        logger.setLevel(level)
        work(1)
        self.assertEqual([self.count("job=count"), self.count("of others")], [lines, lines])
        self.assertEqual(logger.level, getattr(python_logging, level))

    def test_an_error_leaves_no_files(self):
        @visible_log.shown()
        def fail():
            raise ValueError("no")

        with self.assertRaisesRegex(ValueError, "no"):
            fail()
        self.assertEqual(logging.get_absl_logger().level, python_logging.NOTSET)


if __name__ == "__main__":
    absltest.main()
