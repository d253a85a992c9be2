"""Tests of scripts/export_tflite.py and of score.py --tflite, run as a user runs them."""

import json
import os
import pathlib

import pytest
from absl.testing import absltest, parameterized

import helpers
import quick_training
import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config, EvalConfig, TrainConfig
from txl_tf.data import tokenizers
from txl_tf.models.transformer_xl import TransformerXL

TEXT = "abcd" * 700


@pytest.mark.slow
class ExportTfliteProgramTest(parameterized.TestCase):
    """A model that has learnt to repeat a-b-c-d."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        options = dict(end_of_line="none")
        cls.data_dir = trained.prepare_data(cls.folder, "char", text=TEXT, options=options)
        cls.text = str(cls.folder / "text.txt")
        pathlib.Path(cls.text).write_text(TEXT, "utf-8")
        tokenizer = tokenizers.load(cls.data_dir)
        sizes = dict(vocab_size=tokenizer.vocab_size, d_model=32, d_inner=64, head_dim=16)
        config = Config(
            model=helpers.tiny_config(**sizes, mem_len=8),
            train=TrainConfig(batch_size=2, segment_len=4),
            eval=EvalConfig(batch_size=3),
        )
        model = helpers.loud(TransformerXL(config.model), 1, 0.2)
        ids = tokenizer.encode(TEXT)
        loss = quick_training.train(
            model, ids, steps=150, batch_size=4, segment_len=8, learning_rate=1e-2
        )
        assert loss < 0.05, loss
        cls.model_dir = str(cls.folder / "model")
        model_dirs.describe(cls.model_dir, config, tokenizer)
        model_dirs.save_weights(cls.model_dir, model, step=150)

    def export(self, *flags, code=0, name="model.tflite", model_dir=None):
        """-> (path, result, stderr)"""
        path = str(helpers.temp_dir(self) / name)
        flags = (f"--model_dir={model_dir or self.model_dir}", f"--output={path}", *flags)
        stdout, stderr = trained.run("export_tflite", *flags, code=code)
        return path, trained.last_json(stdout) if stdout else None, stderr

    def score(self, *flags, **options):
        stdout, stderr = trained.run("score", "--input=-", *flags, **options)
        return [json.loads(line) for line in stdout.splitlines()], stderr

    @parameterized.parameters("dynamic", "int8")
    def test_a_quantized_model_agrees_and_scores(self, quantize):
        flags = (f"--data_dir={self.data_dir}", f"--quantize={quantize}", "--compared_tokens=200")
        path, result, stderr = self.export(*flags)
        self.assertEqual(result["contexts"], 200)
        self.assertGreaterEqual(result["top1_agreement"], 0.95)
        self.assertIn(f"top1_agreement={result['top1_agreement']:.4f} contexts=200", stderr)
        self.assertIn("FULLY_CONNECTED", result["ops"])
        self.assertIn(f"bytes={os.path.getsize(path)} {path}", stderr)
        self.assertEqual((result["quantize"], result["step"]), (quantize, 150))
        for chatter in ("XNNPACK", "quantize:", "Warning", "Assets"):
            self.assertNotIn(chatter, stderr)

        (found,), stderr = self.score(f"--tflite={path}", stdin=TEXT[:401], fresh=True)
        self.assertEqual(stderr, "")
        (expected,), _ = self.score(f"--model_dir={self.model_dir}", stdin=TEXT[:401])
        self.assertEqual(found["tokens"], expected["tokens"])
        self.assertAlmostEqual(found["nats"], expected["nats"], delta=1)
        self.assertLess(found["bits_per_character"], 0.1)

    def test_rows_by_flag_and_lines_as_texts(self):
        path, result, _ = self.export("--batch_size=2", "--mem_len=5", f"--text={self.text}")
        config = model_dirs.read_config(self.model_dir).model
        atol = rounding.of_scores(config)
        self.assertLess(result["largest_difference"], atol)
        self.assertEqual(result["text"], self.text)
        about = json.loads(pathlib.Path(path.replace(".tflite", ".assets/model.json")).read_text())
        keys = about["signatures"]["step"]["inputs"]["keys"]
        self.assertEqual(keys, {"shape": [2, 2, 2, 5, 16], "dtype": "float32"})
        lines = "abcd\ndcba\n\nabcdabcdabcd"
        found, _ = self.score(f"--tflite={path}", "--per_line", "--summary", stdin=lines)
        expected, _ = self.score(
            f"--model_dir={self.model_dir}", "--mem_len=5", "--per_line", "--summary", stdin=lines
        )
        for one, other in zip(found, expected, strict=True):
            self.assertAlmostEqual(one["nats"], other["nats"], delta=len(lines) * atol)

    def test_text_that_comes_with_python(self):
        _, result, stderr = self.export("--compared_tokens=64")
        self.assertNotIn("top1_agreement", result)
        self.assertIn("warning: nothing is compared: the vocabulary does not cover", stderr)
        (folder := self.folder / "bytes").mkdir()
        model_dir = trained.describe(folder, trained.prepare_data(folder))
        _, result, _ = self.export("--compared_tokens=64", model_dir=model_dir)
        self.assertEqual((result["contexts"], result["text"]), (64, "documentation of Python"))

    @parameterized.parameters(
        (
            ("--quantize=int8",),
            2,
            "--quantize=int8 needs text for calibration: --data_dir or --text",
        ),
        (("--text=x", "--data_dir=y"), 2, "--text and --data_dir must not both be given"),
        (("--split=test",), 2, "--split must be left out: it needs --data_dir"),
        (("--precision=bfloat16",), 2, "--precision must be left out: devices compute in"),
        (
            ("--state=hidden",),
            2,
            "--state must be left out: the state on a device is keys and values",
        ),
        (("--text=missing",), 1, "missing must be a file, got no such file"),
        (("--mem_len=0",), 1, "mem_len must be at least 1 for a device, got 0"),
        (("--segment_len=0",), 2, "segment_len must be at least 1, got 0"),
    )
    def test_wrong_flags(self, flags, code, message):
        path, _, stderr = self.export(*flags, code=code)
        self.assertIn(message, stderr.splitlines()[-1])
        self.assertNotIn("Traceback", stderr)
        self.assertEmpty(os.listdir(os.path.dirname(path)))

    def test_an_output_that_exists(self):
        path = helpers.temp_dir(self) / "model.tflite"
        path.write_text("mine")
        flags = (f"--model_dir={self.model_dir}", f"--output={path}")
        _, stderr = trained.run("export_tflite", *flags, code=1)
        self.assertIn(f"output must not exist yet, got {path}", stderr.splitlines()[-1])

    def test_score_names_what_is_wrong(self):
        path, _, _ = self.export(f"--text={self.text}", "--compared_tokens=8")
        for flags, message in (
            ((), "--model_dir is required, or --tflite"),
            (
                (f"--tflite={path}", f"--model_dir={self.model_dir}"),
                "--model_dir must be left out: --tflite replaces it",
            ),
            ((f"--tflite={path}", "--mem_len=4"), "--mem_len must be left out: it is fixed in the"),
            (
                (f"--tflite={path}", "--set=eval.batch_size=2"),
                "--set=eval.batch_size=2 must be left out: it is fixed in the",
            ),
        ):
            _, stderr = self.score(*flags, code=2)
            self.assertIn(message, stderr.splitlines()[-1])
        size = os.path.getsize(path)
        os.truncate(path, size // 2)
        _, stderr = self.score(f"--tflite={path}", stdin="abcd", code=1)
        self.assertLen(stderr.splitlines(), 1)
        self.assertIn(f"{path} must have {size} bytes", stderr)


if __name__ == "__main__":
    absltest.main()
