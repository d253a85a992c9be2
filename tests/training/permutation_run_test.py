"""Pre-training of an XLNet: the loss of a step, exact resumes, evaluation, and the programs."""

import dataclasses
import json

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import run_files
import trained
from trainee import ROWS, SMOOTH, TOKENS, farthest, make_batch
from txl_tf import model_dir
from txl_tf.configs.run import Config, EvalConfig, TrainConfig
from txl_tf.data.batches import Batches
from txl_tf.inference import evaluation
from txl_tf.models import objectives
from txl_tf.ops.dropout import DropoutKey
from txl_tf.training import loop, optimizer, step
from txl_tf.training.distribution import make_distribution

OBJECTIVE = "permutation(context=2)"


def config(**train):
    """8 steps with dropout, validated and saved at every fourth."""
    settings = dict(objective=OBJECTIVE, batch_size=ROWS, segment_len=TOKENS, train_steps=8)
    settings |= dict(learning_rate=0.05, min_lr_ratio=1.0, jit=False, log_every=1, eval_every=4)
    return Config(
        model=helpers.tiny_xlnet(num_layers=1, dropout=0.2, attention_dropout=0.2),
        train=TrainConfig(**(settings | dict(checkpoint_every=4) | train)),
        eval=EvalConfig(batch_size=3),
    )


class StepTest(parameterized.TestCase):
    def train(self, run_config, *batches):
        """Returns metrics, by batch, and the model."""
        keras.utils.set_random_seed(1)
        model = helpers.loud(model_dir.make_model(run_config))
        adam = optimizer.make_optimizer(run_config.train)
        adam.build(model.trainable_variables)
        strategy = make_distribution("one_device")
        run_step = step.make_train_step(model, adam, strategy, run_config)
        run_step = run_step if run_config.train.jit else run_step.python_function
        memory, found = model.initial_mems(ROWS), []
        for batch in batches:
            metrics, memory = run_step(batch, memory)
            found.append(metrics)
        return found, model

    def test_the_loss_is_the_mean_of_the_predicted_tokens(self):
        run_config, batch = config(), make_batch()  # whose last row has one real token
        run_config = dataclasses.replace(run_config, model=helpers.tiny_xlnet(num_layers=1))
        model = helpers.loud(model_dir.make_model(run_config))
        key = DropoutKey(tf.constant([run_config.train.seed, 0]), tf.range(ROWS))
        objective = objectives.make(run_config.train.objective_spec)
        inputs, targets = objective.examples(batch.ids, batch.targets, key=key)
        nll, _ = model.nll(**inputs, targets=targets)
        (metrics,), _ = self.train(run_config, batch)
        real = np.count_nonzero(np.array(targets) >= 0)
        atol = rounding.of_scores(run_config.model)
        self.assertAlmostEqual(float(metrics.loss), np.sum(nll) / real, delta=atol)
        self.assertEqual(metrics.tokens, real)
        self.assertLess(real, ROWS * TOKENS // 2)

    def test_parts_equal_the_whole(self):
        batches = [make_batch(seed) for seed in range(3)]
        (found, cut), (expected, whole) = (
            self.train(config(accumulate_steps=parts, **SMOOTH), *batches) for parts in (2, 1)
        )
        atol = rounding.of_gradients(whole.config, ROWS * TOKENS)
        np.testing.assert_allclose(found, expected, rtol=atol, atol=atol)
        weights = [[w.numpy() for w in model.trainable_variables] for model in (cut, whole)]
        self.assertLess(farthest(*weights), atol)

    def test_compiled_equals_eager(self):
        batches = [make_batch(seed) for seed in range(2)]
        found, expected = (self.train(config(jit=jit), *batches)[0] for jit in (True, False))
        atol = rounding.of_gradients(config().model, ROWS * TOKENS)
        np.testing.assert_allclose(found, expected, rtol=atol, atol=atol)

    def test_each_step_draws_anew(self):
        found, _ = self.train(config(learning_rate=0.0), *[make_batch()] * 2)
        self.assertGreater(abs(float(found[0].loss - found[1].loss)), 1e-3)


class RunTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.data = str(helpers.write_data(self.folder / "data"))

    def train(self, name, seed=1, **train):
        keras.utils.set_random_seed(seed)
        path = str(self.folder / name)
        return loop.train(config(**train), data_dir=self.data, model_dir=path)

    def test_four_and_four_steps_equal_eight(self):
        whole = self.train("whole")
        self.train("halves", train_steps=4)
        halves = self.train("halves", seed=2)
        self.assertEqual(halves.valid, whole.valid)
        found, expected = (run_files.contents(self.folder / n, 8) for n in ("halves", "whole"))
        run_files.check_same(self, found, expected)

    def test_it_learns_and_logs_nats_per_predicted_token(self):
        result = self.train("run", train_steps=40, eval_every=10)
        lines = run_files.metrics(self.folder / "run")
        valid = [line for line in lines if line["split"] == "valid"]
        self.assertLess(valid[-1]["loss"], valid[0]["loss"])
        self.assertNotIn("bits_per_character", valid[0])
        self.assertAlmostEqual(valid[-1]["perplexity"], result.valid.perplexity)
        self.assertEqual(valid[-1]["scored"], result.valid.scored)
        self.assertLess(result.valid.scored, result.valid.targets // 2 + 1)

    def test_an_average_and_a_new_run_start_from_it(self):
        self.train("run", train_steps=4, eval_every=None)
        keras.utils.set_random_seed(3)
        changed = config(train_steps=1, learning_rate=0.0, eval_every=None)
        path = str(self.folder / "tuned")
        source = str(self.folder / "run")
        loop.train(changed, data_dir=self.data, model_dir=path, init_from=source)
        found, expected = (model_dir.load(p).model.weights for p in (path, source))
        for weight, source_weight in zip(found, expected, strict=True):
            np.testing.assert_array_equal(weight, source_weight)

    def test_another_objective_is_refused(self):
        self.train("run", train_steps=1, eval_every=None)
        causal = Config(model=helpers.tiny_config(), train=TrainConfig())
        message = r"train.objective must be 'permutation\(context=2\)' as in .*, got 'causal'"
        for options in (dict(model_dir="run"), dict(model_dir="new", init_from="run")):
            paths = {name: str(self.folder / path) for name, path in options.items()}
            with self.assertRaisesRegex(ValueError, message):
                loop.train(causal, data_dir=self.data, **paths)


class EvaluationTest(parameterized.TestCase):
    def test_equals_a_plain_loop(self):
        run_config = config()
        model = helpers.loud(model_dir.make_model(run_config))
        data = helpers.write_data(helpers.temp_dir(self) / "data")
        batches = Batches(str(data), "valid", batch_size=3, segment_len=7, mode="eval")
        objective = objectives.make(run_config.train.objective_spec)
        mems, nats, scored = None, 0.0, 0
        for index, batch in enumerate(batches.arrays(epochs=1)):
            key = DropoutKey(tf.zeros([2], tf.int32), index * 3 + tf.range(3))
            inputs, targets = objective.examples(tf.constant(batch.ids), batch.targets, key=key)
            nll, mems = model.nll(**inputs, targets=targets, mems=mems)
            nats += float(tf.reduce_sum(nll))
            scored += np.count_nonzero(np.array(targets) >= 0)
        spec = run_config.train.objective_spec
        found = evaluation.evaluate(model, batches, objective=spec)
        self.assertEqual(found.scored, scored)
        atol = rounding.of_scores(model.config)
        self.assertAlmostEqual(found.nats_per_token, nats / scored, delta=atol)
        self.assertIsNone(found.bits_per_byte)
        self.assertRegex(found.bits_unavailable, "predicts only some of the tokens")
        self.assertEqual(evaluation.evaluate(model, batches, objective=spec), found)


class ProgramsTest(absltest.TestCase):
    def test_train_evaluate_and_refusals(self):
        folder = helpers.temp_dir(self)
        data, model = trained.prepare_data(folder), str(folder / "run")
        sizes = dict(num_layers=1, d_model=8, num_heads=2, head_dim=4, d_inner=16, mem_len=4)
        flags = [f"--set=model.{name}={value}" for name, value in sizes.items()]
        flags += ["--preset=tiny_xlnet", "--train_steps=2", "--set=train.warmup_steps=0"]
        dirs = [f"--data_dir={data}", f"--model_dir={model}"]
        trained.run("train", *dirs, *flags, "--segment_len=12", "--batch_size=2", "--nojit")
        stdout, _ = trained.run("evaluate", *dirs)
        found = trained.last_json(stdout)
        self.assertGreater(found["scored"], 0)
        self.assertLess(found["scored"], found["targets"] / 5)
        self.assertIsNone(found["bits_per_byte"])
        stored = json.loads((folder / "run" / "config.json").read_text())
        self.assertEqual(stored["train"]["objective"], "permutation")
        _, stderr = trained.run("score", f"--model_dir={model}", "--input=-", stdin="a", code=1)
        last = stderr.splitlines()[-1]
        message = "must hold a model of objective causal or auxiliary here, got permutation"
        self.assertRegex(last, message)


class ConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(objective="causal"), {}, "model must be a TransformerXLConfig .*, got a XLNetConfig"),
        (dict(objective="masked"), {}, "objective 'masked': unknown kind 'masked'"),
        (dict(objective="permutation(context=0)"), {}, "context must be at least 1, got 0"),
        (dict(sample_length=3), {}, "sample_length must be 0 for objective permutation"),
        (dict(scored_fraction=0.5), {}, "scored_fraction must be 1 for objective permutation"),
        ({}, dict(reuse_len=2), "reuse_len must be none in training, .* got 2"),
    )
    def test_mistakes_are_told(self, train, model, message):
        settings = dict(objective="permutation") | train
        with self.assertRaisesRegex(ValueError, message):
            Config(model=helpers.tiny_xlnet(**model), train=TrainConfig(**settings))

    def test_documents_are_refused(self):
        message = "reset_memory_at_documents must be false for objective permutation"
        base = config()
        data = dataclasses.replace(base.data, reset_memory_at_documents=True)
        with self.assertRaisesRegex(ValueError, message):
            dataclasses.replace(base, data=data)

    def test_survives_json(self):
        self.assertEqual(Config.from_json(config().to_json()), config())
        with self.assertRaisesRegex(ValueError, "model must be a TransformerXLConfig"):
            Config(model=helpers.tiny_xlnet())


if __name__ == "__main__":
    absltest.main()
