"""A wheel of the project, installed beside LiteRT and NumPy alone: a device needs no TensorFlow."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from absl.testing import absltest

import helpers
import rounding
from txl_tf import model_dir

_FILES = ("LICENSE", "README.md", "pyproject.toml", "requirements.txt")
_ARCHIVE = helpers.GOLDEN / "written_at_94780b1.tar.xz"
_ON_A_DEVICE = """
import json, sys
from txl_tf.export.edge import runtime

score = runtime.scorer(sys.argv[1]).score(sys.argv[2])
assert "tensorflow" not in sys.modules
print(json.dumps([runtime.__file__, score.log_probs]))
"""


@pytest.mark.slow
class WheelTest(absltest.TestCase):
    def run_command(self, *command):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_it_runs_the_edge_runtime_and_answers_help(self):
        self.folder = helpers.temp_dir(self)
        probe = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", "x", "absl-py"]
        if subprocess.run(probe, cwd=self.folder, capture_output=True, timeout=120).returncode:
            self.skipTest("needs the package index, which cannot be reached")
        project = self.folder / "project"
        shutil.copytree(helpers.ROOT / "txl_tf", project / "txl_tf")
        for name in _FILES:
            shutil.copy(helpers.ROOT / name, project / name)
        self.run_command(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", str(project))
        (wheel,) = self.folder.glob("txl_tf-*.whl")

        self.run_command(sys.executable, "-m", "venv", "device")
        programs = self.folder / "device" / "bin"
        install = [str(programs / "python"), "-m", "pip", "install", "-q"]
        self.run_command(*install, "absl-py", "ai-edge-litert", "numpy")
        self.run_command(*install, "--no-deps", str(wheel))
        with tarfile.open(_ARCHIVE) as archive:
            archive.extractall(self.folder, filter="data")
        expected = json.loads((self.folder / "expected.json").read_text())
        python, model = str(programs / "python"), str(self.folder / "edge.tflite")
        told = self.run_command(python, "-c", _ON_A_DEVICE, model, expected["text"])
        file, log_probs = json.loads(told.splitlines()[-1])
        self.assertIn(str(self.folder), str(pathlib.Path(file).resolve()))
        tolerance = rounding.of_scores(model_dir.read_config(str(self.folder / "model")).model)
        np.testing.assert_allclose(
            log_probs[1:], expected["edge_log_probs"], rtol=0, atol=tolerance
        )

        for command in ("txl-train", "txl-generate", "txl-export-saved-model"):
            self.assertIn(f"{command} --", self.run_command(str(programs / command), "--help"))


if __name__ == "__main__":
    absltest.main()
