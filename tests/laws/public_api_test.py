"""Tests of the public API: the names in the README, each loaded on first use."""

import ast
import re
import subprocess
import sys

from absl.testing import absltest

import helpers
import txl_tf

_IN_A_WORKER = """
import multiprocessing, sys
import txl_tf

def loaded(_):
    import txl_tf.data.prepare
    import txl_tf.data.tokenizers
    return [name for name in ("keras", "tensorflow") if name in sys.modules]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(loaded(None), pool.map(loaded, [None])[0])
"""
_WITHOUT_TENSORFLOW = """
import importlib, pkgutil, sys
from absl import flags
import txl_tf
import txl_tf.configs
import txl_tf.cli

print("absl.logging" in sys.modules)
names = [module.name for module in pkgutil.iter_modules(txl_tf.cli.__path__)]
for name in names:
    importlib.import_module(f"txl_tf.cli.{name}")
    for flag in list(flags.FLAGS):  # each program defines its own, under the same names
        delattr(flags.FLAGS, flag)
print("train" in names, [name for name in ("keras", "tensorflow") if name in sys.modules])
"""
_LOADING = """
import txl_tf.models  # and nothing of it used
import keras
print(*(type(keras.models.load_model(path)).__name__ for path in {paths}))
"""


class PublicApiTest(absltest.TestCase):
    def run_python(self, text):
        script = self.create_tempfile("script.py", text).full_path
        environment = {"PYTHONPATH": str(helpers.ROOT), "PATH": ""}
        done = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_the_readme_lists_exactly_these_names(self):
        section = (helpers.ROOT / "README.md").read_text().partition("## Python API")[2]
        rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)
        names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        self.assertCountEqual(names, txl_tf.__all__)

    def test_every_name_loads_and_is_listed(self):
        for name in txl_tf.__all__:
            self.assertIsNotNone(getattr(txl_tf, name))
            self.assertIn(name, dir(txl_tf))
        self.assertEqual(txl_tf.TransformerXL.__name__, "TransformerXL")

    def test_type_checkers_see_what_is_loaded(self):
        tree = ast.parse((helpers.ROOT / "txl_tf/__init__.py").read_text())
        seen = {
            alias.asname or alias.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module.startswith("txl_tf")
            for alias in node.names
        }
        self.assertEqual(seen, txl_tf._HOMES)
        self.assertCountEqual(seen, txl_tf.__all__)

    def test_other_names_are_no_attributes(self):
        with self.assertRaisesRegex(AttributeError, "'txl_tf' has no attribute 'tarin'"):
            _ = txl_tf.tarin

    def test_what_handles_text_loads_no_tensorflow(self):
        self.assertEqual(self.run_python(_IN_A_WORKER), "[] []")

    def test_the_package_its_configs_and_programs_load_no_tensorflow(self):
        self.assertEqual(self.run_python(_WITHOUT_TENSORFLOW), "False\nTrue []")

    def test_importing_the_models_is_enough_to_load_them(self):
        encoder = txl_tf.EncoderConfig(
            vocab_size=11, num_layers=1, d_model=8, num_heads=2, head_dim=4, d_inner=8
        )
        star = txl_tf.StarTransformerConfig(vocab_size=11, num_layers=1, d_model=8, num_heads=2)
        models = [
            txl_tf.TransformerXL(helpers.tiny_config()),
            txl_tf.Encoder(encoder),
            txl_tf.StarTransformer(star),
            txl_tf.SequenceClassifier(encoder, 2),
            txl_tf.TokenClassifier(encoder, 2),
            txl_tf.MaskedLanguageModel(encoder),
        ]
        paths = []
        for model in models:
            model(helpers.draw_ids(1, 3))
            paths.append(f"{self.create_tempdir().full_path}/model.keras")
            model.save(paths[-1])
        names = [type(model).__name__ for model in models]
        self.assertEqual(self.run_python(_LOADING.format(paths=paths)), " ".join(names))


if __name__ == "__main__":
    absltest.main()
