"""Tests of benchmarks.workers.json_worker: responses, and failures reported in a line."""

import multiprocessing
import os
import sys
from concurrent import futures

import numpy as np
from absl.testing import absltest, parameterized

import helpers
from benchmarks.workers import json_worker

PROGRAM = """\
import os, sys

sys.path.insert(0, {scripts!r})
from benchmarks.workers import json_worker


def answer(number):
    print("what a library prints")
    if not number:
        sys.exit("no more\\nof this")
    return {{"half": 1 / (number - 1), "path": os.environ.get("PYTHONPATH")}}


json_worker.serve(answer)
"""


class JsonWorkerTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        path = helpers.temp_dir(self) / "program.py"
        path.write_text(PROGRAM.format(scripts=str(helpers.ROOT / "scripts")))
        self.command = [sys.executable, str(path)]
        self.enter_context(absltest.mock.patch.dict(json_worker.os.environ, PYTHONPATH="/ours"))

    def test_requests_are_answered(self):
        with json_worker.JsonWorker(self.command) as other:
            path = f"{helpers.ROOT / 'scripts'}{os.pathsep}/ours"
            self.assertEqual(other.ask(number=3), {"half": 0.5, "path": path})
            self.assertEqual(other.ask(number=2)["half"], 1.0)

    def test_a_foreign_worker_does_not_import_the_project(self):
        with json_worker.JsonWorker(self.command, is_foreign=True) as other:
            self.assertIsNone(other.ask(number=3)["path"])

    def test_a_failed_request_does_not_end_the_process(self):
        with json_worker.JsonWorker(self.command) as other:
            with self.assertRaisesRegex(ValueError, "^program.py: ZeroDivisionError: .* zero$"):
                other.ask(number=1)
            with self.assertRaisesRegex(ValueError, "^program.py: TypeError: .*'letter'"):
                other.ask(letter=1)
            self.assertEqual(other.ask(number=2)["half"], 1.0)

    def test_the_end_of_the_process_is_reported(self):
        with json_worker.JsonWorker(self.command) as other:
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, "^program.py: of this$"):
                    other.ask(number=0)
        message = "the process ended with exit code 3$"
        ending = json_worker.JsonWorker([sys.executable, "-c", "raise SystemExit(3)"])
        with ending as other, self.assertRaisesRegex(ValueError, message):
            other.ask()

    def test_a_missing_program_is_reported(self):
        with self.assertRaisesRegex(ValueError, "^/nowhere must be a program, got: No such file"):
            json_worker.JsonWorker(["/nowhere", "x"])


class PeakTest(absltest.TestCase):
    def test_freed_memory_counts(self):
        """Measures a new process, as this one may have a higher peak already."""
        context = multiprocessing.get_context("spawn")
        with futures.ProcessPoolExecutor(1, context) as pool:
            before, after = pool.submit(take_and_free).result()
        self.assertBetween(after - before, 2**26, 2**29)


def take_and_free():
    before = json_worker.peak_bytes()
    np.ones(2**25)  # 268 MB
    return before, json_worker.peak_bytes()


if __name__ == "__main__":
    absltest.main()
