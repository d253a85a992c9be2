"""Packages of extras: a missing one is named with its extra, in one line."""

import os
import subprocess
import sys

from absl.testing import absltest, parameterized

import helpers
from txl_tf import extras

# Imports a module where packages cannot be found.
_WITHOUT = """
import importlib, sys
sys.modules.update(dict.fromkeys({packages!r}))
try:
    importlib.import_module({module!r})
except ImportError as error:
    print(type(error).__name__, error)
"""


def run_python(code):
    environment = os.environ | {"PYTHONPATH": str(helpers.ROOT)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


class RequiredTest(parameterized.TestCase):
    @parameterized.parameters(
        ("no_such_package", "needs no_such_package: pip install 'txl_tf[edge]'"),
        ("no_such_package.part", "needs no_such_package: pip install 'txl_tf[edge]'"),
    )
    def test_a_missing_package_is_named_with_its_extra(self, module, message):
        with self.assertRaises(extras.MissingExtraError) as caught, extras.required("edge"):
            __import__(module)
        self.assertEqual(str(caught.exception), message)

    def test_our_own_mistakes_stay_what_they_are(self):
        with self.assertRaises(ModuleNotFoundError), extras.required("edge"):
            import txl_tf.no_such_module  # noqa: F401

    def test_what_is_there_is_imported(self):
        with extras.required("edge"):
            import json
        self.assertEqual(json.loads("1"), 1)

    @parameterized.parameters(
        (["ai_edge_litert"], "txl_tf.export.edge.runtime", "edge"),
        (["ai_edge_quantizer"], "txl_tf.export.edge.quantization", "edge"),
    )
    def test_modules_name_their_extra(self, packages, module, extra):
        done = run_python(_WITHOUT.format(packages=packages, module=module))
        line = f"MissingExtraError needs {packages[0]}: pip install 'txl_tf[{extra}]'\n"
        self.assertEqual(done.stdout, line, done.stderr)

    def test_a_program_ends_with_the_line(self):
        code = (
            "import sys; sys.modules['grpc'] = None\n"
            "from txl_tf.cli import serving_client\n"
            "sys.argv = ['txl-serving-client', '--model=book', '--score=text']\n"
            "serving_client.run()"
        )
        done = run_python(code)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        message = "txl-serving-client: error: needs grpc: pip install 'txl_tf[serving]'"
        self.assertEqual(done.stderr.splitlines()[-1], message)


if __name__ == "__main__":
    absltest.main()
