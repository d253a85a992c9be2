"""Tests of scripts/score.py, run as a user runs it."""

import gzip
import json
import pathlib

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.inference.model_scorer import Scorer

TEXT = "kaka lo\nmi ter, süß\n\nlo\n"


@pytest.mark.slow
class ScoreProgramTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        data_dir = trained.prepare_data(cls.folder, "char")
        cls.model_dir = trained.describe(cls.folder, data_dir, num_layers=1)
        cls.loaded = model_dirs.load(cls.model_dir)
        cls.file = str(cls.folder / "text.txt")
        pathlib.Path(cls.file).write_text(TEXT, "utf-8")

    def score(self, *flags, stdin="", code=0):
        flags = (f"--model_dir={self.model_dir}", *flags)
        stdout, stderr = trained.run("score", *flags, stdin=stdin, code=code)
        return [json.loads(line) for line in stdout.splitlines()], stderr

    def expected(self, content):
        return Scorer(self.loaded.model, self.loaded.tokenizer, segment_len=8).score(content)

    def assert_scores(self, found, content):
        expected = self.expected(content).to_dict()
        self.assertEqual(found.keys(), expected.keys())
        self.assertEqual(found["tokens"], list(expected["tokens"]))
        self.assertIsNone(found["log_probs"][0])
        ours, theirs = found["log_probs"][1:], expected["log_probs"][1:]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=self.atol())
        self.assertAlmostEqual(found["nats"], expected["nats"], delta=len(content) * self.atol())

    def atol(self):
        """Returns the tolerance of one log-probability."""
        return rounding.of_scores(self.loaded.model.config, len(TEXT))

    def test_a_file_is_one_text(self):
        (found,), _ = self.score(f"--input={self.file}")
        self.assert_scores(found, TEXT)
        self.assertIn("<unk>", found["tokens"])
        self.assertGreater(found["unknown"], 0)

    def test_standard_input_compressed_and_summed_up(self):
        packed = gzip.compress(TEXT.encode())
        (found,), _ = self.score("--input=-", "--summary", stdin=packed)
        self.assertNotIn("tokens", found)
        atol = len(TEXT) * self.atol()
        self.assertAlmostEqual(found["nats"], self.expected(TEXT).nats, delta=atol)

    def test_each_line_is_a_text(self):
        found, _ = self.score("--input=-", "--per_line", "--batch_size=2", stdin=TEXT)
        self.assertLen(found, 4)
        for i in (0, 1, 3):
            self.assert_scores(found[i], TEXT.split("\n")[i])
        self.assertEqual((found[2]["tokens"], found[2]["log_probs"]), ([], []))

    def test_lengths_by_flags(self):
        flags = ("--mem_len=3", "--segment_len=2", "--summary")
        (found,), _ = self.score(f"--input={self.file}", *flags)
        scorer = Scorer(
            self.loaded.model.with_lengths(mem_len=3), self.loaded.tokenizer, segment_len=2
        )
        atol = len(TEXT) * self.atol()
        self.assertAlmostEqual(found["nats"], scorer.score(TEXT).nats, delta=atol)
        self.assertGreater(abs(found["nats"] - self.expected(TEXT).nats), 1e-2)

    @parameterized.parameters(
        (b"", "standard input must have at least one token, got 0"),
        (b"kaka \xff lo", "standard input must be UTF-8, got byte 0xff at offset 5"),
    )
    def test_unreadable_text(self, stdin, message):
        found, stderr = self.score("--input=-", stdin=stdin, code=1)
        self.assertEmpty(found)
        self.assertIn(message, stderr.splitlines()[-1])
        self.assertNotIn("Traceback", stderr)

    def test_an_invalid_line_is_named_by_its_number(self):
        _, stderr = self.score("--input=-", "--per_line", stdin=b"ka\nlo \xff\n", code=1)
        self.assertIn("got byte 0xff at offset 6;", stderr.splitlines()[-1])
        self.assertIn("; --invalid_utf8=replace puts U+FFFD", stderr.splitlines()[-1])
        found, _ = self.score(
            "--input=-", "--per_line", "--invalid_utf8=replace", stdin=b"ka\nlo \xff\n"
        )
        self.assertEqual(found[1]["tokens"], ["l", "o", " ", "<unk>"])

    @parameterized.parameters(
        (("--input=missing.txt",), 1, "missing.txt must be a file, got no such file"),
        ((), 2, "--input is required"),
        (("--input=-", "--batch_size=0"), 2, "batch_size must be at least 1, got 0"),
    )
    def test_wrong_flags(self, flags, code, message):
        _, stderr = self.score(*flags, code=code)
        self.assertIn(message, stderr.splitlines()[-1])
        self.assertNotIn("Traceback", stderr)


if __name__ == "__main__":
    absltest.main()
