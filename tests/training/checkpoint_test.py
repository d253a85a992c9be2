"""Tests of training checkpoints: round trips, rotation, and recovery from damage."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import run_files
from txl_tf import model_dir
from txl_tf.configs.run import TrainConfig
from txl_tf.models.memory import Memory
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training.checkpoint import Checkpoints
from txl_tf.training.optimizer import make_optimizer

ROWS = 3


class State:
    """A model, an optimizer in the middle of a run, and a memory, all from one seed."""

    def __init__(self, path, seed, dtype=None, keep=3):
        self.model = helpers.loud(TransformerXL(helpers.tiny_config(), dtype=dtype), seed=seed)
        self.optimizer = make_optimizer(TrainConfig())
        self.optimizer.build(self.model.trainable_variables)
        draw = np.random.default_rng(seed)
        for variable in self.optimizer.variables:
            if variable.dtype == "float32":
                variable.assign(draw.normal(size=variable.shape))
        self.optimizer.iterations.assign(seed)
        fresh = self.model.initial_mems(ROWS)
        states = [tf.cast(draw.normal(size=s.shape), s.dtype) for s in fresh.states]
        self.memory = Memory(tuple(states), tf.constant([0, 2, 4]))
        self.checkpoints = Checkpoints(path, self.model, self.optimizer, ROWS, keep)

    def arrays(self):
        variables = [*self.model.trainable_variables, *self.optimizer.variables]
        memory = [tf.cast(leaf, tf.float32) for leaf in tf.nest.flatten(self.memory)]
        return [value.numpy() for value in (*variables, *memory)]


class CheckpointsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = str(helpers.temp_dir(self))
        self.folder = os.path.join(self.path, model_dir.CHECKPOINTS)

    def restore(self, **options):
        state = State(self.path, seed=99, **options)
        state.memory = state.checkpoints.restore()
        return state

    def check_equal(self, found, expected):
        for ours, theirs in zip(found.arrays(), expected.arrays(), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    @parameterized.parameters(None, "mixed_bfloat16")
    def test_all_comes_back(self, dtype):
        saved = State(self.path, seed=4, dtype=dtype)
        saved.checkpoints.save(saved.memory)
        found = self.restore(dtype=dtype)
        self.check_equal(found, saved)
        self.assertEqual(int(found.optimizer.iterations.numpy()), 4)
        for ours, theirs in zip(found.memory.states, saved.memory.states, strict=True):
            self.assertEqual(ours.dtype, theirs.dtype)
            self.assertIsInstance(ours, tf.Tensor)  # a variable would make the step compile anew

    def test_everything_is_stored_once(self):
        saved = State(self.path, seed=4)
        prefix = saved.checkpoints.save(saved.memory)
        sizes = [int(np.prod(shape)) for _, shape in tf.train.list_variables(prefix)[1:]]
        counter = 1  # TensorFlow's own
        self.assertEqual(sum(sizes), sum(a.size for a in saved.arrays()) + counter)

    def test_nothing_to_restore(self):
        self.assertIsNone(State(self.path, seed=1).checkpoints.restore())

    def test_the_precision_may_change(self):
        saved = State(self.path, seed=4, dtype="mixed_bfloat16")
        saved.checkpoints.save(saved.memory)
        self.check_equal(self.restore(), saved)

    def test_the_newest_stay(self):
        for step in (2, 4, 6):
            state = State(self.path, seed=step, keep=2)
            state.checkpoints.save(state.memory)
        names = [n for n in os.listdir(self.folder) if n.endswith(".index")]
        self.assertCountEqual(names, ["ckpt-4.index", "ckpt-6.index"])
        self.check_equal(self.restore(), state)

    @parameterized.parameters(*run_files.DAMAGES)
    def test_falls_back_from_damage_and_logs_it(self, how):
        earlier = State(self.path, seed=4)
        earlier.checkpoints.save(earlier.memory)
        later = State(self.path, seed=8)
        prefix = later.checkpoints.save(later.memory)
        run_files.damage(prefix, how)
        with self.assertLogs(level="WARNING") as logs:
            found = self.restore()
        self.check_equal(found, earlier)
        state = "missing" if how == "index removed" else "damaged"
        self.assertRegex(logs.output[0], f"ckpt-8 is {state}")
        self.assertRegex(logs.output[-1], "falling back to .*/ckpt-4")

    def test_a_damaged_list_is_made_anew(self):
        for step in (4, 8):
            state = State(self.path, seed=step)
            state.checkpoints.save(state.memory)
        with open(os.path.join(self.folder, "checkpoint"), "wb") as file:
            file.write(b"\xff\x00 no list")
        with self.assertLogs(level="WARNING") as logs:
            found = self.restore(keep=2)
        self.assertLen(logs.output, 1)  # though it was read several times
        self.assertRegex(logs.output[0], "/checkpoint cannot be read: 'utf-8' codec")
        self.check_equal(found, state)
        found.optimizer.iterations.assign(12)
        found.checkpoints.save(found.memory)
        kept = [model_dir.step_of(prefix) for prefix in model_dir.checkpoints(self.folder)]
        self.assertEqual(kept, [12, 8])
        self.assertNotIn("ckpt-4.index", os.listdir(self.folder))

    def test_a_folder_in_place_of_the_list_is_refused(self):
        os.makedirs(os.path.join(self.folder, "checkpoint"))
        with self.assertRaisesRegex(ValueError, "/checkpoint must be a file, got a folder"):
            self.restore()

    @parameterized.parameters(
        (dict(num_layers=3), r"it has \d+ weights, the config \d+"),
        (dict(num_layers=1), r"it has \d+ weights, the config \d+"),
        (dict(tie_embeddings=False), r"it has \d+ weights, the config"),
        (dict(d_inner=20), "Received incompatible tensor"),
    )
    def test_a_model_of_another_config_is_refused(self, changes, message):
        state = State(self.path, seed=4)
        state.checkpoints.save(state.memory)
        other = TransformerXL(helpers.tiny_config(**changes))
        with self.assertRaisesRegex(
            ValueError, f"checkpoint .*ckpt-4 must fit the model: {message}"
        ):
            model_dir.restore_weights(self.path, other)

    @parameterized.parameters(np.nan, np.inf)
    def test_weights_that_are_not_finite_are_not_loaded(self, wrong):
        model = TransformerXL(helpers.tiny_config())
        weight = model.weights[-1]
        weight.assign(np.full(weight.shape, wrong))
        model_dir.save_weights(self.path, model)
        message = f"weights must be finite, got .* in {model_dir.name_of(weight)} at .*ckpt-0; use"
        with self.assertRaisesRegex(ValueError, message):
            model_dir.restore_weights(self.path, TransformerXL(helpers.tiny_config()))

    def test_the_best_has_a_value_that_survives(self):
        state = State(self.path, seed=4)
        self.assertEqual(state.checkpoints.best_nats, np.inf)
        state.checkpoints.save_best(1.25)
        state.checkpoints.save(state.memory)
        found = self.restore()
        self.assertEqual(found.checkpoints.best_nats, 1.25)
        best = TransformerXL(helpers.tiny_config())
        self.assertEqual(model_dir.restore_weights(self.path, best, "best"), 4)
        for ours, theirs in zip(best.weights, state.model.weights, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())

    def test_one_best_stays(self):
        for step, nats in ((4, 1.5), (8, 1.25)):
            state = State(self.path, seed=step)
            state.checkpoints.save_best(nats)
        names = os.listdir(os.path.join(self.path, model_dir.BEST))
        self.assertIn("ckpt-8.index", names)
        self.assertNotIn("ckpt-4.index", names)

    @parameterized.parameters(*run_files.DAMAGES)
    def test_a_damaged_best_is_logged_and_does_not_stop_the_run(self, how):
        state = State(self.path, seed=4)
        state.checkpoints.save(state.memory)
        state.checkpoints.save_best(1.25)
        prefix = os.path.join(self.path, model_dir.BEST, "ckpt-4")
        run_files.damage(prefix, how)
        with self.assertLogs(level="WARNING") as logs:
            found = self.restore()
        self.assertRegex(logs.output[0], "best/ckpt-4 is (damaged|missing)")
        self.assertEqual(found.checkpoints.best_nats, np.inf)

    def test_weights_alone_cannot_be_resumed(self):
        model_dir.save_weights(self.path, TransformerXL(helpers.tiny_config()))
        with self.assertRaisesRegex(
            ValueError,
            "cannot resume from .*ckpt-0: the checkpoint has weights only; .*init_from",
        ):
            self.restore()

    @parameterized.parameters(np.nan, np.inf)
    def test_nan_weights_are_neither_saved_nor_restored(self, wrong):
        state = State(self.path, seed=4)
        weight = state.model.trainable_variables[0]
        right = weight.numpy()
        bad = right.copy()
        bad.flat[-1] = wrong
        weight.assign(bad)
        message = f"weights must be finite, got a NaN or infinity in {model_dir.name_of(weight)} at"
        with self.assertRaisesRegex(ValueError, f"{message} step 4; use an earlier checkpoint"):
            state.checkpoints.save(state.memory)
        self.assertEqual(model_dir.checkpoints(self.folder), [])
        with absltest.mock.patch.object(Checkpoints, "_check_finite"):
            state.checkpoints.save(state.memory)
        with self.assertRaisesRegex(ValueError, f"{message} checkpoint .*ckpt-4; use an earlier"):
            self.restore()

    def test_a_checkpoint_of_another_model_is_refused(self):
        state = State(self.path, seed=4)
        state.checkpoints.save(state.memory)
        model = TransformerXL(helpers.tiny_config(num_layers=3))
        optimizer = make_optimizer(TrainConfig())
        optimizer.build(model.trainable_variables)
        other = Checkpoints(self.path, model, optimizer, ROWS, 3)
        with self.assertRaisesRegex(ValueError, "checkpoint .*ckpt-4 must fit the model: ."):
            other.restore()


if __name__ == "__main__":
    absltest.main()
