"""Tests of scripts/average_checkpoints.py and its library: means, and rejected checkpoints."""

import os

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import run_files
import trained
from txl_tf import model_dir
from txl_tf.configs.run import Config
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import averaging

CONFIG = Config(model=helpers.tiny_config(vocab_size=256, cutoffs=(20, 100), div_val=2))
STEPS = (2, 9, 10, 11)


class AverageCase(parameterized.TestCase):
    """A run with a checkpoint at each of STEPS, the step being its seed."""

    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.run_dir, self.out = str(self.folder / "run"), str(self.folder / "mean")

    def make_run(self, steps=STEPS):
        model = TransformerXL(CONFIG.model)
        checkpoint = tf.train.Checkpoint(weights=model_dir.weights_of(model))
        folder = os.path.join(self.run_dir, model_dir.CHECKPOINTS)
        manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=9)
        self.weights = {}
        for step in steps:
            helpers.loud(model, seed=step)
            manager.save(checkpoint_number=step)
            self.weights[step] = [weight.numpy() for weight in model.weights]
        model_dir.describe(self.run_dir, CONFIG, ByteTokenizer())

    def check_mean(self, steps):
        loaded = model_dir.load(self.out)
        self.assertEqual((loaded.step, loaded.config), (max(steps), CONFIG))
        self.assertEqual(loaded.tokenizer, ByteTokenizer())
        for i, weight in enumerate(loaded.model.weights):
            stack = np.stack([self.weights[step][i] for step in steps]).astype(np.float64)
            expected = stack.mean(axis=0).astype(np.float32)
            atol = rounding.tolerance(1, scale=np.abs(stack).max())  # summed in float64
            np.testing.assert_allclose(weight.numpy(), expected, rtol=0, atol=atol)


class AverageTest(AverageCase):
    @parameterized.parameters(
        ({}, STEPS),
        (dict(last=2), (10, 11)),
        (dict(last=4), STEPS),
        (dict(steps=[11, 2]), (2, 11)),
    )
    def test_is_the_mean(self, chosen, steps):
        self.make_run()
        self.assertEqual(averaging.average(self.run_dir, self.out, **chosen), list(steps))
        self.check_mean(steps)
        self.assertEqual(os.listdir(self.folder / "mean" / "checkpoints").count("checkpoint"), 1)

    def test_of_equal_weights_is_these_to_the_bit(self):
        self.make_run()
        for step in STEPS[1:]:  # give each the files of the first
            prefix = os.path.join(self.run_dir, model_dir.CHECKPOINTS, "ckpt")
            for end in (".index", ".data-00000-of-00001"):
                tf.io.gfile.copy(f"{prefix}-{STEPS[0]}{end}", f"{prefix}-{step}{end}", True)
        averaging.average(self.run_dir, self.out, last=3)
        loaded = model_dir.load(self.out).model
        for weight, value in zip(loaded.weights, self.weights[STEPS[0]], strict=True):
            np.testing.assert_array_equal(weight.numpy(), value)

    @parameterized.parameters(
        (dict(last=5), "last must lie in 2..4, got 5; .* has steps 2, 9, 10, 11"),
        (dict(last=1), "last must lie in 2..4, got 1"),
        (
            dict(steps=[2, 3]),
            "steps must be those of saved checkpoints, got 3; .* steps 2, 9, 10, 11",
        ),
        (dict(steps=[2]), r"steps must name two different checkpoints or more, got \[2\]"),
        (dict(steps=[2, 2, 9]), r"two different checkpoints or more, got \[2, 2, 9\]"),
        (dict(steps=[2, 9], last=2), "last must be left out with steps, got 2"),
    )
    def test_refuses(self, chosen, message):
        self.make_run()
        with self.assertRaisesRegex(ValueError, message):
            averaging.average(self.run_dir, self.out, **chosen)
        self.assertEqual(os.listdir(self.folder), ["run"])

    @parameterized.parameters(([],), ([7],))
    def test_refuses_too_few(self, steps):
        self.make_run(steps)
        message = f"must hold at least two checkpoints, got {len(steps)} in .*run.checkpoints"
        with self.assertRaisesRegex(ValueError, message):
            averaging.average(self.run_dir, self.out)
        self.assertEqual(os.listdir(self.folder), ["run"])

    def test_refuses_damage_by_name(self):
        self.make_run()
        prefix = os.path.join(self.run_dir, model_dir.CHECKPOINTS, "ckpt-10")
        run_files.damage(prefix, "data cut")
        with self.assertRaisesRegex(ValueError, "undamaged checkpoint, got .*ckpt-10"):
            averaging.average(self.run_dir, self.out)
        self.assertEqual(os.listdir(self.folder), ["run"])
        averaging.average(self.run_dir, self.out, steps=[9, 11])
        self.check_mean((9, 11))

    def test_refuses_what_is_there(self):
        self.make_run()
        os.makedirs(os.path.join(self.out, "thesis"))
        with self.assertRaisesRegex(
            ValueError, "output_dir must be new or an empty .*, got .*mean"
        ):
            averaging.average(self.run_dir, self.out)
        with self.assertRaisesRegex(ValueError, "model_dir must hold a config.json"):
            averaging.average(self.out, self.run_dir)


@pytest.mark.slow
class ProgramTest(AverageCase):
    def call(self, *flags, code=0):
        dirs = f"--model_dir={self.run_dir}", f"--output_dir={self.out}"
        return trained.run("average_checkpoints", *dirs, *flags, code=code)

    def test_every_program_accepts_the_result(self):
        self.make_run()
        found = trained.last_json(self.call("--steps=9,11")[0])
        self.assertEqual(found, dict(output_dir=self.out, step=11, averaged=[9, 11]))
        self.check_mean((9, 11))
        data = trained.prepare_data(self.folder)
        model, input_file = f"--model_dir={self.out}", str(self.folder / "a.txt")
        with open(input_file, "w") as file:
            file.write("to score\n")
        for program, *flags in (
            ("evaluate", f"--data_dir={data}", "--segment_len=8", "--batch_size=2"),
            ("score", f"--input={input_file}"),
            ("generate", "--prompt=a", "--length=2"),
        ):
            trained.run(program, model, *flags)

    def test_errors(self):
        self.make_run()
        for flags, code, message in (
            (["--last=1"], 2, "last"),
            (["--last=9"], 1, "last must lie in 2..4, got 9"),
            (["--last=2", "--steps=2,9"], 2, "--last must be left out with --steps"),
            (["--steps=2,x"], 2, "--steps must be whole numbers, got 'x'"),
        ):
            stdout, stderr = self.call(*flags, code=code)
            self.assertEqual(stdout, "")
            self.assertIn(message, stderr.splitlines()[-1])
            self.assertNotIn("Traceback", stderr)


if __name__ == "__main__":
    absltest.main()
