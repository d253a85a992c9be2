"""Tests of benchmarks.suites.data: its texts, checks and rows."""

import os
import pathlib
import subprocess
import unittest
from unittest import mock

import numpy as np
import parity_test
import pytest
from absl.testing import absltest, parameterized
from benchmark_test import SMALL

import helpers
import trained
from benchmarks.suites import data, data_reading
from benchmarks.workers import json_worker
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.data import prepare, recipe, text, tokenizers


class TextTest(absltest.TestCase):
    def test_corpus_has_the_requested_size(self):
        found = data.corpus(2_000_000)
        self.assertBetween(len(found), 2_000_000, 2_001_000)
        self.assertTrue(found.isascii() and found.endswith("\n"))
        period = found.index(found[:200], 1)
        self.assertEqual(found[period:], found[: len(found) - period])
        self.assertEqual(data.corpus(1), found[: found.index("\n") + 1])

    def test_only_words_remain(self):
        content = "A  class's x1_y,\n\n  ---\nthe end."
        self.assertEqual(data.only_words(content), "A class s x y\nthe end\n")


class CheckTest(parameterized.TestCase):
    def prepare(self, content, tokenizer="byte"):
        folder = str(helpers.temp_dir(self) / "data")
        splits = {"train": [text.Source.from_text("text", content)]}
        prepare.prepare(splits, folder, recipe.Recipe(tokenizer=tokenizer))
        return folder

    def test_all_ids_are_read(self):
        content = data.corpus(5000)
        found = data.ids_of(self.prepare(content))
        self.assertEqual(found.astype("uint8").tobytes(), content.encode())

    @parameterized.parameters("byte", "char", "word")
    def test_ids_of_another_text_are_rejected(self, tokenizer):
        content = data.corpus(30_000)
        folder = self.prepare(content, tokenizer)
        data.check_beginning(folder, content)
        other = content.replace("class", "lass c")
        with self.assertRaisesRegex(ValueError, "^ids must be those of the text, got others in"):
            data.check_beginning(folder, other)

    def test_data_of_another_preparation_is_rejected(self):
        content = data.corpus(5000)
        folder, same = self.prepare(content), self.prepare(content)
        data.check_same(folder, same)
        for other, message in (
            (content + "\n", "^metadata must equal that of .*, got another in"),
            (content.swapcase(), "must equal th"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                data.check_same(folder, self.prepare(other))

    def test_ids_unlike_the_peers_are_rejected(self):
        ids = np.arange(5)
        data.check_equal(ids, ids)
        with self.assertRaisesRegex(ValueError, "the peer's, got 5 and 4 ids that differ"):
            data.check_equal(ids, ids[:-1])

    def test_rows_of_another_text_are_rejected(self):
        content = data.corpus(5000)
        config = Config(
            model=helpers.tiny_config(), train=TrainConfig(batch_size=2, segment_len=16)
        )
        reader = data_reading.reader_of(config, self.prepare(content))
        data_reading.check_rows(reader, content)
        with self.assertRaisesRegex(ValueError, "^row 0 must begin with the text, got other ids"):
            data_reading.check_rows(reader, content[1:])


class RunProgramTest(absltest.TestCase):
    """Runs a stand-in for train.py, with 2 rows of 16 tokens per step."""

    def run_program(self, lines, code=0):
        folder = str(helpers.temp_dir(self))
        tokenizers.ByteTokenizer().save(folder)

        def run(command, **options):
            del options
            self.assertEqual(command[-2], f"--data_dir={folder}")
            model_dir = pathlib.Path(command[-1].partition("=")[2])
            self.assertTrue((model_dir / "config.json").exists())
            (model_dir / "metrics.jsonl").write_text("".join(f"{x}\n" for x in lines))
            return subprocess.CompletedProcess(command, code, "", "log\ntrain: error: no room\n")

        train = TrainConfig(batch_size=2, segment_len=16)
        config = Config(model=helpers.tiny_config(vocab_size=256), train=train)
        with mock.patch.object(data_reading.subprocess, "run", run):
            return data_reading.run_program(config, folder)

    def test_the_first_interval_is_not_timed(self):
        lines = (
            '{"step": 1, "steps": 1, "first_step_s": 9.0}',
            '{"step": 3, "steps": 2, "tokens_per_s": 64.0}',  # a second
            '{"step": 7, "steps": 4, "tokens_per_s": 32.0}',  # four
        )
        self.assertAlmostEqual(self.run_program(lines), 5 / 6)

    def test_a_failure_is_reported(self):
        with self.assertRaisesRegex(ValueError, "^train.py must succeed, got: .*error: no room$"):
            self.run_program((), code=1)


@pytest.mark.slow
class ProgramTest(absltest.TestCase):
    def rows(self, *flags):
        sizes = ("--set=train.segment_len=16", "--set=train.batch_size=2")
        flags = ("--suite=data", "--repeats=1", "--megabytes=0.1", *flags)
        stdout, _ = trained.run("benchmark", *flags, *sizes, *SMALL)
        rows = trained.last_json(stdout)["rows"]
        for row in rows:
            self.assertEqual(row.keys(), rows[0].keys())
            self.assertLessEqual(row["slowest"], row["rate"])
            self.assertLessEqual(row["rate"], row["fastest"])
        return {(row["work"], row["of"], row["workers"]): row for row in rows}

    def test_a_row_for_each_work(self):
        rows = self.rows()
        kinds = ("byte", "char", "word", "sentencepiece")
        expected = {("prepare", kind, workers) for kind in kinds for workers in (1, 2)}
        expected |= {("train", of, 1) for of in ("one batch", "train.py")}
        expected |= {("read", "byte", 1)}
        self.assertEqual(set(rows), expected)
        for (work, *_), row in rows.items():
            if work in ("prepare", "read"):
                self.assertBetween(row["peak_mb"], 10, 2000)
        read, trained_ = rows["read", "byte", 1], rows["train", "one batch", 1]
        self.assertAlmostEqual(read["times_faster"], read["rate"] / trained_["rate"])
        program = rows["train", "train.py", 1]
        self.assertAlmostEqual(program["times_faster"], program["rate"] / trained_["rate"])

    def test_the_peer_prepares_equal_words(self):
        python = str(parity_test.python())
        script = str(helpers.ROOT / "scripts" / "hf_words.py")
        folder = helpers.temp_dir(self)
        (folder / "text").write_text("one word\n")
        with json_worker.JsonWorker([python, script], is_foreign=True) as other:
            try:
                other.ask(text_path=str(folder / "text"), ids_path=str(folder / "ids.npy"))
            except ValueError as error:
                if "sacremoses" not in str(error):
                    raise
                raise unittest.SkipTest(
                    f"{os.environ[parity_test.ENVIRONMENT]} has no sacremoses"
                ) from error
        theirs, ours = (
            row for (work, *_), row in self.rows(f"--peers={python}").items() if work == "words"
        )
        self.assertEqual(theirs["times_faster"], 1.0)
        self.assertAlmostEqual(ours["times_faster"], ours["rate"] / theirs["rate"])


if __name__ == "__main__":
    absltest.main()
