"""Tests of txl_tf.export.edge.calibration."""

import gzip

import numpy as np
import runtime_test
from absl.testing import absltest

import helpers
from txl_tf.data import text, tokenizers
from txl_tf.data.text_size import TextSize
from txl_tf.export.edge import calibration


class SamplesTest(absltest.TestCase):
    def test_texts(self):
        folder = helpers.temp_dir(self)
        (folder / "a.gz").write_bytes(gzip.compress(b"ab" * 50))
        sources = [text.Source.from_path(str(folder / "a.gz")), text.Source.from_text("b", "c?")]
        found = calibration.from_text(runtime_test.tokenizer(), sources, 1000)
        np.testing.assert_array_equal(found.ids, [0, 1] * 50 + [2, 10])
        self.assertEqual(found.size, TextSize(tokens=102, bytes=102, characters=102, unknown=1))
        found = calibration.from_text(runtime_test.tokenizer(), sources, 7)
        np.testing.assert_array_equal(found.ids, [0, 1, 0, 1, 0, 1, 0])
        np.testing.assert_array_equal(found.part(2, 4).ids, [0, 1])

    def test_splits(self):
        folder = str(helpers.write_data(helpers.temp_dir(self) / "data", train=600, valid=60))
        tokenizer = tokenizers.load(folder)
        for split, most, count in (("valid", 9, 9), ("valid", 1000, 60), ("train", 300, 300)):
            found = calibration.from_split(folder, split, tokenizer, most)
            size = {"train": 600, "valid": 60}[split]
            np.testing.assert_array_equal(found.ids, helpers.draw_ids(size)[:count])
            self.assertEqual((found.size.tokens, found.size.characters), (size, size))
        with self.assertRaisesRegex(ValueError, "vocab_size must be the data's 11, got 256"):
            calibration.from_split(folder, "valid", tokenizers.ByteTokenizer(), 9)


if __name__ == "__main__":
    absltest.main()
