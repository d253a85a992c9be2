"""Tests of shard files: bytes, boundaries, names and rejected input."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import stream_data
from txl_tf.data import shards


def read(folder):
    """{file: [(tokens, document_start), ...]} by TensorFlow alone."""
    lists = dict.fromkeys(("tokens", "document_start"), tf.io.RaggedFeature(tf.int64))
    return {
        path.name: [
            tuple(
                tf.io.parse_single_example(record, lists)[name].numpy().tolist() for name in lists
            )
            for record in tf.data.TFRecordDataset(str(path))
        ]
        for path in sorted(folder.iterdir())
    }


class ShardWriterTest(parameterized.TestCase):
    def write(self, cuts=(), tokens=range(10, 21), starts=(0, 4, 9), **sizes):
        """Writes `tokens` in pieces that end at `cuts`; returns the folder and what close says."""
        folder, tokens = helpers.temp_dir(self), np.array(tokens, np.int64)
        writer = shards.ShardWriter(folder, "train", **sizes)
        for first, last in itertools.pairwise([0, *cuts, len(tokens)]):
            begins = [s - first for s in starts if first <= s < last]
            writer.write(tokens[first:last], np.array(begins, np.int64))
        return folder, writer.close()

    def test_runs_and_shards(self):
        folder, counts = self.write(shard_tokens=5, run_tokens=3)
        self.assertEqual(counts, [5, 5, 1])
        self.assertEqual(
            read(folder),
            {
                "train-00000-of-00003.tfrecord": [([10, 11, 12], [0]), ([13, 14], [1])],
                "train-00001-of-00003.tfrecord": [([15, 16, 17], []), ([18, 19], [1])],
                "train-00002-of-00003.tfrecord": [([20], [])],
            },
        )

    @parameterized.parameters((()), (1,), (5,), (3, 3, 4), tuple(range(1, 11)))
    def test_files_depend_on_the_stream_alone(self, *cuts):
        contents = []
        for some in ((), cuts):
            folder, _ = self.write(some, shard_tokens=5, run_tokens=3)
            contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
        self.assertEqual(*contents)

    @parameterized.parameters(127, 128, 255, 16383, 16384, 2**21, 2**28, 2**31 - 1)
    def test_bytes_are_those_of_the_protocol_buffer_library(self, largest):
        tokens = [0, 1, largest, largest - 1, 127, 128, 300]
        folder, _ = self.write(tokens=tokens, starts=[0, 2, 6])
        (record,) = tf.data.TFRecordDataset(str(folder / "train-00000-of-00001.tfrecord"))
        parsed = tf.train.Example.FromString(record.numpy())
        expected = tf.train.Example.FromString(stream_data.example(tokens, [0, 2, 6]))
        self.assertEqual(parsed, expected)
        self.assertEqual(record.numpy(), expected.SerializeToString(deterministic=True))

    def test_long_runs(self):
        tokens = np.random.default_rng(0).integers(0, 300_000, 20_000)
        folder, counts = self.write(tokens=tokens, starts=range(0, 20_000, 100))
        ((*_, last),) = read(folder).values()
        self.assertEqual(counts, [20_000])
        self.assertLen(last[0], 20_000 % 8192)
        self.assertEqual(last[0], tokens[-len(last[0]) :].tolist())
        self.assertEqual(last[1][:2], [16, 116])

    def test_first_token_begins_a_document(self):
        folder, _ = self.write(starts=[4])
        ((run,),) = read(folder).values()
        self.assertEqual(run[1], [0, 4])

    def test_empty_stream_leaves_no_file(self):
        folder, counts = self.write(tokens=[], starts=[])
        self.assertEqual((counts, list(folder.iterdir())), ([], []))

    def test_names_are_temporary_until_the_end(self):
        folder = helpers.temp_dir(self)
        with shards.ShardWriter(folder, "train", shard_tokens=2) as writer:
            writer.write(np.arange(5))
            self.assertTrue(all(path.suffix == ".partial" for path in folder.iterdir()))
        self.assertEqual(writer.shards, [2, 2, 1])
        self.assertLen(list(folder.glob("train-*-of-00003.tfrecord")), 3)
        self.assertLen(list(folder.iterdir()), 3)

    def test_nothing_is_left_after_an_error(self):
        folder = helpers.temp_dir(self)
        (folder / "other").touch()
        with (
            self.assertRaisesRegex(ValueError, "tokens must lie in 0..2147483647, got -3"),
            shards.ShardWriter(folder, "train", shard_tokens=2) as writer,
        ):
            writer.write(np.arange(5))
            writer.write(np.array([4, -3]))
        self.assertEqual([path.name for path in folder.iterdir()], ["other"])

    @parameterized.parameters(
        ([[1]], [], r"tokens must be a vector of ids, got int64 of \(1, 1\)"),
        ([1.5], [], r"tokens must be a vector of ids, got float64 of \(1,\)"),
        ([2**31], [], r"tokens must lie in 0..2147483647, got 2147483648"),
        ([1, 2], [2], r"document_start must lie in 0..1, got 2"),
        ([1, 2], [1, 0], r"document_start must be ascending, got \[1, 0\]"),
    )
    def test_refuses(self, tokens, starts, message):
        writer = shards.ShardWriter(helpers.temp_dir(self), "train")
        with self.assertRaisesRegex(ValueError, message):
            writer.write(np.array(tokens), starts)

    @parameterized.parameters("shard_tokens", "run_tokens")
    def test_sizes(self, size):
        with self.assertRaisesRegex(ValueError, f"{size} must be at least 1, got 0"):
            shards.ShardWriter("unused", "train", **{size: 0})


if __name__ == "__main__":
    absltest.main()
