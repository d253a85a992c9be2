"""scripts/quickstart.sh, with few steps of training and without the installation."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from absl.testing import absltest

import helpers


class QuickstartTest(absltest.TestCase):
    def run_script(self, *arguments, **environment):
        return subprocess.run(
            ["bash", str(helpers.ROOT / "scripts/quickstart.sh"), *arguments],
            env=os.environ | {"QUICKSTART_PYTHON": sys.executable} | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def test_help(self):
        done = self.run_script("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("bash scripts/quickstart.sh [FOLDER]", done.stdout)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_failing_step_ends_it(self):
        done = self.run_script("out", "--train_steps=0", QUICKSTART_PYTHON="false")
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("3/6", done.stdout)

    def test_a_failing_evaluation_is_the_last_word(self):
        python = self.folder / "python"
        python.write_text(
            f'#!/bin/sh\n[ $1 = -c ] && exec {sys.executable} "$@"\n'
            "[ $1 = scripts/evaluate.py ] && echo 'evaluate: error: why' >&2 && exit 3\nexit 0\n"
        )
        python.chmod(0o755)
        done = self.run_script("out", QUICKSTART_PYTHON=str(python))
        self.assertEqual((done.returncode, done.stderr), (3, "evaluate: error: why\n"))

    def test_a_log_file_holds_it_all(self):
        """stdout and stderr may be one file, which nothing may open anew."""
        python = self.folder / "python"
        told = '{"bits_per_byte": 2.5}'
        python.write_text(
            f"#!/bin/sh\n[ $1 = -c ] && exec {sys.executable} \"$@\"\necho '{told}'\n"
        )
        python.chmod(0o755)
        log = self.folder / "log"
        with log.open("wb") as file:
            done = subprocess.run(
                ["bash", str(helpers.ROOT / "scripts/quickstart.sh"), "out"],
                env=os.environ | {"QUICKSTART_PYTHON": str(python)},
                cwd=self.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=60,
            )
        self.assertEqual(done.returncode, 0)
        lines = log.read_text().splitlines()
        self.assertLen([line for line in lines if line.startswith("== ")], 7)
        self.assertLen([line for line in lines if line.startswith("$ python scripts/evaluate")], 2)
        (command,) = (line for line in lines if line.startswith("$ python scripts/generate"))
        self.assertIn("--prompt=The class", shlex.split(command))
        self.assertEqual(lines.count(told), 5)
        self.assertIn("bits per byte of the test split: 2.500 with memory, 2.500 without", lines)

    @pytest.mark.slow
    def test_runs_from_text_to_generated_text_and_resumes(self):
        few = ["--train_steps=20", "--set=train.warmup_steps=2", "--nojit"]
        done = self.run_script("out", *few)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertCountEqual(os.listdir(self.folder / "out"), ["data", "model"])
        told = r"^bits per byte of the test split: (.*) with memory, (.*) without$"
        with_memory, without = map(float, re.search(told, done.stdout, re.MULTILINE).groups())
        for bits in (with_memory, without):
            self.assertBetween(bits, 1.0, 6.5)  # an untrained model has 7.8
        self.assertNotEqual(with_memory, without)
        again = self.run_script("out", *few)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn('"status": "reused"', again.stdout)
        self.assertIn(f"{with_memory:.3f} with memory, {without:.3f} without", again.stdout)


if __name__ == "__main__":
    absltest.main()
