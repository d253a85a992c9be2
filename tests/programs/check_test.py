"""Tests of scripts/check with a fake Python that records its commands."""

import os
import pathlib
import subprocess

from absl.testing import absltest, parameterized

import helpers

_PYTHON = """#!/bin/bash
case "$1" in
    -c) echo $CHECK_HAS ;;
    -m)
        echo "${@:2}" >>"$CHECK_LOG"
        [[ "$2" == "$CHECK_INTERRUPTED" ]] && kill -INT $PPID && exit 2  # as pytest does
        [[ "$2 $3" != "$CHECK_FAILS"* ]] ;;
esac
"""
_TESTS = "tests (1/4) tests (2/4) tests (3/4) tests (4/4)"


class CheckTest(parameterized.TestCase):
    def check(self, *arguments, fails="nothing", has="2", interrupted="nothing"):
        folder = pathlib.Path(self.create_tempdir().full_path)
        python = folder / "python"
        python.write_text(_PYTHON)
        python.chmod(0o755)
        log = folder / "log"
        done = subprocess.run(
            [str(helpers.ROOT / "scripts/check"), *arguments],
            env=os.environ
            | {"PYTHON": str(python), "CHECK_LOG": str(log), "CHECK_FAILS": fails}
            | {"CHECK_HAS": has}  # processors, and the tools that are missing
            | {"CHECK_INTERRUPTED": interrupted},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done, log.read_text().splitlines() if log.exists() else []

    def check_parts(self, asked, marks):
        """Pytest ran with these options in four parts, which have each test file once."""
        options = f"pytest -n 2 --dist loadfile --durations=10 {marks}"
        files = []
        for command in asked:
            self.assertStartsWith(command, f"{options}tests/")
            files += command.removeprefix(options).split()
        tests = (helpers.ROOT / "tests").rglob("*_test.py")
        self.assertCountEqual(files, [str(path.relative_to(helpers.ROOT)) for path in tests])
        self.assertLen(asked, 4)

    def test_runs_all_tools_and_the_fast_tests(self):
        done, asked = self.check()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        tools = ["ruff format --check --quiet", "ruff check --quiet", "mypy --no-error-summary"]
        self.assertEqual(asked[:3], tools)
        self.check_parts(asked[3:], "-m not slow ")

    def test_all_adds_the_slow_tests(self):
        _, asked = self.check("--all")
        self.check_parts(asked[3:], "")

    def test_the_slow_tests_alone(self):
        _, asked = self.check("--slow")
        self.check_parts(asked, "-m slow ")

    def test_fix_repairs_first(self):
        _, asked = self.check("--fix")
        self.assertEqual(asked[:2], ["ruff check --fix --quiet", "ruff format --quiet"])
        self.assertStartsWith(asked[5], "pytest ")

    @parameterized.parameters(
        ("ruff format", "format"), ("ruff check", "lint"), ("mypy", "types"), ("pytest", _TESTS)
    )
    def test_any_failure_is_the_outcome_and_stops_nothing(self, fails, name):
        done, asked = self.check(fails=fails)
        self.assertEqual((done.returncode, done.stderr), (1, f"check: failed: {name}\n"))
        self.check_parts(asked[3:], "-m not slow ")

    @parameterized.parameters("mypy", "pytest")
    def test_an_interrupt_ends_it(self, tool):
        helpers.usual_signals(self)
        done, asked = self.check(interrupted=tool)
        self.assertEqual((done.returncode, done.stderr), (130, "check: interrupted\n"))
        self.assertStartsWith(asked[-1], f"{tool} ")
        self.assertLen(asked, 3 if tool == "mypy" else 4)

    def test_an_interpreter_that_does_not_work(self):
        done = subprocess.run(
            [str(helpers.ROOT / "scripts/check")],
            env=os.environ | {"PYTHON": "/nowhere/python"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        message = "check: error: PYTHON must be a working interpreter, got /nowhere/python\n"
        self.assertEqual(done.stderr, message)

    def test_tools_that_are_not_installed(self):
        """As after the plain installation of the README."""
        done, asked = self.check(has="2 ruff mypy")
        self.assertEqual((done.returncode, asked), (1, []))
        self.assertRegex(
            done.stderr,
            "^check: error: .*python has no ruff, mypy; bash scripts/install.sh dev installs what",
        )

    def test_refuses_other_arguments(self):
        done, asked = self.check("--al")
        message = "check: error: unexpected argument --al; choose from --fix, --all, --slow\n"
        self.assertEqual((done.returncode, done.stderr, asked), (2, message, []))


if __name__ == "__main__":
    absltest.main()
