"""Tests of pyproject.toml: a command for each program, the version, the extras."""

import json
import os
import pathlib
import subprocess
import sys
import tomllib

from absl.testing import absltest

import helpers
import txl_tf

_PROJECT = tomllib.loads((helpers.ROOT / "pyproject.toml").read_text())
_CALLABLE = """
import importlib, json, sys
from absl import flags

found = {}
for command, entry in json.load(sys.stdin).items():
    module, _, name = entry.partition(":")
    found[command] = callable(getattr(importlib.import_module(module), name, None))
    for flag in list(flags.FLAGS):  # each program defines its own, under the same names
        delattr(flags.FLAGS, flag)
print(json.dumps(found))
"""


class CommandsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.commands = _PROJECT["project"]["scripts"]

    def test_each_names_a_callable(self):
        done = subprocess.run(
            [sys.executable, "-c", _CALLABLE],
            input=json.dumps(self.commands | {"wrong": "txl_tf.cli.train:walk"}),
            env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = dict.fromkeys(self.commands, True) | {"wrong": False}
        self.assertEqual(json.loads(done.stdout), expected)

    def test_each_program_has_one(self):
        modules = [f"txl_tf.cli.{name}:run" for name in helpers.program_names()]
        self.assertCountEqual(self.commands.values(), modules)

    def test_help_shows_the_installed_command(self):
        for command, entry in self.commands.items():
            name = entry.partition(":")[0].rpartition(".")[2]
            text = (helpers.ROOT / "txl_tf" / "cli" / f"{name}.py").read_text()
            self.assertRegex(text, rf"\n    (.* \| )?{command} --", name)


class VersionTest(absltest.TestCase):
    def test_it_has_one_home(self):
        """setuptools reads it from there, without importing the package."""
        self.assertEqual(
            _PROJECT["tool"]["setuptools"]["dynamic"]["version"], {"attr": "txl_tf.__version__"}
        )
        self.assertIn("version", _PROJECT["project"]["dynamic"])
        source = pathlib.Path(txl_tf.__file__).read_text()
        self.assertIn(f'\n__version__ = "{txl_tf.__version__}"\n', source)
        self.assertRegex(txl_tf.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    absltest.main()
