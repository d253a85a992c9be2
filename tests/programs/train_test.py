"""scripts/train.py as users run it: progress, results, resumes after any end, one-line errors."""

import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import helpers
import programs
import run_files
import trained
from gce_server import MetadataServer
from txl_tf import model_dir

_ENVIRONMENT = os.environ | {"PYTHONPATH": f"{helpers.ROOT / 'scripts'}{os.pathsep}{helpers.ROOT}"}
_SETTINGS = {  # 8 steps and their validation take no time; starting the program does
    "model.num_layers": 1,
    "model.d_model": 8,
    "model.num_heads": 2,
    "model.head_dim": 4,
    "model.d_inner": 16,
    "model.mem_len": 4,
    "model.dropout": 0.2,
    "train.warmup_steps": 6,
    "train.log_every": 1,
    "train.eval_every": 4,
    "train.checkpoint_every": 4,
}


def flags_of(**train):
    """The flags of a run, with changes to its train section."""
    settings = _SETTINGS | {f"train.{name}": value for name, value in train.items()}
    shorthands = ["--batch_size=4", "--segment_len=5", "--nojit"]
    return [*(f"--set={path}={value}" for path, value in settings.items()), *shorthands]


_FLAGS = flags_of(train_steps=8)


class TrainProgramTest(parameterized.TestCase):
    environment = _ENVIRONMENT | {"TF_CPP_MIN_LOG_LEVEL": "0"}  # TensorFlow tells all it does

    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.data = helpers.write_data(self.folder / "data")

    def path(self, name="run"):
        return str(self.folder / name)

    def dirs(self, name):
        return f"--data_dir={self.data}", f"--model_dir={self.path(name)}"

    def start(self, *flags, name="run"):
        command = [sys.executable, str(helpers.ROOT / "scripts" / "train.py")]
        command += [*self.dirs(name), *flags]
        process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_to_end(self, *flags, name="run", code=0):
        """The result and the log of a whole run."""
        found, out, log = self.outcome(*flags, name=name)
        self.assertEqual(found, code, log)
        self.assertNotIn("Traceback", log)
        self.assertNotIn("Memory patch", log)  # malloc's trim threshold, see data/prefetch.py
        lines = out.splitlines()
        return (json.loads(lines[-1]) if lines else None), log

    def outcome(self, *flags, name="run"):
        """The exit code, the output and the log of a whole run."""
        done = programs.run("train", *self.dirs(name), *flags, environment=self.environment)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def wait_for(self, name, step):
        """Waits until a checkpoint of at least this step is there."""
        folder = os.path.join(self.path(name), model_dir.CHECKPOINTS)
        for _ in range(15_000):  # five minutes, for a busy machine
            prefixes = model_dir.checkpoints(folder)
            if prefixes and model_dir.step_of(prefixes[0]) >= step:
                return
            time.sleep(0.02)
        self.fail(f"no checkpoint of step {step}")


@pytest.mark.slow
class ResumeTest(TrainProgramTest):
    def test_eight_steps_equal_four_and_four_in_a_new_process(self):
        """The second half knows two folders and no flag; the newest checkpoint is damaged."""
        result, log = self.run_to_end(*_FLAGS, name="whole")
        self.assertEqual(result["step"], 8)
        self.assertEqual(result["model_dir"], self.path("whole"))
        self.assertEqual(result["valid"]["scored"], 59)
        self.assertAlmostEqual(
            result["valid"]["bits_per_character"], result["valid"]["nats_per_token"] / np.log(2)
        )
        for line in (r"devices: ", r"step=1 loss=.* first_step_s=", r"step=8 .*seconds_left=0"):
            self.assertRegex(log, line)

        shutil.copytree(self.path("whole"), self.path("half"))
        shutil.rmtree(os.path.join(self.path("half"), "tensorboard"))
        os.remove(os.path.join(self.path("half"), "checkpoints/ckpt-8.data-00000-of-00001"))
        result, log = self.run_to_end(name="half")
        self.assertEqual(result["step"], 8)
        self.assertRegex(log, "ckpt-8 is damaged")
        self.assertRegex(log, "resuming from .*ckpt-4")
        run_files.check_same(
            self,
            run_files.contents(self.path("half"), 8),
            run_files.contents(self.path("whole"), 8),
        )
        whole, half = (
            run_files.curve(os.path.join(self.path(name), "tensorboard/train"))
            for name in ("whole", "half")
        )
        for step in range(5, 9):
            for name in ("loss", "lr", "gradient_norm"):
                self.assertEqual(half[name, step], whole[name, step])
        self.assertNotIn(("loss", 4), half)

    def test_an_early_stop_is_an_end(self):
        """Exit code 0, at once when started again; the trace, the sample and the file are there."""
        flags = flags_of(train_steps=8, eval_every=1, stop_after_evals=1, sample_length=5)
        flags += ["--learning_rate=0.0", "--profile_steps=2,2"]  # nothing gets better
        for _ in range(2):
            result, log = self.run_to_end(*flags)
            self.assertEqual((result["step"], result["stopped_by"]), (2, "early stop"))
        result, log = self.run_to_end("--set=train.stop_after_evals=none", "--train_steps=7")
        self.assertEqual((result["step"], result["stopped_by"]), (7, None))
        self.assertRegex(log, r"memory estimate per replica: weights=.* total=.*MB\n")
        self.assertRegex(log, r"step=7 sample: '[a-j]{5}'\n")
        told = [(line["split"], line["step"]) for line in run_files.metrics(self.path())]
        splits = ("train", "valid")
        self.assertEqual(told, [(split, step) for step in range(1, 8) for split in splits])
        traces = os.path.join(self.path(), "tensorboard/plugins/profile/*/*.xplane.pb")
        self.assertLen(glob.glob(traces), 1)

    def test_is_saved_and_resumes_after_sigterm(self):
        """Exit code 75 asks to be run again; a second trainer is refused meanwhile."""
        flags = flags_of(train_steps=100_000, eval_every="none", checkpoint_every=100_000)
        process = self.start(*flags)
        for line in process.stderr:
            if "step=2 " in line:
                break
        _, log = self.run_to_end(*flags, code=1)
        self.assertRegex(log, "train: error: model_dir must have one trainer at a time, got .*")
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75)
        self.assertRegex(log, "SIGTERM: saving after this step, then stopping")
        stopped = json.loads(out.splitlines()[-1])
        self.assertEqual(stopped["stopped_by"], "SIGTERM")
        self.assertEqual(model_dir.load(self.path(), "latest").step, stopped["step"])
        result, log = self.run_to_end(f"--train_steps={stopped['step'] + 2}")
        self.assertEqual(result["step"], stopped["step"] + 2)
        self.assertRegex(log, f"resuming from .*ckpt-{stopped['step']}")

    def test_is_saved_and_resumes_after_a_preemption_notice(self):
        """At a rate that knows no last step, so that a run of any length is the undisturbed one."""
        flags = flags_of(min_lr_ratio=1.0, eval_every="none", checkpoint_every=100_000)
        server = self.enter_context(MetadataServer())
        self.environment = _ENVIRONMENT | {"GCE_METADATA_HOST": server.host}
        process = self.start(*flags, "--train_steps=100000", "--preemption_notice=gce")
        for line in process.stderr:
            if "step=2 " in line:
                server.answers["preempted"] = "TRUE"
                break
        out, log = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 75)
        self.assertRegex(log, "preemption notice: preempted=TRUE\n")
        self.assertRegex(log, "preemption: saving after this step, then stopping\n")
        stopped = json.loads(out.splitlines()[-1])
        self.assertEqual(stopped["stopped_by"], "preemption")
        self.assertLess(stopped["step"], 100_000)
        end = stopped["step"] + 2
        _, log = self.run_to_end(f"--train_steps={end}")
        self.assertRegex(log, f"resuming from .*ckpt-{stopped['step']}")
        self.run_to_end(*flags, f"--train_steps={end}", name="whole")
        run_files.check_same(
            self,
            run_files.contents(self.path(), end),
            run_files.contents(self.path("whole"), end),
        )

    def test_a_preemption_notice_to_one_worker_stops_all(self):
        flags = flags_of(train_steps=100_000, eval_every="none", checkpoint_every=100_000)
        servers = [self.enter_context(MetadataServer()) for _ in range(2)]
        processes = []
        for server, tf_config in zip(servers, helpers.cluster(2), strict=True):
            self.environment = _ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""}
            self.environment |= {"GCE_METADATA_HOST": server.host}
            self.environment |= {"TF_CONFIG": json.dumps(tf_config)}
            processes.append(self.start(*flags, "--preemption_notice=gce"))
        for line in processes[0].stderr:
            if "step=2 " in line:
                servers[1].answers["preempted"] = "TRUE"
                break
        told = []
        for process in processes:
            out, log = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 75, log)
            told.append(json.loads(out.splitlines()[-1]))
        self.assertEqual([t["stopped_by"] for t in told], ["another worker", "preemption"])
        self.assertEqual(told[0]["step"], told[1]["step"])
        self.assertEqual(model_dir.load(self.path(), "latest").step, told[0]["step"])

    def test_kill_9_at_any_moment_loses_nothing(self):
        """Saves at every second step, so that kills fall into saves; ends as if undisturbed."""
        flags = flags_of(train_steps=400, checkpoint_every=2, eval_every=20)
        self.run_to_end(*flags, name="whole")
        draw = random.Random(7)
        for kill in range(3):
            process = self.start(*flags, name="killed")
            self.wait_for("killed", step=2 + 60 * kill)
            time.sleep(draw.uniform(0.0, 0.5))
            process.kill()
            process.communicate()
        self.run_to_end(*flags, name="killed")
        run_files.check_same(
            self,
            run_files.contents(self.path("killed"), 400),
            run_files.contents(self.path("whole"), 400),
        )
        bests = [model_dir.load(self.path(name), "best") for name in ("killed", "whole")]
        self.assertEqual(bests[0].step, bests[1].step)


@pytest.mark.slow
class FineTuningTest(TrainProgramTest):
    def test_text_with_new_symbols(self):
        """Prepared, trained, resumed and evaluated, without a word on the architecture."""
        self.run_to_end(*_FLAGS, name="source")
        source, text = f"--extend_vocab={self.path('source')}", self.folder / "new.txt"
        text.write_text("Ein Bad im See, ja: abgehackt. " * 20)
        self.data = self.folder / "new"
        flags = f"--train={text}", f"--valid={text}", f"--output_dir={self.data}"
        made = trained.last_json(trained.run("prepare_data", *flags, source)[0])
        self.assertGreater(made["vocab_size"], 11)
        start = f"--init_from={self.path('source')}"
        _, log = self.run_to_end(start, "--train_steps=7", "--learning_rate=0.01")
        self.assertRegex(
            log, f"starting from the weights of .* new_words={made['vocab_size'] - 11}"
        )
        config = model_dir.read_config(self.path())
        expected = model_dir.read_config(self.path("source"))
        self.assertEqual(config.model.d_inner, expected.model.d_inner)
        self.assertEqual(config.model.vocab_size, made["vocab_size"])
        result, log = self.run_to_end(start, "--train_steps=8")
        self.assertRegex(log, "resuming from .*ckpt-7")
        self.assertNotIn("starting from", log)
        self.assertEqual(result["step"], 8)
        flags = f"--model_dir={self.path()}", f"--data_dir={self.data}"
        found = trained.last_json(trained.run("evaluate", *flags)[0])
        self.assertEqual((found["split"], found["scored"]), ("valid", found["targets"]))

    def test_another_vocabulary_or_architecture_is_refused(self):
        self.run_to_end(*_FLAGS, name="source")
        start = f"--init_from={self.path('source')}"
        for wrong, message in (
            (f"{start} --set=model.d_inner=8", "model.d_inner must be 16 as in .*source"),
            (f"{start} --preset=small", "model.num_layers must be 1 as in .*source"),
        ):
            process = self.start(*wrong.split(), name="run")
            _, log = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 1, log)
            self.assertRegex(log.splitlines()[-1], f"train: error: {message}")
        self.data = helpers.write_data(self.folder / "other", vocab_size=13)
        process = self.start(start, name="run")
        _, log = process.communicate(timeout=120)
        self.assertRegex(log.splitlines()[-1], "got 'k' in place of '<unk>' at id 10")
        self.assertFalse(os.path.exists(self.path("run")))


@pytest.mark.slow
class RefusalTest(TrainProgramTest):
    def check_refused(self, code, message, *flags):
        before = sorted(os.listdir(self.folder))
        found, out, log = self.outcome(*flags)
        self.assertEqual((found, out), (code, ""))
        errors = [line for line in log.splitlines() if line.startswith("train: ")]
        self.assertLen(errors, 1, log)
        self.assertRegex(errors[0], message)
        self.assertNotIn("Traceback", log)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    @parameterized.parameters(
        (1, "vocab_size must be the data's 11, got 12", "--set=model.vocab_size=12"),
        (2, r"cutoffs must lie below vocab_size 11, got \(4, 20\)", "--set=model.cutoffs=4,20"),
        (2, "train.batch_size is given twice", "--batch_size=4", "--set=train.batch_size=4"),
        (2, "--segment_len=0: .*segment_len must be at least 1, got 0", "--segment_len=0"),
        (2, "unknown setting model.num_layer; choose from", "--set=model.num_layer=3"),
        (2, "strategy", "--strategy=mirror"),
        (2, "profile_steps must be FIRST,LAST, .*, got '5,3'", *_FLAGS, "--profile_steps=5,3"),
        (1, "profile_steps must end by train_steps 8, got 9", *_FLAGS, "--profile_steps=5,9"),
        (2, "stop_after_evals must be at least 1, got 0", "--set=train.stop_after_evals=0"),
        (1, "TF_CONFIG must name the workers for strategy multi_worker", "--strategy=multi_worker"),
        (
            1,
            "tpu must be left out with strategy mirrored, got 'x'",
            "--strategy=mirrored",
            "--tpu=x",
        ),
        (1, "model_dir must hold a config.json .* got nowhere", *_FLAGS, "--init_from=nowhere"),
    )
    def test_names_the_thing_and_the_value(self, code, message, *flags):
        self.check_refused(code, message, *flags)

    def test_a_folder_without_data(self):
        self.data = self.folder / "nowhere"
        self.check_refused(1, "data_dir must hold metadata.json of .*got '.*nowhere'")

    def test_preemption_notices_without_a_server(self):
        self.environment = _ENVIRONMENT | {"GCE_METADATA_HOST": "127.0.0.1:9"}
        message = "error: preemption_notice must be none .*'gce': 127.0.0.1:9: .*Connection refused"
        self.check_refused(1, message, *_FLAGS, "--preemption_notice=gce")

    def test_a_damaged_shard(self):
        shard = next(self.data.glob("train-00001*"))
        shard.write_bytes(shard.read_bytes()[:-5])
        code, out, log = self.outcome(*_FLAGS)
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(log.splitlines()[-1], "train: error: .*train-00001-of-00004.tfrecord")

    def test_another_model_in_a_model_dir(self):
        self.run_to_end(*_FLAGS)
        self.check_refused(
            1, "model.num_layers must stay 1 in .*run, got 2", "--set=model.num_layers=2"
        )
        self.check_refused(1, "model.num_layers must stay 1 in .*run, got 4", "--preset=tiny")


if __name__ == "__main__":
    absltest.main()
