"""Tests of scripts/evaluate.py, run as a user runs it."""

import dataclasses
import json
import math

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import helpers
import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.configs import presets
from txl_tf.configs.run import EvalConfig
from txl_tf.data.batches import Batches
from txl_tf.inference import evaluation

FIELDS = [
    "split",
    "targets",
    "scored",
    "unknown",
    "nats_per_token",
    "perplexity",
    "bits_per_byte",
    "bits_per_character",
    "bits_unavailable",
]


@pytest.mark.slow
class EvaluateProgramTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = absltest.TestCase().create_tempdir().full_path
        cls.data_dir = trained.prepare_data(cls.folder)
        cls.model_dir = trained.describe(cls.folder, cls.data_dir, num_layers=1)
        cls.config = model_dirs.read_config(cls.model_dir).model
        cls.atol = rounding.of_scores(cls.config)

    def evaluate(self, *flags, code=0):
        dirs = (f"--model_dir={self.model_dir}", f"--data_dir={self.data_dir}")
        return trained.run("evaluate", *dirs, *flags, code=code)

    def expected(self, layout="contiguous", batch_size=3, segment_len=8, **lengths):
        model = model_dirs.load(self.model_dir).model.with_lengths(**lengths)
        batches = Batches(
            self.data_dir,
            "valid",
            batch_size=batch_size,
            segment_len=segment_len,
            mode="eval",
            layout=layout,
        )
        return evaluation.evaluate(model, batches)

    def test_last_line_is_the_result(self):
        stdout, stderr = self.evaluate()
        self.assertLen(stdout.splitlines(), 1)
        found = json.loads(stdout)
        self.assertContainsSubset(FIELDS, found)
        self.assertEqual((found["split"], found["step"]), ("valid", 7))
        self.assertEqual(found["targets"], len(trained.TEXT.encode()) - 1)
        self.assertEqual(found["scored"], found["targets"])
        self.assertAlmostEqual(
            found["nats_per_token"], self.expected().nats_per_token, delta=self.atol
        )
        self.assertEqual(found["bits_per_byte"], found["nats_per_token"] / math.log(2))
        self.assertIn("devices: ", stderr)

    def test_flags_change_lengths_batches_and_layout(self):
        flags = ("--mem_len=2", "--clamp_len=5", "--attention_span=6", "--batch_size=2")
        found = trained.last_json(self.evaluate(*flags, "--segment_len=5", "--layout=reference")[0])
        expected = self.expected("reference", 2, 5, mem_len=2, clamp_len=5, attention_span=6)
        self.assertAlmostEqual(found["nats_per_token"], expected.nats_per_token, delta=self.atol)
        self.assertEqual(found["scored"], expected.scored)
        self.assertLess(found["scored"], found["targets"])

    def test_no_memory_and_bfloat16(self):
        found = trained.last_json(self.evaluate("--mem_len=0", "--precision=bfloat16")[0])
        expected = self.expected(mem_len=0)
        atol = rounding.typical_of_scores(self.config)
        self.assertAlmostEqual(found["nats_per_token"], expected.nats_per_token, delta=atol)

    @parameterized.parameters((1, 8), (3, 8), (8, 5))
    def test_sliding(self, stride, window):
        """Each token is scored as by the model called on its window alone."""
        stride = min(stride, window)
        flags = "--sliding", f"--stride={stride}", f"--segment_len={window}"
        found = trained.last_json(self.evaluate(*flags)[0])
        model = model_dirs.load(self.model_dir).model.with_lengths(mem_len=0)
        ids = np.array(list(trained.TEXT.encode()), np.int32)
        ends = range(window, len(ids) - 1 + stride, stride)
        pairs = np.zeros([len(ends), window + 1], np.int32)
        for row, end in zip(pairs, ends, strict=True):  # the last may be short
            row[: len(ids[end - window : end + 1])] = ids[end - window : end + 1]
        nll = model.nll(pairs[:, :-1], pairs[:, 1:])[0].numpy()
        scored = np.concatenate([nll[0], nll[1:, window - stride :].ravel()])[: len(ids) - 1]
        self.assertLen(scored, found["scored"])
        self.assertEqual(found["scored"], found["targets"])
        self.assertAlmostEqual(found["nats_per_token"], np.mean(scored), delta=self.atol)
        self.assertEqual((found["window"], found["stride"]), (window, stride))

    def test_sliding_without_the_weights_of_training(self):
        folder = str(helpers.temp_dir(self))
        config = model_dirs.read_config(self.model_dir)
        config = dataclasses.replace(
            config, train=dataclasses.replace(config.train, objective="auxiliary")
        )
        tokenizer = model_dirs.load(self.model_dir).tokenizer
        model_dirs.describe(folder, config, tokenizer)
        model_dirs.save_weights(folder, model_dirs.make_model(config), step=1)
        flags = f"--model_dir={folder}", f"--data_dir={self.data_dir}", "--sliding", "--stride=8"
        found = trained.last_json(trained.run("evaluate", *flags)[0])
        self.assertEqual(found["scored"], found["targets"])

    def test_settings_of_a_preset(self):
        """All of them as published, but for those that flags name."""
        settings = presets.preset("enwik8_base").eval
        lengths = dict(mem_len=2100, clamp_len=820, attention_span=2101)
        self.assertEqual(settings, EvalConfig(**lengths, segment_len=80, layout="reference"))
        found = trained.last_json(self.evaluate("--eval_preset=enwik8_base")[0])
        expected = self.expected("reference", 10, 80, **lengths)
        self.assertAlmostEqual(found["nats_per_token"], expected.nats_per_token, delta=self.atol)
        self.assertEqual(found["scored"], expected.scored)
        self.assertLess(found["scored"], found["targets"])
        flags = "--batch_size=2", "--set=eval.mem_len=2", "--layout=contiguous"
        found = trained.last_json(self.evaluate("--eval_preset=enwik8_base", *flags)[0])
        expected = self.expected("contiguous", 2, 80, **(lengths | dict(mem_len=2)))
        self.assertAlmostEqual(found["nats_per_token"], expected.nats_per_token, delta=self.atol)
        self.assertEqual(found["scored"], found["targets"])

    @parameterized.parameters(
        (("--stride=2",), 2, "--stride must be left out: it is that of --sliding"),
        (("--sliding", "--mem_len=4"), 2, "--mem_len must be left out: a window has no memory"),
        (
            ("--sliding", "--set=eval.mem_len=4"),
            2,
            "--set=eval.mem_len=4 must be left out: a window",
        ),
        (("--sliding", "--stride=9"), 1, "stride must be between 1 and the window of 8, got 9"),
        (("--eval_preset=wt103",), 2, "--eval_preset=wt103: value should be one of <tiny|"),
        (("--split=dev",), 1, "unknown split 'dev'; choose from train, valid"),
        (("--batch_size=5000",), 1, "pairs"),
        (("--mem_len=none",), 1, "mem_len must be a whole number, got None"),
        (("--attention_span=0",), 2, "attention_span must be at least 1, got 0"),
        (("--segment_len=x",), 2, "segment_len must be a whole number or none, got 'x'"),
        (("--set=model.num_layers=4",), 2, "--set must change a setting of eval here"),
        (("--checkpoint=best",), 1, "must hold a checkpoint in best"),
        (("--checkpoint=newest",), 2, "checkpoint"),
        (("--model_dir=nowhere",), 1, "model_dir must hold a config.json"),
        (("--data_dir=nowhere",), 1, "data_dir must hold metadata.json"),
    )
    def test_wrong_flags(self, flags, code, message):
        stdout, stderr = self.evaluate(*flags, code=code)
        self.assertEmpty(stdout)
        self.assertIn(message, stderr.splitlines()[-1])
        self.assertNotIn("Traceback", stderr)

    def test_data_of_another_vocabulary(self):  # AC16
        other = trained.prepare_data(self.create_tempdir().full_path, "word")
        same_size = trained.prepare_data(
            self.create_tempdir().full_path, options={"drop_newlines": True}
        )
        _, stderr = self.evaluate(f"--data_dir={other}", code=1)
        self.assertRegex(stderr.splitlines()[-1], r"vocab_size must be the data's \d+, got 256")
        _, stderr = self.evaluate(f"--data_dir={same_size}", code=1)
        message = r"vocabulary must be the data's \(checksum \w{12}\), got another .*\w{12}"
        self.assertRegex(stderr.splitlines()[-1], message)


if __name__ == "__main__":
    absltest.main()
