"""Tests of scripts/export_saved_model.py, run as a user runs it."""

import json
import pathlib

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import c_api
import rounding
import trained
from txl_tf import model_dir as model_dirs

TEXT = "kaka lo mi ter"


@pytest.mark.slow
class ExportSavedModelProgramTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        cls.model_dir = trained.describe(cls.folder, trained.prepare_data(cls.folder, "char"))

    def export(self, name, *flags, code=0):
        flags = (f"--model_dir={self.model_dir}", f"--output_dir={self.folder / name}", *flags)
        return trained.run("export_saved_model", *flags, code=code)

    def test_the_export_gives_the_models_scores_without_its_folder(self):
        stdout, stderr = self.export("toy")
        found = trained.last_json(stdout)
        self.assertEqual(found["path"], str(self.folder / "toy" / "1"))
        self.assertEqual(
            (found["step"], found["state_bytes_per_row"]), (7, 2 * 2 * 2 * 8 * 4 * 4 + 4)
        )
        self.assertIn("signatures: decode, encode, generate", stderr)
        self.assertNotIn("INFO:tensorflow", stderr)
        session = c_api.Session(found["path"])
        told = session.run("score", text=np.array([TEXT.encode()]))
        loaded = model_dirs.load(self.model_dir)
        ids = loaded.tokenizer.encode(TEXT)[np.newaxis]
        expected, _ = loaded.model.nll(ids[:, :8], ids[:, 1:9])
        atol = rounding.of_scores(loaded.model.config)
        np.testing.assert_allclose(told["log_probs"][0, 1:9], -expected[0], rtol=0, atol=atol)

    def test_lengths_state_and_version_by_flags(self):
        flags = ("--mem_len=3", "--state=hidden", "--state_dtype=float16", "--version=20")
        stdout, _ = self.export("other", *flags)
        path = pathlib.Path(trained.last_json(stdout)["path"])
        self.assertEqual(path.name, "20")
        told = json.loads((path / "assets.extra" / "model.json").read_text())
        self.assertEqual(told["state"]["mems"], {"shape": [-1, 2, 3, 8], "dtype": "float16"})
        self.assertEqual(told["config"]["model"]["mem_len"], 3)

    def test_a_folder_that_exists(self):
        (self.folder / "full" / "1").mkdir(parents=True)
        (self.folder / "full" / "1" / "mine.txt").write_text("dear")
        _, stderr = self.export("full", code=1)
        self.assertIn("output_dir must not hold version 1 yet, got", stderr.splitlines()[-1])
        self.assertEqual((self.folder / "full" / "1" / "mine.txt").read_text(), "dear")

    @parameterized.parameters(
        (("--version=0",), 2, "flag --version=0"),
        (("--state_dtype=int8",), 2, "flag --state_dtype=int8"),
        (("--checkpoint=best",), 1, "model_dir must hold a checkpoint in best"),
    )
    def test_wrong_flags(self, flags, code, message):
        _, stderr = self.export("wrong", *flags, code=code)
        self.assertIn(message, stderr.splitlines()[-1])
        self.assertNotIn("Traceback", stderr)
        self.assertFalse((self.folder / "wrong").exists())


if __name__ == "__main__":
    absltest.main()
