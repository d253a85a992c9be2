"""Tests of whole runs: exact resumes, validation, and early rejection of invalid ones."""

import dataclasses
import os
import signal
import threading
import time

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import run_files
from txl_tf import model_dir
from txl_tf.configs.run import Config, TrainConfig, override_all
from txl_tf.data import metadata, outputs, tokenizers, vocabulary
from txl_tf.data.batches import Batches
from txl_tf.training import checkpoint, interruption, loop
from txl_tf.training import step as step_lib
from txl_tf.training.distribution import Distribution
from txl_tf.training.skips import NonFiniteError

ROWS, TOKENS = 4, 5


def config(*changes):
    """8 steps of which 6 warm up, with dropout, validated and saved at every fourth."""
    base = Config(
        model=helpers.tiny_config(num_layers=1, dropout=0.2, attention_dropout=0.2),
        train=TrainConfig(
            batch_size=ROWS,
            segment_len=TOKENS,
            train_steps=8,
            learning_rate=0.05,
            warmup_steps=6,
            jit=False,
            log_every=1,
            eval_every=4,
            checkpoint_every=4,
        ),
    )
    return override_all(base, list(changes))


class Recorder:
    """Stands before the step: keeps what goes through, and may meddle. Compiled only if asked."""

    def __init__(self, test, meddle=None, compiled=False):
        self.nats, self.rates, self.first_ids, self.memory, self.count = [], [], [], None, 0
        self._meddle, self._compiled = meddle, compiled
        test.enter_context(absltest.mock.patch.object(loop, "make_train_step", self.make))

    def make(self, *args):
        function = step_lib.make_train_step(*args)
        step = function if self._compiled else function.python_function

        def recorded(batch, memory):
            self.count += 1
            metrics, self.memory = step(batch, memory)
            self.nats.append(float(metrics.loss))
            self.rates.append(float(metrics.learning_rate))
            self.first_ids.append(batch.ids[:, 0].numpy())
            if self._meddle:
                metrics = self._meddle(self.count, metrics)
            return metrics, self.memory

        return recorded


class RunTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)
        self.folder = helpers.temp_dir(self)
        self.data = str(helpers.write_data(self.folder / "data"))

    def train(self, configuration, name="run", data=None, **options):
        path = str(self.folder / name)
        return loop.train(configuration, data_dir=data or self.data, model_dir=path, **options)

    def path(self, name="run"):
        return str(self.folder / name)


class ResumeTest(RunTest):
    def test_four_and_four_steps_equal_eight(self):
        """The second half starts from other random weights, as a new process would."""
        whole = Recorder(self, compiled=True)
        result = self.train(config(), "whole")
        self.assertEqual((result.step, result.stopped_by), (8, None))

        def stop_after_four(count, metrics):
            if count == 4:
                signal.raise_signal(signal.SIGTERM)
            return metrics

        keras.utils.set_random_seed(1)
        first = Recorder(self, stop_after_four, compiled=True)
        result = self.train(config(), "halves")
        self.assertEqual((result.step, result.stopped_by), (4, "SIGTERM"))
        keras.utils.set_random_seed(2)
        second = Recorder(self, compiled=True)
        result = self.train(config(), "halves")
        self.assertEqual(result.step, 8)

        self.assertEqual(first.nats + second.nats, whole.nats)
        self.assertEqual(first.rates + second.rates, whole.rates)
        np.testing.assert_array_equal(second.first_ids, whole.first_ids[4:])
        for ours, theirs in zip(second.memory.states, whole.memory.states, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        run_files.check_same(
            self,
            run_files.contents(self.path("halves"), 8),
            run_files.contents(self.path("whole"), 8),
        )
        self.assertEqual(whole.rates[0], 0.0)
        self.assertGreater(np.ptp(whole.nats), 0.01)

    def test_a_preemption_notice_stops_as_a_signal_does(self):
        whole = Recorder(self)
        self.train(config(), "whole")
        notices = []
        ask = absltest.mock.Mock(side_effect=lambda: notices[0] if notices else None)
        self.enter_context(absltest.mock.patch.dict(interruption.NOTICES, cloud=ask))
        self.enter_context(absltest.mock.patch.object(interruption, "_POLL_SECONDS", 0.01))

        def preempt_at_three(count, metrics):
            if count == 3:
                notices.append("a reason")
                while interruption.STOP_NAME in [thread.name for thread in threading.enumerate()]:
                    time.sleep(0.01)  # it ends when it has passed the notice on
            return metrics

        keras.utils.set_random_seed(1)
        first = Recorder(self, preempt_at_three)
        result = self.train(config(), "parts", preemption_notice="cloud")
        self.assertEqual((result.step, result.stopped_by), (3, "preemption"))
        self.assertGreater(ask.call_count, 2)
        second = Recorder(self)
        self.assertEqual(self.train(config(), "parts").step, 8)
        self.assertEqual(first.nats + second.nats, whole.nats)
        run_files.check_same(
            self,
            run_files.contents(self.path("parts"), 8),
            run_files.contents(self.path("whole"), 8),
        )

    def test_a_signal_while_workers_agree_waits_for_the_next_step(self):
        """All have to stop at the same step: what comes too late for one is not acted on."""
        steps = []

        def any_but_late(distribution, flag):
            steps.append(flag)
            if len(steps) == 3:  # the first asks whether there is anything left to do
                signal.raise_signal(signal.SIGTERM)
            return flag

        Recorder(self)
        self.enter_context(absltest.mock.patch.object(Distribution, "any", any_but_late))
        result = self.train(config("train.eval_every=none"))
        self.assertEqual((result.step, result.stopped_by), (3, "SIGTERM"))

    def test_continues_past_the_end_of_an_epoch(self):
        """200 tokens are 9 full steps and a padded one; 12 steps see a restart."""
        whole = Recorder(self)
        changes = "train.train_steps=12", "train.eval_every=none", "train.checkpoint_every=9"
        self.train(config(*changes), "whole")
        state = model_dir.checkpoints(os.path.join(self.path("whole"), model_dir.CHECKPOINTS))
        self.assertEqual([model_dir.step_of(prefix) for prefix in state], [12, 9])
        expected = run_files.contents(self.path("whole"), 12)
        for prefix in tf.io.gfile.glob(f"{state[0]}.*"):
            os.remove(prefix)  # so the one of step 9 is the newest whole one
        again = Recorder(self)
        self.train(config(*changes), "whole")
        self.assertEqual(again.nats, whole.nats[9:])
        run_files.check_same(self, run_files.contents(self.path("whole"), 12), expected)
        batches = Batches(self.data, "train", batch_size=ROWS, segment_len=TOKENS)
        self.assertEqual(batches.steps_per_epoch, 10)

    def test_a_longer_run_resumes_a_finished_one(self):
        recorder = Recorder(self)
        self.train(config("train.eval_every=none"))
        self.assertEqual(self.train(config("train.eval_every=none")).nats_per_token, None)
        self.assertEqual(recorder.count, 8)
        with self.assertLogs(level="INFO") as logs:
            result = self.train(config("train.train_steps=10", "train.eval_every=none"))
        self.assertEqual((result.step, recorder.count), (10, 10))
        told = "\n".join(logs.output)
        self.assertIn("train.train_steps changes from 8 to 10", told)
        self.assertIn("learning rate jumps at step 8 from 0.0002 to 0.0251, as the sch", told)
        self.assertIn("now spans 10 steps; learning_rate 0.000398 would keep the old rate", told)
        self.assertEqual(model_dir.read_config(self.path()).train.train_steps, 10)


class StepsPerLoopTest(RunTest):
    """7 steps, of which 2, 4 and 5, 6 go in one call each; then a run that died at step 4."""

    CHANGES = "train.train_steps=7", "train.log_every=20", "train.eval_every=none"

    def test_are_the_steps_of_single_calls(self):
        self.train(config(*self.CHANGES), "single")
        keras.utils.set_random_seed(1)
        recorder = Recorder(self, compiled=True)
        self.train(config(*self.CHANGES, "train.steps_per_loop=2"), "several")
        self.assertEqual(recorder.count, 1)  # the others went through the loop
        found, expected = (run_files.contents(self.path(n), 7) for n in ("several", "single"))
        self.assertEqual(found.keys(), expected.keys())
        atol = rounding.of_gradients(model_dir.read_config(self.path("single")).model)
        for name, value in expected.items():  # one graph or two: not rounded alike
            np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)

        for path in tf.io.gfile.glob(self.path("several") + "/checkpoints/ckpt-7.*"):
            os.remove(path)
        self.train(config(*self.CHANGES, "train.steps_per_loop=2"), "several")
        run_files.check_same(self, run_files.contents(self.path("several"), 7), found)

    def test_every_step_is_logged_once(self):
        self.train(config(*self.CHANGES, "train.steps_per_loop=4"))
        lines = run_files.metrics(self.path())
        steps = [(line["step"], line["steps"]) for line in lines]
        self.assertEqual(steps, [(4, 4), (7, 3)])


class OutcomeTest(RunTest):
    def test_the_best_validation_is_kept_and_reported(self):
        """A rate so high that the model is worse at the end than in the middle."""
        changes = "train.eval_every=1", "train.learning_rate=0.5", "train.warmup_steps=0"
        with self.assertLogs(level="INFO") as logs:
            Recorder(self)
            result = self.train(config(*changes))
        told = "\n".join(logs.output)
        found = [line.partition("valid: loss=")[2] for line in logs.output if "valid:" in line]
        valid = [float(line.split()[0]) for line in found]
        self.assertLen(valid, 8)
        self.assertAlmostEqual(result.best_nats_per_token / min(valid), 1.0, places=3)
        self.assertGreater(result.valid.nats_per_token, result.best_nats_per_token)
        self.assertEqual(result.valid.scored, 59)
        best = model_dir.load(self.path())
        self.assertEqual(best.step, 1 + int(np.argmin(valid)))
        self.assertEqual(model_dir.load(self.path(), "latest").step, 8)
        self.assertRegex(told, r"step=1 loss=\S+ bits_per_character=\S+ lr=0.5 .* first_step_s=")
        self.assertRegex(told, r"step=8 loss=\S+ .* tokens_per_s=\S+ seconds_left=0")
        self.assertRegex(told, r"parameters=\d+ steps_per_epoch=10 pairs_dropped=3\n")
        self.assertRegex(told, r"Config\(model=.* d_model=8, .*train_steps=8, ")
        tokenizer = model_dir.load(self.path()).tokenizer
        self.assertEqual(tokenizer.decode([0, 1]), "ab")

    def test_the_best_of_the_first_part_survives_a_resume(self):
        Recorder(self)
        changes = "train.eval_every=2", "train.train_steps=2", "train.warmup_steps=0"
        best = self.train(config(*changes)).best_nats_per_token
        worse = "train.train_steps=4", "train.learning_rate=9.0", "train.eval_every=2"
        result = self.train(config(*worse, "train.warmup_steps=0"))
        self.assertGreater(result.valid.nats_per_token, best)
        self.assertEqual(result.best_nats_per_token, best)
        self.assertEqual(model_dir.load(self.path()).step, 2)

    def test_a_nan_loss_leaves_the_checkpoints_alone(self):
        def spoil(count, metrics):
            bad = dict(loss=tf.constant(np.nan), skipped=tf.constant(1.0))
            return metrics._replace(**bad) if count == 6 else metrics

        Recorder(self, spoil)
        with self.assertRaisesRegex(NonFiniteError, "loss must be finite, got nan at step 6"):
            self.train(config("train.log_every=100", "train.max_skipped_steps=0"))
        self.assertEqual(model_dir.load(self.path(), "latest").step, 4)

    def test_ids_are_checked_before_the_compiled_step(self):
        """A reader that lets a wrong id through."""
        good = Batches(self.data, "train", batch_size=ROWS, segment_len=TOKENS)
        batch = next(good.arrays())
        recorder = Recorder(self)
        for field, name in (("ids", "input ids"), ("targets", "targets")):
            bad = batch._replace(**{field: np.full([ROWS, TOKENS], 11)})
            message = rf"{name} must lie in 0..10 \(vocabulary of 11\), got 11"
            with (
                absltest.mock.patch.object(Batches, "arrays", return_value=(x for x in [bad])),
                self.assertRaisesRegex(ValueError, message),
            ):
                self.train(config())
        self.assertEqual(recorder.count, 0)

    def test_weights_of_another_run_are_a_start(self):
        recorder = Recorder(self)
        self.train(config("train.eval_every=none"), "source")
        changes = "train.learning_rate=0.0", "train.eval_every=none", "model.mem_len=3"
        self.train(config(*changes), "start", init_from=self.path("source"))
        source, start = (model_dir.load(self.path(n)).model for n in ("source", "start"))
        for ours, theirs in zip(start.weights, source.weights, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        self.assertEqual(recorder.count, 16)
        with self.assertRaisesRegex(ValueError, "model.d_inner must be 16 as in .*, got 8"):
            self.train(config("model.d_inner=8"), "other", init_from=self.path("source"))


class RefusalTest(RunTest):
    """What cannot work is refused before anything is made."""

    def test_another_vocabulary_size(self):
        wrong = str(helpers.write_data(self.folder / "wrong", vocab_size=12))
        with self.assertRaisesRegex(ValueError, r"vocab_size must be the data's 12, got 11"):
            self.train(config(), data=wrong)
        self.assertFalse(os.path.exists(self.path()))

    def test_a_data_set_without_a_train_split(self):
        wrong = str(helpers.write_data(self.folder / "wrong", test=100))
        with self.assertRaisesRegex(ValueError, "unknown split 'train'; choose from test"):
            self.train(config(), data=wrong)
        self.assertFalse(os.path.exists(self.path()))

    def test_too_little_text(self):
        with self.assertRaisesRegex(ValueError, "split 'train': "):
            self.train(config("train.batch_size=400"))
        self.assertFalse(os.path.exists(self.path()))

    def test_no_preemption_notices_to_be_had(self):
        environment = dict(GCE_METADATA_HOST="127.0.0.1:http")
        patched = absltest.mock.patch.dict(os.environ, environment)
        with (
            patched,
            self.assertRaisesRegex(ValueError, "preemption_notice must be none on this machine"),
        ):
            self.train(config(), preemption_notice="gce")
        self.assertFalse(os.path.exists(self.path()))


class GoingOnTest(RunTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path())
        tokenizer = tokenizers.load(self.data)
        model_dir.describe(self.path(), config(), tokenizer)

    @parameterized.parameters(
        ("model.num_layers", 1, 3),
        ("model.mem_len", 4, 6),
        ("train.batch_size", 4, 2),
        ("train.segment_len", 5, 4),
        ("train.seed", 1, 2),
        ("data.reset_memory_at_documents", False, True),
    )
    def test_another_run_is_refused_by_name(self, field, before, after):
        with self.assertRaisesRegex(
            ValueError, f"{field} must stay {before} in {self.path()}, got {after}; .*new model_dir"
        ):
            self.train(config(f"{field}={str(after).lower()}"))
        self.assertEqual(model_dir.read_config(self.path()), config())

    def test_another_vocabulary_of_the_same_size_is_refused(self):
        wrong = helpers.write_data(self.folder / "wrong")
        symbols = vocabulary.Vocabulary(["z", *tokenizers.load(str(wrong)).symbols[1:]])
        other = tokenizers.CharTokenizer(vocabulary=symbols, end_of_line="none")
        other.save(str(wrong))
        found = metadata.Metadata.load(wrong)
        found = dataclasses.replace(found, vocab_checksum=other.checksum)
        (wrong / metadata.FILE_NAME).write_text(found.to_json())
        with self.assertRaisesRegex(ValueError, "vocabulary must be the data's .checksum"):
            self.train(config(), data=str(wrong))

    def test_two_trainers_are_refused(self):
        """A lock belongs to the open file: within one process too."""
        message = f"one trainer at a time, got {self.path()} while another"
        with checkpoint.sole_trainer(self.path()), self.assertRaisesRegex(ValueError, message):
            self.train(config())
        with checkpoint.sole_trainer(self.path()):
            pass  # free again

    def test_the_past_is_read_while_the_folder_is_held(self):
        def read(path):
            with self.assertRaisesRegex(ValueError, "one trainer at a time"):
                checkpoint.sole_trainer(path).__enter__()
            raise ValueError("what it was before")

        self.train(config("train.train_steps=1", "train.warmup_steps=0", "train.eval_every=none"))
        with (
            absltest.mock.patch.object(model_dir, "read_config", read),
            self.assertRaisesRegex(ValueError, "what it was before"),
        ):
            self.train(config("train.train_steps=2", "train.warmup_steps=0"))

    def test_a_folder_that_somebody_makes_is_refused(self):
        message = f"written by one process at a time, got {self.path('new')} while another"
        held = outputs.held("model_dir", self.path("new"))
        with held, self.assertRaisesRegex(ValueError, message):
            self.train(config(), "new")

    def test_a_folder_that_tensorflow_takes_for_a_pattern_is_refused(self):
        before = os.listdir(self.folder)
        for name in ("run[1]", "run*", "r?n", "a[b]/run"):
            with self.assertRaisesRegex(ValueError, "model_dir must have none of .*; choose an"):
                self.train(config(), name)
        self.assertEqual(os.listdir(self.folder), before)

    def test_remote_folders_cannot_be_locked(self):
        with checkpoint.sole_trainer("gs://bucket/run"):
            pass

    def test_runs_in_a_thread_go_without_signals(self):
        recorder = Recorder(self)
        settings = config("train.train_steps=1", "train.warmup_steps=0", "train.eval_every=none")
        thread = threading.Thread(target=self.train, args=(settings,))
        thread.start()
        thread.join()
        self.assertEqual(recorder.count, 1)


class SignalsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        helpers.usual_signals(self)

    def test_the_second_signal_is_as_usual(self):
        usual = signal.getsignal(signal.SIGINT)
        with interruption.StopRequest() as stop:
            self.assertIsNone(stop.name)
            signal.raise_signal(signal.SIGINT)
            self.assertEqual(stop.name, "SIGINT")
            self.assertIs(signal.getsignal(signal.SIGINT), usual)
            with self.assertRaises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_the_first_signal_after_a_note_ends_nothing(self):
        """A machine that is taken away sends SIGTERM while the run still saves."""
        with interruption.StopRequest() as stop:
            stop.note("preemption")
            signal.raise_signal(signal.SIGTERM)
            self.assertEqual(stop.name, "preemption")
            self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)


if __name__ == "__main__":
    absltest.main()
