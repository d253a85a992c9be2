"""Tests of model_dir: round trips, atomic writes, and reported damage."""

import os
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import run_files
from txl_tf import model_dir
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.data import tokenizers
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.models.transformer_xl import TransformerXL

CONFIG = Config(model=helpers.tiny_config(), train=TrainConfig(seed=7))


class ModelDirTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = str(helpers.temp_dir(self))

    def save(self, step, seed, folder=model_dir.CHECKPOINTS):
        """A checkpoint of new loud weights; returns the model."""
        model = helpers.loud(TransformerXL(CONFIG.model), seed=seed)
        checkpoint = tf.train.Checkpoint(weights=model_dir.weights_of(model))
        manager = model_dir.manager(checkpoint, os.path.join(self.path, folder), keep=9)
        manager.save(checkpoint_number=step)
        return model

    def check_loads(self, model, step, which=None):
        loaded = model_dir.load(self.path, which)
        self.assertEqual(loaded.step, step)
        ids = helpers.draw_ids(2, 5)
        np.testing.assert_array_equal(loaded.model(ids)[0], model(ids)[0])
        return loaded

    def test_saved_weights_load_with_config_and_tokenizer(self):
        model = helpers.loud(TransformerXL(CONFIG.model))
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        model_dir.save_weights(self.path, model, step=12)
        loaded = self.check_loads(model, 12)
        self.assertEqual(loaded.config, CONFIG)
        self.assertEqual(loaded.tokenizer, ByteTokenizer())
        other = helpers.loud(TransformerXL(CONFIG.model), seed=1)
        ids = helpers.draw_ids(2, 5)
        self.assertGreater(np.abs(loaded.model(ids)[0] - other(ids)[0]).max(), 0.1)

    def test_the_best_comes_first_unless_the_latest_is_asked_for(self):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        latest = self.save(8, seed=1)
        self.check_loads(latest, 8)
        best = self.save(4, seed=2, folder=model_dir.BEST)
        self.check_loads(best, 4)
        self.check_loads(best, 4, "best")
        self.check_loads(latest, 8, "latest")
        with self.assertRaisesRegex(ValueError, "which must be one of latest, best, got 'worst'"):
            model_dir.load(self.path, "worst")

    def test_loads_in_bfloat16(self):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        model = self.save(1, seed=0)
        loaded = model_dir.load(self.path, dtype="mixed_bfloat16").model
        self.assertEqual(loaded.compute_dtype, "bfloat16")
        ids = helpers.draw_ids(2, 5)
        difference = np.abs(loaded(ids)[0] - model(ids)[0])
        self.assertGreater(difference.max(), 0.0)
        self.assertLess(difference.mean(), rounding.typical_of_scores(model.config))

    @parameterized.parameters(*run_files.DAMAGES)
    def test_falls_back_from_a_damaged_checkpoint_and_logs_it(self, how):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        earlier = self.save(4, seed=1)
        self.save(8, seed=2)
        run_files.damage(os.path.join(self.path, model_dir.CHECKPOINTS, "ckpt-8"), how)
        with self.assertLogs(level="WARNING") as logs:
            self.check_loads(earlier, 4)
        state = "missing" if how == "index removed" else "damaged"
        self.assertRegex(logs.output[0], f"checkpoint .*ckpt-8 is {state}: .")
        self.assertRegex(logs.output[-1], "falling back to the previous checkpoint .*ckpt-4")

    def test_damage_of_all_is_an_error_that_names_them(self):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        self.save(4, seed=1)
        run_files.damage(os.path.join(self.path, model_dir.CHECKPOINTS, "ckpt-4"), "data cut")
        with self.assertRaisesRegex(ValueError, "hold an undamaged checkpoint, got .*ckpt-4"):
            model_dir.load(self.path)

    def test_a_lost_state_file_does_not_lose_the_checkpoints(self):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        self.save(9, seed=1)
        newest = self.save(10, seed=2)
        os.remove(os.path.join(self.path, model_dir.CHECKPOINTS, "checkpoint"))
        self.check_loads(newest, 10)

    @parameterized.parameters(b"", b"\xff\xfe", b"no list", b'model_checkpoint_path: "ckpt-7"')
    def test_a_damaged_state_file_does_not_lose_the_checkpoints(self, content):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        self.save(9, seed=1)
        newest = self.save(10, seed=2)
        path = pathlib.Path(self.path, model_dir.CHECKPOINTS, "checkpoint")
        path.write_bytes(content)
        self.check_loads(newest, 10)
        self.check_loads(self.save(11, seed=3), 11)
        self.assertEqual(
            [model_dir.step_of(p) for p in model_dir.checkpoints(str(path.parent))], [11, 10, 9]
        )

    def test_missing_is_not_damaged(self):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        self.save(4, seed=1)
        prefix = os.path.join(self.path, model_dir.CHECKPOINTS, "ckpt-4")
        run_files.damage(prefix, "index removed")
        with self.assertRaisesRegex(ValueError, r"hold an undamaged .*, got .*ckpt-4 \(missing\)$"):
            model_dir.load(self.path)

    def test_a_path_that_tensorflow_takes_for_a_pattern(self):
        """The first would be read in place of the second, and be deleted in its place."""
        paths = [os.path.join(self.path, name) for name in ("run1", "run[1]")]
        for path in paths:
            os.mkdir(path)
            model_dir.describe(path, CONFIG, ByteTokenizer())
        model_dir.save_weights(paths[0], TransformerXL(CONFIG.model), 1)
        message = r"model_dir must have none of \[ \] \* \? and \\ in its path, .*, got .*run\[1\]"
        with self.assertRaisesRegex(ValueError, message):
            model_dir.save_weights(paths[1], TransformerXL(CONFIG.model), 2)
        with self.assertRaisesRegex(ValueError, message):
            model_dir.load(paths[1])
        self.assertEqual(model_dir.load(paths[0]).step, 1)

    def test_a_checkpoint_without_its_entry_does_not_count(self):
        """As after a kill while it was written."""
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        whole = self.save(4, seed=1)
        folder = os.path.join(self.path, model_dir.CHECKPOINTS)
        with open(os.path.join(folder, "ckpt-8.data-00000-of-00001"), "w") as file:
            file.write("half")
        self.check_loads(whole, 4)

    def test_every_weight_is_in_the_checkpoint(self):
        model = TransformerXL(CONFIG.model)
        model_dir.save_weights(self.path, model)
        prefix = os.path.join(self.path, model_dir.CHECKPOINTS, "ckpt-0")
        sizes = [int(np.prod(shape)) for _, shape in tf.train.list_variables(prefix) if shape]
        self.assertEqual(sum(sizes), model.count_params())

    def test_variables_of_one_name_are_refused(self):
        model = TransformerXL(CONFIG.model)
        first, second = model.weights[:2]
        with self.assertRaisesRegex(
            ValueError, f"variables must have distinct names, got {second.path} twice"
        ):
            model_dir.named({"same": first}, [first, second])

    def test_errors_name_the_folder(self):
        with self.assertRaisesRegex(
            ValueError, f"model_dir must hold a config.json .* got {self.path}"
        ):
            model_dir.load(self.path)
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        with self.assertRaisesRegex(
            ValueError, f"must hold a checkpoint in best or checkpoints, got {self.path}"
        ):
            model_dir.load(self.path)
        with open(os.path.join(self.path, "config.json"), "w") as file:
            file.write('{"model": {"vocab_size": 11, "d_model": 7}}')
        with self.assertRaisesRegex(
            ValueError, "config.json: model: d_model must be even .* got 7"
        ):
            model_dir.load(self.path)

    def test_a_description_can_be_written_again(self):
        model_dir.describe(self.path, CONFIG, ByteTokenizer())
        changed = Config(model=CONFIG.model, train=TrainConfig(seed=8))
        os.makedirs(os.path.join(self.path, "draft", "thesis"))  # whatever it is, it is not ours
        os.makedirs(os.path.join(self.path, ".config.json.0123abcd.txl_tf-draft", "left"))
        model_dir.describe(self.path, changed, ByteTokenizer())
        self.assertEqual(model_dir.read_config(self.path), changed)
        self.assertEqual(tokenizers.load(self.path), ByteTokenizer())
        self.assertEqual(sorted(os.listdir(self.path)), ["config.json", "draft", "tokenizer.json"])
        self.assertEqual(os.listdir(os.path.join(self.path, "draft")), ["thesis"])


if __name__ == "__main__":
    absltest.main()
