"""Flags that change a Config, on a small program that prints what it resolved."""

import json
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest, parameterized

import helpers

# Resolves every list of arguments that it reads from stdin; an error becomes its text.
_DEMO = '''"""Resolves."""
import json
import sys
from absl import app, flags
from absl.testing import flagsaver
from txl_tf.cli import config_flags, entry_point
from txl_tf.configs import presets

_PRESET = config_flags.define_preset()
config_flags.define_shorthands({
    "batch_size": "train.batch_size",
    "clip_norm": "train.clip_norm",
    "jit": "train.jit",
    "beta": "train.adam_beta2",
    "precision": "train.precision",
})


def resolve(arguments):
    with flagsaver.flagsaver():
        try:
            flags.FLAGS(["demo", *arguments])
            base = presets.preset(_PRESET.value)
            config = config_flags.resolve(base, {"model.vocab_size": 77})
        except (flags.Error, app.UsageError) as error:
            return f"{type(error).__name__}: {error}"
    return json.loads(config.to_json())


def main(argv):
    print(json.dumps([resolve(arguments) for arguments in json.load(sys.stdin)]))


if __name__ == "__main__":
    entry_point.run(main)
'''
_CHANGES = [
    "--set=model.num_layers=2",
    "--set=model.attention=dense,dense",
    "--batch_size=4",
    "--clip_norm=none",
    "--beta=0.5",
    "--nojit",
]
_RIGHT = [[], ["--preset=enwik8_large"], _CHANGES, ["--set=model.vocab_size=300"]]
_WRONG = [
    (
        ["--batch_size=4", "--set=train.batch_size=8"],
        "train.batch_size is given twice, by --batch_size=4 and by --set=train.batch_size=8",
    ),
    (["--batch_size=a"], "flag --batch_size=a: train.batch_size must be a whole number, got 'a'"),
    (["--batch_size=0"], "flag --batch_size=0: batch_size must be at least 1, got 0"),
    (["--set=train.batch_size=0"], "batch_size must be at least 1, got 0"),
    (["--set=train.batch=1"], "unknown setting train.batch; choose from "),
    (["--set=training.seed=1"], "unknown section 'training'; choose from model, data, "),
    (["--set=train.seed"], "a setting must read section.field=value, got 'train.seed'"),
    (
        ["--precision=half"],
        "flag --precision=half: precision must be one of float32, bfloat16, float16, got 'half'",
    ),
    (["--preset=huge"], "flag --preset=huge: value should be one of <tiny|tiny_topk"),
]


class ConfigFlagsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        wrong = [arguments for arguments, _ in _WRONG]
        done = cls.run_demo(input=json.dumps(_RIGHT + wrong))
        resolved = json.loads(done.stdout)
        cls.resolved = dict(zip(map(tuple, _RIGHT + wrong), resolved, strict=True))

    @classmethod
    def run_demo(cls, *arguments, **options):
        path = pathlib.Path(absltest.get_default_test_tmpdir()) / "config_flags_demo.py"
        path.write_text(_DEMO)
        return subprocess.run(
            [sys.executable, str(path), *arguments],
            env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    def config(self, *arguments):
        return self.resolved[arguments]

    def test_without_flags_it_is_the_preset_with_what_was_measured(self):
        config = self.config()
        self.assertEqual(config["model"]["vocab_size"], 77)
        self.assertEqual(config["model"]["d_model"], 128)

    def test_a_preset_is_chosen_by_name(self):
        self.assertEqual(self.config("--preset=enwik8_large")["model"]["num_layers"], 24)

    def test_set_and_shorthands_change_fields_by_their_types(self):
        config = self.config(*_CHANGES)
        self.assertEqual(config["model"]["num_layers"], 2)
        self.assertEqual(config["model"]["attention"], ["dense", "dense"])
        train = config["train"]
        self.assertEqual((train["batch_size"], train["adam_beta2"]), (4, 0.5))
        self.assertIsNone(train["clip_norm"])
        self.assertFalse(train["jit"])

    def test_what_the_user_sets_stands_above_what_was_measured(self):
        config = self.config("--set=model.vocab_size=300")
        self.assertEqual(config["model"]["vocab_size"], 300)

    @parameterized.parameters(*_WRONG)
    def test_mistakes_are_usage_errors_that_name_flag_and_value(self, arguments, message):
        kind, _, told = self.resolved[tuple(arguments)].partition(": ")
        self.assertIn(kind, ("UsageError", "IllegalFlagValueError"))
        self.assertStartsWith(told, message)
        self.assertNotIn("\n", told)

    def test_help_describes_each_field_as_its_config_does(self):
        done = self.run_demo("--help")
        text = " ".join(done.stdout.split())
        told = "--batch_size: Rows of one optimizer step over all replicas."
        self.assertIn(f"{told} The same as --set=train.batch_size=...", text)
        text_of_beta = "--beta: Parameters of Adam; epsilon is added before bias correction"
        self.assertIn(text_of_beta, text)
        self.assertIn("--preset: <tiny|tiny_topk", text)
        self.assertIn("--[no]jit", text)
        self.assertIn("--set: Change of a config field", text)


if __name__ == "__main__":
    absltest.main()
