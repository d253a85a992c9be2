"""Faults around a run, and their handling by scripts/train.py.

Each fault meets a run that is at step 4 of 8. It ends in one line that names the file or the step,
leaves the checkpoints as they were, and once it is repaired the run ends as if undisturbed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import programs
import run_files
from txl_tf import model_dir
from txl_tf.data import metadata
from txl_tf.training import checkpoint

_ENVIRONMENT = os.environ | {"PYTHONPATH": str(helpers.ROOT), "CUDA_VISIBLE_DEVICES": ""}
_PROGRAM = str(helpers.ROOT / "scripts" / "train.py")
_SETTINGS = {
    "model.num_layers": 1,
    "model.d_model": 8,
    "model.num_heads": 2,
    "model.head_dim": 4,
    "model.d_inner": 16,
    "model.mem_len": 4,
    "model.dropout": 0.2,
    "train.batch_size": 4,
    "train.segment_len": 5,
    "train.train_steps": 8,
    "train.warmup_steps": 2,
    "train.log_every": 1,
    "train.eval_every": 4,
    "train.checkpoint_every": 4,
    "train.jit": "false",
}
_FLAGS = [f"--set={name}={value}" for name, value in _SETTINGS.items()]
_SIGTERM_IN_SAVES = """
import os, runpy, signal, sys, tensorflow as tf
write = tf.train.Checkpoint._write
def interrupted(self, prefix, *args, **kwargs):
    if "checkpoints" not in prefix:
        return write(self, prefix, *args, **kwargs)
    tf.train.Checkpoint._write = write
    {before}
    done = write(self, prefix, *args, **kwargs)
    {after}
    return done
tf.train.Checkpoint._write = interrupted
sys.argv[:] = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def train(data, path, code, *, start=None, flags=()):
    """Runs the program -> its log; another exit code, or a traceback, is an error.

    `start`: other arguments of Python than the program's path.
    """
    flags = [f"--data_dir={data}", f"--model_dir={path}", *_FLAGS, *flags]
    if start is None:
        done = programs.run("train", *flags)
    else:
        command = [sys.executable, *start, *flags]
        done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, timeout=300)
    log = done.stderr.decode()
    if done.returncode != code or "Traceback" in log:
        raise AssertionError(f"exit code must be {code}, got {done.returncode}: {log}")
    return log


def snapshot(folder):
    """Paths and bytes of all files below a folder."""
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.slow
class FaultsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        kept = tempfile.TemporaryDirectory()
        cls.addClassCleanup(kept.cleanup)
        cls.kept = pathlib.Path(kept.name)
        helpers.write_data(cls.kept / "data")
        train(cls.kept / "data", cls.kept / "whole", 0)

    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.data, self.run_dir = self.folder / "data", self.folder / "run"
        shutil.copytree(self.kept / "data", self.data)
        self.shard = sorted(self.data.glob("train-*"))[1]
        self.start_over(self.run_dir)

    def start_over(self, path):
        """A run at step 4 of 8."""
        shutil.copytree(self.kept / "whole", path, dirs_exist_ok=True)
        self.checkpoints = path / model_dir.CHECKPOINTS
        for file in self.checkpoints.glob("ckpt-8.*"):
            file.unlink()
        tf.compat.v1.train.update_checkpoint_state(str(self.checkpoints), "ckpt-4", ["ckpt-4"])

    def check_refused(self, message, **options):
        """The program ends in one line; the checkpoints are as they were."""
        before = snapshot(self.checkpoints)
        log = train(self.data, self.run_dir, 1, **options)
        errors = [line for line in log.splitlines() if line.startswith("train: error: ")]
        self.assertLen(errors, 1, log)
        self.assertEqual(errors[0], log.splitlines()[-1])
        self.assertRegex(errors[0], message)
        self.assertEqual(snapshot(self.checkpoints), before)

    def check_goes_on(self, *flags, step=4):
        """The program ends as the undisturbed run did -> its log."""
        log = train(self.data, self.run_dir, 0, flags=flags)
        self.assertRegex(log, f"resuming from .*ckpt-{step}\n")
        expected = run_files.contents(str(self.kept / "whole"), 8)
        run_files.check_same(self, run_files.contents(str(self.run_dir), 8), expected)
        return log


class DataTest(FaultsTest):
    def test_shards(self):
        whole = self.shard.read_bytes()
        damaged = f"{self.shard} must be a whole TFRecord file, got damage in record 0$"
        for content, message in (
            (whole[:-5], damaged),
            (b"", f"{self.shard} must hold 64 tokens .* got another number$"),
            (_flipped(whole, 3), damaged),  # in the length of a record
            (_flipped(whole, 60), damaged),  # in its tokens
        ):
            self.shard.write_bytes(content)
            self.check_refused(message)
        self.shard.unlink()
        self.check_refused(f"must hold the 4 shards of 'train', got 1 missing: {self.shard}$")
        self.shard.write_bytes(whole)
        self.check_goes_on()

    def test_metadata_and_vocabulary(self):
        right = {path: path.read_bytes() for path in self.data.glob("*.*")}
        for index, (splits, vocab_size, message) in enumerate(
            (
                (dict(train=180, valid=60), 11, "got 3 missing: .*train-00000-of-00003.tfrecord$"),
                (
                    dict(train=250, valid=60),
                    11,
                    "tokens of split 'train' must stay 200 in .*, got 250; new_data accepts it",
                ),
                (
                    dict(train=200, valid=60),
                    9,
                    f"{self.data}: vocab_size must be the data's 9, got 11",
                ),
            )
        ):
            other = helpers.write_data(self.folder / f"other{index}", vocab_size, **splits)
            shutil.copy(other / metadata.FILE_NAME, self.data)
            self.check_refused(message)
        shutil.copy(self.kept / "data" / metadata.FILE_NAME, self.data)

        symbols = self.data / "vocab.txt"
        symbols.write_bytes(right[symbols].replace(b"a", b"z"))
        self.check_refused("tokenizer.json: checksum must match options and vocabulary, ")
        symbols.write_bytes(right[symbols])
        self.check_goes_on()


class FolderTest(FaultsTest):
    def test_a_file_in_place_of_the_folder(self):
        self.run_dir.rename(self.folder / "elsewhere")
        self.run_dir.write_text("a file")
        self.check_refused(
            f"model_dir must be a folder, got {self.run_dir}: {self.run_dir} is a file"
        )

    def test_another_trainer(self):
        with checkpoint.sole_trainer(str(self.run_dir)):
            self.check_refused(f"one trainer at a time, got {self.run_dir} while another")
        self.check_goes_on()

    def test_a_folder_that_cannot_be_written(self):
        """Read-only for root too; nothing says so but the file system."""
        self.mount()
        self.remount("ro")
        self.check_refused(f"{self.run_dir}.*Read-only file system")
        self.remount("rw")
        self.check_goes_on()

    @parameterized.parameters(0, 4)
    def test_a_full_disk(self, left):
        """Full from the start, or at the first checkpoint: `left` blocks are for smaller files."""
        self.mount()
        room = os.statvfs(self.run_dir)
        fill = self.run_dir / "fill"
        fill.write_bytes(bytes((room.f_bavail - left) * room.f_bsize))
        where = "ckpt-8_temp/" if left else ""
        self.check_refused(f"{self.run_dir}/.*{where}.*No space left on device")
        fill.unlink()
        self.check_goes_on()

    def mount(self):
        """Puts the run on a small file system of its own."""
        shutil.rmtree(self.run_dir)
        self.run_dir.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "faults_test", str(self.run_dir)]
        if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
            self.skipTest("needs the right to mount a file system, which this user has not")
        self.addCleanup(subprocess.run, ["umount", str(self.run_dir)], check=True)
        self.start_over(self.run_dir)

    def remount(self, option):
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.run_dir)], check=True)


class CheckpointTest(FaultsTest):
    def test_the_newest_is_damaged(self):
        shutil.rmtree(self.run_dir)
        shutil.copytree(self.kept / "whole", self.run_dir)
        run_files.damage(str(self.run_dir / "checkpoints/ckpt-8"), "byte flipped")
        self.assertIn("ckpt-8 is damaged", self.check_goes_on())
        for step in (4, 8):
            run_files.damage(str(self.run_dir / f"checkpoints/ckpt-{step}"), "byte flipped")
        self.check_refused("must hold an undamaged checkpoint, got .*ckpt-8, .*ckpt-4$")

    def test_nan_weights_are_rejected(self):
        files = {path: path.read_bytes() for path in self.checkpoints.glob("ckpt-4.*")}
        for part, name in (("weights", "weights"), ("optimizer", "slots")):
            self.spoil(part)
            self.check_refused(f"{name} must be finite, got a NaN .* at checkpoint .*ckpt-4; use")
            for path, content in files.items():
                path.write_bytes(content)
        self.check_goes_on()

    def spoil(self, part):
        """Writes checkpoint 4 anew with a NaN in an array of a part, below the same names."""
        prefix = str(self.checkpoints / "ckpt-4")
        reader = tf.train.load_checkpoint(prefix)
        names = sorted(reader.get_variable_to_shape_map())
        arrays = [np.array(reader.get_tensor(n)) for n in names]
        spoilt = next(i for i, n in enumerate(names) if n.startswith(part) and arrays[i].ndim)
        arrays[spoilt].flat[0] = np.nan
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=arrays
        )

    @parameterized.parameters("before", "after")
    def test_sigterm_in_the_middle_of_a_save(self, moment):
        """The signal comes before or after the files are written, before the run names them."""
        shutil.rmtree(self.run_dir)
        send = "os.kill(os.getpid(), signal.SIGTERM)"
        code = _SIGTERM_IN_SAVES.format(**({"before": "pass", "after": "pass"} | {moment: send}))
        log = train(self.data, self.run_dir, 75, start=("-c", code, _PROGRAM))
        self.assertIn("SIGTERM: saving after this step, then stopping", log)
        stopped = [model_dir.step_of(p) for p in model_dir.checkpoints(str(self.checkpoints))]
        self.assertEqual(stopped, [5, 4])
        self.check_goes_on(step=5)


def _flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


if __name__ == "__main__":
    absltest.main()
