"""The vocabularies and ids of the original code, for its five corpora (golden case D1)."""

import json

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import prepared
from txl_tf.data import prepare, text, tokenizers
from txl_tf.data.recipe import Recipe

_DIGITS = dict(end_of_line="none", unknown="error", lower_case=True)
RECIPES = {
    "wt103": dict(),
    "ptb": dict(options=dict(lower_case=True), vocab_from="all"),
    "enwik8": dict(options=_DIGITS, vocab_from="all"),  # its files hold bytes as decimal words
    "text8": dict(options=_DIGITS, vocab_from="all"),
}


class PrepareGoldenTest(parameterized.TestCase):
    def prepare(self, splits, **fields):
        """Prepares files; returns (folder, metadata)."""
        folder = helpers.temp_dir(self) / "out"
        sources = {split: text.find(list(map(str, paths))) for split, paths in splits.items()}
        recipe = Recipe(tokenizer="word", **fields)
        return folder, prepare.prepare(sources, str(folder), recipe).metadata

    @parameterized.parameters(*RECIPES)
    def test_ids(self, corpus):
        golden = helpers.shared(f"golden/D1_data/{corpus}")
        expected = json.loads((golden / "expected.json").read_text())
        splits = {split: [golden / f"{split}.txt"] for split in ("train", "valid", "test")}
        folder, made = self.prepare(splits, **RECIPES[corpus])
        symbols = tokenizers.load(folder).vocabulary.symbols
        self.assertEqual(list(symbols), expected["idx2sym"])
        self.assertEqual(made.vocab_size, expected["vocab_size"])
        with np.load(golden / "io.npz") as arrays:
            for split in splits:
                self.assertEqual(prepared.stream(folder, split)[0], arrays[split].tolist())

    def test_lm1b(self):
        golden = helpers.shared("golden/D1_data/lm1b")
        expected = json.loads((golden / "expected.json").read_text())
        train = [golden / expected["train_dir"] / name for name in expected["train_paths"]]
        splits = {"train": train, "valid": [golden / "valid.txt"], "test": [golden / "valid.txt"]}
        folder, made = self.prepare(
            splits,
            vocab=str(golden / "1b_word_vocab.txt"),
            vocab_repeats="skip",
            options=dict(end_of_line="boundary"),
            shuffle_sentences=2,
        )
        symbols = tokenizers.load(folder).vocabulary.symbols
        self.assertEqual(list(symbols), expected["idx2sym"])
        with np.load(golden / "io.npz") as arrays:
            for split in ("valid", "test"):
                self.assertEqual(prepared.stream(folder, split)[0], arrays[split].tolist())
        self.check_streams(golden, prepared.stream(folder)[0], made.split("train").streams)

    def check_streams(self, golden, tokens, lengths):
        """Each of the original's record files is a stream; its rows are contiguous runs of it."""
        rows = 3
        found = json.loads((golden / f"examples-train.bsz-{rows}.tlen-4.json").read_text())
        self.assertEqual(
            [file["file"] for file in found["files"]], found["record_info"]["filenames"]
        )
        for file, length, end in zip(found["files"], lengths, np.cumsum(lengths), strict=True):
            stream = np.array(tokens[end - length : end])
            per_row = length // rows
            for row in range(rows):
                segments = file["examples"][row::rows]
                inputs = np.concatenate([segment["inputs"] for segment in segments])
                run = stream[row * per_row : (row + 1) * per_row]
                np.testing.assert_array_equal(inputs, run[: len(inputs)])
                self.assertLen(inputs, per_row - 1)


if __name__ == "__main__":
    absltest.main()
