"""scripts/install.sh with stand-ins for Python, so that nothing is installed."""

import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest, parameterized

import helpers

# Says it is Python VERSION; notes what pip is asked for; makes a .venv that holds itself.
_PYTHON = """#!/bin/bash
case "$*" in
    *platform*) echo {version} ;;
    *ensurepip*) exit {no_venv} ;;
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip"*) echo "$*" >>pip.log; exit {pip_fails} ;;
    *) exec {real} "$@" ;;
esac
"""


class InstallTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path)
        self.project, self.bin = self.root / "project", self.root / "bin"
        (self.project / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("scripts/install.sh", "pyproject.toml", "requirements.txt"):
            shutil.copy(helpers.ROOT / name, self.project / name)
        for tool in ("bash", "cat", "cp", "dirname", "mkdir", "rm", "sed"):
            (self.bin / tool).symlink_to(shutil.which(tool))

    def python(self, name, version, no_venv=0, pip_fails=0):
        path = self.bin / name
        path.write_text(
            _PYTHON.format(
                version=version, no_venv=no_venv, pip_fails=pip_fails, real=sys.executable
            )
        )
        path.chmod(0o755)

    def install(self, *arguments, **environment):
        return subprocess.run(
            ["bash", str(self.project / "scripts/install.sh"), *arguments],
            env={"PATH": str(self.bin), **environment},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def asked_of_pip(self):
        log = self.project / "pip.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.split()[-1] for line in lines]

    def assert_refused(self, done, message):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr, f"install: error: {message}\n")
        self.assertEqual(self.asked_of_pip(), [])

    @parameterized.parameters("3.11.0", "3.12.4", "3.13.9")
    def test_installs_once_and_again_when_the_project_changed(self, version):
        self.python("python3", version)
        for _ in range(2):
            self.assertEqual(self.install().returncode, 0)
            self.assertEqual(self.asked_of_pip(), [".[all]"])
        with open(self.project / "requirements.txt", "a") as file:
            file.write("more\n")
        self.install()
        self.assertEqual(self.asked_of_pip(), [".[all]", ".[all]"])

    def test_developer_tools_come_on_top_and_hold_the_plain_installation(self):
        self.python("python3", "3.11.7")
        self.install()
        self.install("dev")
        self.assertEqual(self.asked_of_pip(), [".[all]", ".[dev]"])
        self.install()
        self.install("dev")
        self.assertEqual(self.asked_of_pip(), [".[all]", ".[dev]"])

    def test_a_failed_installation_is_tried_again(self):
        self.python("python3", "3.11.7", pip_fails=1)
        self.assertNotEqual(self.install().returncode, 0)
        self.assertNotEqual(self.install().returncode, 0)
        self.assertEqual(self.asked_of_pip(), [".[all]", ".[all]"])

    def test_looks_past_an_unfit_python3(self):
        self.python("python3", "3.14.0")
        self.python("python3.12", "3.12.4")
        done = self.install()
        self.assertEqual(done.returncode, 0)
        self.assertIn("Making .venv with python3.12 (3.12.4).", done.stdout)

    @parameterized.parameters("3.10.14", "3.14.0", "2.7.18")
    def test_refuses_other_versions_in_one_line(self, version):
        self.python("python3", version)
        self.assert_refused(
            self.install(),
            f"Python 3.11, 3.12 or 3.13 is needed, but python3 is {version}, python3.13 is not "
            "found, python3.12 is not found, python3.11 is not found, python is not found; "
            "install one, or name it: PYTHON=/path/to/python3.12",
        )
        self.assertFalse((self.project / ".venv").exists())

    def test_takes_the_named_python_or_none(self):
        self.python("python3", "3.11.7")
        self.python("my_python", "3.9.2")
        self.assert_refused(
            self.install(PYTHON="my_python"),
            "Python 3.11, 3.12 or 3.13 is needed, but my_python is 3.9.2; "
            "install one, or name it: PYTHON=/path/to/python3.12",
        )

    def test_a_missing_venv_module_is_reported_with_its_package(self):
        self.python("python3", "3.11.7", no_venv=1)
        self.assert_refused(
            self.install(),
            "python3 has no venv module; on Debian or Ubuntu: apt-get install python3-venv",
        )

    def test_an_unfit_venv_is_named(self):
        self.python("python3", "3.11.7")
        self.install()
        shutil.rmtree(self.project / ".venv" / "bin")
        (self.project / "pip.log").unlink()
        self.assert_refused(
            self.install(), ".venv holds no working Python; remove that folder and try again"
        )

    def test_refuses_unknown_extras(self):
        self.python("python3", "3.11.7")
        self.assert_refused(self.install("gpu"), "the only argument is dev, got gpu")


if __name__ == "__main__":
    absltest.main()
