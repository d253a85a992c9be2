"""Tests of the reporter's files and early stopping, with scripted steps and validations."""

import math
import os
import signal

import keras
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import run_files
from txl_tf import model_dir
from txl_tf.configs.run import Config, TrainConfig, override_all
from txl_tf.inference.evaluation import Evaluation
from txl_tf.training import loop
from txl_tf.training.step import Metrics

_VALID = (3.0, 2.5, 2.0, 1.0, 1.5, 1.0, 0.5, 1.2)  # after each step


def config(*changes):
    """8 steps."""
    base = Config(
        model=helpers.tiny_config(num_layers=1),
        train=TrainConfig(
            batch_size=4,
            segment_len=5,
            train_steps=8,
            log_every=3,
            eval_every=2,
            checkpoint_every=4,
        ),
    )
    return override_all(base, list(changes))


class WatchTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)
        self.folder = helpers.temp_dir(self)
        self.data = str(helpers.write_data(self.folder / "data"))
        self.count, self.at = 0, {}  # steps taken; what happens before some of them
        replace = absltest.mock.patch.object
        self.enter_context(replace(loop, "make_train_step", self.make))
        self.enter_context(replace(loop.Validator, "evaluate", self.evaluate))

    def make(self, model, optimizer, *_):
        """A step that costs its own number in nats, and changes nothing but the count."""

        def step(batch, memory):
            del batch
            optimizer.iterations.assign_add(1)
            number = self.step = int(optimizer.iterations.numpy())
            self.count += 1
            self.at.get(number, lambda: None)()
            return Metrics(*map(tf.constant, (float(number), 10.0, 0.5, 1.0, 0.0))), memory

        return step

    def evaluate(self, *_, **__):
        nats = _VALID[self.step - 1]
        values = dict(targets=9, scored=9, unknown=0, nats=9 * nats, nats_per_token=nats)
        values |= dict(perplexity=math.exp(nats), bits_per_byte=None, bits_per_character=None)
        values |= dict(bits_unavailable="no text")
        return Evaluation(split="valid", **values)

    def path(self, name="run"):
        return str(self.folder / name)

    def train(self, configuration, name="run", **options):
        data = options.pop("data_dir", self.data)
        return loop.train(configuration, data_dir=data, model_dir=self.path(name), **options)

    def lines(self, *names, split="train"):
        found = run_files.metrics(self.path())
        return [[line[n] for n in names] for line in found if line["split"] == split]

    def kill(self):
        raise RuntimeError("killed")

    def test_each_step_is_logged_once(self):
        """A line ends with each interval, each validation and each checkpoint."""
        self.train(config())
        expected = [[1, 1, 1.0], [2, 1, 2.0], [3, 1, 3.0], [4, 1, 4.0], [6, 2, 5.5], [8, 2, 7.5]]
        self.assertEqual(self.lines("step", "steps", "loss"), expected)
        valid = [[2, 2.5], [4, 1.0], [6, 1.0], [8, 1.2]]
        self.assertEqual(self.lines("step", "loss", split="valid"), valid)

    @parameterized.parameters(
        (3, [1, 2, 3, 4, 6, 8]),  # before the first checkpoint: all over again
        (5, [1, 2, 3, 4, 5, 6, 8]),  # the first step of a process has a line of its own
        (7, [1, 2, 3, 4, 5, 6, 8]),  # the lines of step 6 came after the checkpoint of step 4
    )
    def test_each_step_is_logged_once_after_a_kill(self, step, expected):
        self.at[step] = self.kill
        with self.assertRaisesRegex(RuntimeError, "killed"):
            self.train(config())
        with open(os.path.join(self.path(), "metrics.jsonl"), "a") as file:
            file.write('{"step": 7, "spl')
        self.at.clear()
        self.train(config())
        self.assertEqual([step for (step,) in self.lines("step")], expected)
        self.assertEqual(sum(n for (n,) in self.lines("steps")), 8)
        self.assertEqual(sum(n * nats for n, nats in self.lines("steps", "loss")), sum(range(9)))
        self.assertEqual(self.lines("step", split="valid"), [[2], [4], [6], [8]])

    def test_ends_when_nothing_gets_better(self):
        """As good is not better. Started again it ends at once, until it is set free."""
        changes = config("train.stop_after_evals=2", "train.eval_every=1")
        with self.assertLogs(level="INFO") as logs:
            result = self.train(changes)
        self.assertEqual((result.step, result.stopped_by), (6, loop.EARLY_STOP))
        self.assertEqual(result.best_nats_per_token, 1.0)
        self.assertEqual(model_dir.load(self.path(), "latest").step, 6)
        self.assertEqual(model_dir.load(self.path()).step, 4)
        self.assertIn("no improvement on loss=", "\n".join(logs.output))
        result = self.train(changes)
        self.assertEqual((result.step, result.stopped_by), (6, loop.EARLY_STOP))
        self.assertEqual(self.count, 6)
        result = self.train(config("train.stop_after_evals=3", "train.eval_every=1"))
        self.assertEqual((result.step, result.stopped_by), (8, None))

    @parameterized.parameters("kill", "signal")
    def test_ends_at_the_same_step_after_a_resume(self, how):
        """The best validation, of step 4, is repeated, and is still the best."""
        changes = config(
            "train.stop_after_evals=2", "train.eval_every=1", "train.checkpoint_every=3"
        )
        if how == "kill":
            self.at[6] = self.kill
            with self.assertRaisesRegex(RuntimeError, "killed"):
                self.train(changes)
        else:
            self.at[5] = lambda: signal.raise_signal(signal.SIGTERM)
            self.assertEqual(self.train(changes).stopped_by, "SIGTERM")
        self.at.clear()
        result = self.train(changes)
        self.assertEqual((result.step, result.stopped_by), (6, loop.EARLY_STOP))
        nats = [list(pair) for pair in enumerate(_VALID[:6], 1)]
        self.assertEqual(self.lines("step", "loss", split="valid"), nats)

    def test_the_last_step_is_no_early_stop(self):
        result = self.train(config("train.stop_after_evals=1", "train.train_steps=6"))
        self.assertEqual((result.step, result.stopped_by), (6, None))

    def test_early_stop_needs_validations(self):
        with self.assertRaisesRegex(
            ValueError, "stop_after_evals must be none without eval_every, got 2"
        ):
            config("train.stop_after_evals=2", "train.eval_every=none")
        data = str(helpers.write_data(self.folder / "short", train=200))
        with self.assertRaisesRegex(
            ValueError, "stop_after_evals must be none without a valid split in .*short, got 2"
        ):
            self.train(config("train.stop_after_evals=2"), data_dir=data)
        self.assertFalse(os.path.exists(self.path()))

    def test_a_sample_and_the_config_are_shown(self):
        changes = config("train.sample_length=12", "train.eval_every=8")
        with self.assertLogs(level="INFO") as logs:
            self.train(changes)
        (told,) = [line for line in logs.output if "sample: " in line]
        folder = self.folder / "run" / "tensorboard"
        valid, train = (run_files.curve(folder / name) for name in ("valid", "train"))
        self.assertRegex(valid["sample", 8], r"^    [a-j]{12}$")
        self.assertIn(f"step=8 sample: {valid['sample', 8].strip()!r}", told)
        text = "".join(line[4:] for line in train["config", 0].splitlines(keepends=True))
        self.assertEqual(Config.from_json(text), changes)

    def test_a_model_without_memory_writes_no_samples(self):
        with self.assertRaisesRegex(
            ValueError, "sample_length must be 0 without mem_len in evaluation, got 5"
        ):
            self.train(config("train.sample_length=5", "eval.mem_len=0"))
        self.assertFalse(os.path.exists(self.path()))

    def test_steps_are_traced(self):
        with self.assertLogs(level="INFO") as logs:
            self.train(config("train.eval_every=none"), profile_steps=(3, 4))
        self.assertIn("profile of steps 3 to 4: ", "\n".join(logs.output))
        found = list((self.folder / "run" / "tensorboard").glob("plugins/profile/*/*.xplane.pb"))
        self.assertLen(found, 1)
        with self.assertRaisesRegex(ValueError, "profile_steps must end by train_steps 8, got 9"):
            self.train(config(), "other", profile_steps=(3, 9))
        self.assertFalse(os.path.exists(self.path("other")))

    def test_the_memory_is_estimated_before_the_first_step(self):
        with self.assertLogs(level="INFO") as logs:
            self.train(config("train.train_steps=1"))
        told = "\n".join(logs.output)
        self.assertRegex(
            told, r"(?s)memory estimate per replica: weights=\S+MB optimizer=.*step=1 loss=1 "
        )


if __name__ == "__main__":
    absltest.main()
