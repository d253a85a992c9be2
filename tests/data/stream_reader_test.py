"""Tests of reading a stream from any position, and of damaged files."""

from concurrent import futures

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import stream_data
from txl_tf.data import metadata, stream_reader

TOKENS = np.random.default_rng(0).integers(0, 300, 29)
STARTS = (0, 3, 4, 12, 13, 28)


def open_reader(folder):
    return stream_reader.StreamReader(folder, "train", metadata.Metadata.load(folder))


def read(reader, position):
    """The tokens and document starts from a position to the end."""
    tokens, document_start = (
        np.concatenate(p).tolist() for p in zip(*reader.runs(position), strict=True)
    )
    return tokens, document_start


class StreamReaderTest(parameterized.TestCase):
    @parameterized.product(num_shards=(1, 2, 5, 29), run_tokens=(1, 3, 100))
    def test_reads_on_from_anywhere(self, num_shards, run_tokens):
        folder = stream_data.write(
            helpers.temp_dir(self),
            TOKENS,
            num_shards=num_shards,
            run_tokens=run_tokens,
            document_start=STARTS,
        )
        reader = open_reader(folder)
        begins = np.isin(range(len(TOKENS)), STARTS)
        for place in range(len(TOKENS)):
            tokens, document_start = read(reader, place)
            self.assertEqual(tokens, TOKENS[place:].tolist())
            self.assertEqual(document_start, begins[place:].tolist())

    def test_reads_remote_folders(self):
        folder = stream_data.write(helpers.temp_dir(self), TOKENS, num_shards=2)
        reader = open_reader(f"file://{folder}")  # through TensorFlow's file systems
        for place in range(len(TOKENS)):
            self.assertEqual(read(reader, place)[0], TOKENS[place:].tolist())

    def test_reads_no_more_than_asked(self):
        folder = stream_data.write(helpers.temp_dir(self), TOKENS, num_shards=5)
        (folder / "train-00000-of-00005.tfrecord").write_bytes(b"never read")
        tokens, _ = read(open_reader(folder), 6)
        self.assertEqual(tokens, TOKENS[6:].tolist())

    def test_data_that_are_prepared_anew_are_not_read_on(self):
        folder = stream_data.write(helpers.temp_dir(self), TOKENS, num_shards=2)
        reader = open_reader(folder)
        runs = reader.runs(0)
        next(runs)
        path = folder / metadata.FILE_NAME  # of another text, whose shards have the same names
        path.write_text(path.read_text() + " ")
        with self.assertRaisesRegex(ValueError, "must not change while it is read, got other"):
            list(runs)


class WrongFilesTest(parameterized.TestCase):
    """Shards of 10, 10 and 9 tokens in runs of 3; something is wrong with the second."""

    def setUp(self):
        super().setUp()
        self.folder = stream_data.write(helpers.temp_dir(self), TOKENS, num_shards=3)
        self.path = self.folder / "train-00001-of-00003.tfrecord"
        self.records = [r.numpy() for r in tf.data.TFRecordDataset(str(self.path))]

    def rewrite(self, records):
        with tf.io.TFRecordWriter(str(self.path)) as writer:
            for record in records:
                writer.write(record)

    def fails(self, message):
        with self.assertRaisesRegex(ValueError, f"{self.path}{message}"):
            read(open_reader(self.folder), 0)

    def test_missing(self):
        self.path.unlink()
        with self.assertRaisesRegex(
            ValueError, f"the 3 shards of 'train', got 1 missing: {self.path}"
        ):
            open_reader(self.folder)

    def test_missing_while_reading(self):
        reader = open_reader(self.folder)
        self.path.unlink()
        with self.assertRaisesRegex(FileNotFoundError, str(self.path)):
            read(reader, 0)

    @parameterized.parameters((1, 3), (20, 3), (60, 2))
    def test_truncated(self, cut, record):
        self.path.write_bytes(self.path.read_bytes()[:-cut])
        self.fails(f" must be a whole TFRecord file, got damage in record {record}")

    @parameterized.parameters(0, 3, 8, 12, 30, -1)
    def test_flipped_bit(self, place):
        content = bytearray(self.path.read_bytes())
        content[place] ^= 64
        self.path.write_bytes(content)
        self.fails(" must be a whole TFRecord file, got damage in record")

    def test_other_file(self):
        self.path.write_text("some text that is longer than a header")
        self.fails(" must be a whole TFRecord file, got damage in record 0")

    @parameterized.parameters(0, 1, 3)
    def test_cut_between_records(self, kept):
        self.rewrite(self.records[:kept])
        self.fails(" must hold 10 tokens in runs of 3, as in metadata.json, got another number")

    def test_last_shard_cut_between_records(self):
        self.path = self.folder / "train-00002-of-00003.tfrecord"
        self.records = [r.numpy() for r in tf.data.TFRecordDataset(str(self.path))]
        self.rewrite(self.records[:-1])
        self.fails(" must hold 9 tokens in runs of 3")

    def test_one_record_more(self):
        self.rewrite([*self.records, self.records[0]])
        self.fails(" must hold 10 tokens in runs of 3")

    def test_records_in_another_order(self):
        self.rewrite(self.records[::-1])
        self.fails(" must hold 10 tokens in runs of 3")

    def test_no_run(self):
        self.rewrite([b"", *self.records[1:]])
        self.fails(" must hold 10 tokens in runs of 3")

    def test_no_example(self):
        self.rewrite([b"\xff", *self.records[1:]])
        self.fails(": records must be tf.train.Examples")

    def test_id_outside_the_vocabulary(self):
        self.rewrite([*self.records[:-1], stream_data.example([300], [])])
        self.fails(f": tokens must lie in 0..{TOKENS.max()}, got 300")


class ReadAheadTest(absltest.TestCase):
    def test_cuts_anew(self):
        runs = [stream_reader.Run(np.arange(i, i + 3), np.arange(i, i + 3) == 4) for i in (0, 3, 6)]
        with futures.ThreadPoolExecutor(2) as pool:
            ahead = stream_reader.ReadAhead(iter(runs), pool)
            taken = [ahead.take(count) for count in (2, 0, 5, 1)]
        tokens = [run.tokens.tolist() for run in taken]
        self.assertEqual(tokens, [[0, 1, 2], [2], [2, 3, 4, 5, 6, 7], [7, 8]])
        starts = [run.tokens[run.document_start].tolist() for run in taken]
        self.assertEqual(starts, [[], [], [4], []])

    def test_error_comes_when_it_is_reached(self):
        def runs():
            yield stream_reader.Run(np.arange(3), np.zeros(3, bool))
            raise ValueError("damaged")

        with futures.ThreadPoolExecutor(1) as pool:
            ahead = stream_reader.ReadAhead(runs(), pool)
            ahead.take(2)
            with self.assertRaisesRegex(ValueError, "damaged"):
                ahead.take(1)


class ParseTest(parameterized.TestCase):
    def test_run(self):
        run = stream_reader.parse(stream_data.example([4, 0, 300], [1]), vocab_size=301)
        np.testing.assert_array_equal(run.tokens, [4, 0, 300])
        np.testing.assert_array_equal(run.document_start, [False, True, False])
        self.assertEqual(run.tokens.dtype, np.int32)

    @parameterized.parameters(
        (stream_data.example([1, 11], []), r"tokens must lie in 0..10, got 11"),
        (stream_data.example([1, -1], []), r"tokens must lie in 0..10, got -1"),
        (stream_data.example([1, 2], [2]), r"document_start must lie in 0..1, got 2"),
        (b"not an example", r"records must be tf.train.Examples, got"),
    )
    def test_refuses(self, example, message):
        with self.assertRaisesRegex(ValueError, message):
            stream_reader.parse(example, vocab_size=11)


if __name__ == "__main__":
    absltest.main()
