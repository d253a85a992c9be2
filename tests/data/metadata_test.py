"""Tests of metadata.json: round trip, and rejection of each invalid field."""

import json

from absl.testing import absltest, parameterized

import helpers
from txl_tf.data import metadata

DATA = metadata.Metadata(
    tokenizer={"kind": "char", "options": {"lower_case": False}},
    vocab_size=11,
    vocab_checksum="0123456789abcdef",
    splits={
        "train": metadata.SplitMetadata(
            shards=(5, 2),
            tokens=7,
            streams=(3, 4),
            unknown=1,
            bytes=9,
            characters=8,
            documents=2,
            sources=(metadata.Source(name="a.txt", sha256="ff", bytes=9),),
        ),
        "valid": metadata.SplitMetadata(shards=(3,), tokens=3),
    },
)


class MetadataTest(parameterized.TestCase):
    def test_round_trip(self):
        self.assertEqual(metadata.Metadata.from_json(DATA.to_json()), DATA)

    def test_load(self):
        folder = helpers.temp_dir(self)
        (folder / "metadata.json").write_text(DATA.to_json())
        self.assertEqual(metadata.Metadata.load(folder), DATA)
        self.assertEqual(metadata.Metadata.load(f"{folder}/"), DATA)

    def test_files(self):
        self.assertEqual(
            DATA.split("train").files("train"),
            ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"),
        )

    def test_one_stream_by_default(self):
        self.assertEqual(DATA.split("valid").streams, (3,))

    def test_unknown_split(self):
        with self.assertRaisesRegex(ValueError, "unknown split 'test'; choose from train, valid"):
            DATA.split("test")

    def test_other_vocabulary(self):
        DATA.check_vocabulary(11, DATA.vocab_checksum)
        with self.assertRaisesRegex(ValueError, "vocab_size must be the data's 11, got 12"):
            DATA.check_vocabulary(12)
        with self.assertRaisesRegex(ValueError, r"0123456789ab\), got another of 11 .*feed\)"):
            DATA.check_vocabulary(11, "feed")

    def test_counts_must_add_up(self):
        for wrong in (dict(shards=(3, 3)), dict(shards=(7,), streams=(6,))):
            with self.assertRaisesRegex(ValueError, "must add up to tokens 7, got"):
                metadata.SplitMetadata(tokens=7, **wrong)


class WrongFileTest(parameterized.TestCase):
    def load(self, text):
        folder = helpers.temp_dir(self)
        (folder / "metadata.json").write_text(text)
        return metadata.Metadata.load(folder)

    def test_missing(self):
        with self.assertRaisesRegex(
            ValueError, "data_dir must hold metadata.json of prepare_data, got '.*/none'"
        ):
            metadata.Metadata.load(helpers.temp_dir(self) / "none")

    @parameterized.parameters(
        ("{", "metadata.json: metadata must be JSON, got Expecting"),
        ("[]", r"metadata.json: metadata must be a JSON object, got \[\]"),
        ("{}", "metadata.json: format_version must be 1, got None; prepare"),
    )
    def test_text(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            self.load(text)

    @parameterized.parameters(
        (dict(format_version=2), "format_version must be 1, got 2; prepare the data again"),
        (dict(vocab_size=0), "vocab_size must be at least 1, got 0"),
        (dict(vocab_size="11"), "vocab_size must be a whole number, got '11'"),
        (dict(tokenizer=[]), r"tokenizer must be a JSON object, got \[\]"),
        (
            dict(splits={"train": {"tokens": 3, "shards": [4, -1]}}),
            r"splits.train: shards must not be negative, got \(4, -1\)",
        ),
        (dict(splits=[]), r"splits must be a JSON object, got \[\]"),
        (dict(splits={"train": 3}), "splits.train must be a JSON object, got 3"),
        (dict(splits={"train": {"tokens": 3}}), "splits.train must have shards, got none"),
        (
            dict(splits={"train": {"tokens": 3, "shards": [1.5]}}),
            r"splits.train.shards\[0\] must be a whole number, got 1.5",
        ),
        (
            dict(splits={"train": {"tokens": 3, "shards": [3], "sources": [{"name": "a"}]}}),
            r"splits.train.sources\[0\] must have sha256, got none",
        ),
        (dict(colour=1), "metadata has no field 'colour'; choose from tokenizer, vocab_size"),
    )
    def test_field(self, change, message):
        with self.assertRaisesRegex(ValueError, f"metadata.json: {message}"):
            self.load(json.dumps(json.loads(DATA.to_json()) | change))

    def test_missing_field(self):
        content = json.loads(DATA.to_json())
        del content["vocab_checksum"]
        with self.assertRaisesRegex(ValueError, "metadata must have vocab_checksum, got none"):
            self.load(json.dumps(content))


if __name__ == "__main__":
    absltest.main()
