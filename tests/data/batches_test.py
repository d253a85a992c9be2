"""Batches continue row by row for any shards, start and workers; invalid input is rejected."""

import itertools
import threading

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import stream_data
from txl_tf.data import batches, metadata, shards
from txl_tf.models.transformer_xl import TransformerXL

SIZES = dict(num_tokens=(7, 11, 12), batch_size=(1, 2, 3))


def open_batches(test, num_tokens, batch_size, num_shards=1, **options):
    """Batches of the stream 0..N-1, length 2."""
    data = ("document_start", "run_tokens", "streams", "vocab_size")
    written = {name: options.pop(name) for name in data if name in options}
    folder = stream_data.write(
        helpers.temp_dir(test), range(num_tokens), num_shards=num_shards, **written
    )
    sizes = dict(batch_size=batch_size, segment_len=2)
    return batches.Batches(folder, "train", **(sizes | options))


def as_lists(steps):
    """Batches that can be compared."""
    return [tuple(np.asarray(part).tolist() for part in step) for step in steps]


def pairs(steps, row):
    """The (input, target) pairs of a row, joined over the steps."""
    ids, targets = (np.concatenate([s[part][row] for s in steps]) for part in (0, 1))
    real = targets != -1
    return list(zip(ids[real].tolist(), targets[real].tolist(), strict=True))


def folded(num_tokens, rows, length=2):
    """[(ids, targets), ...] of the stream 0..N-1 in training: a fold, padded to whole segments."""
    row = (num_tokens - 1) // rows
    ids = np.arange(rows * row).reshape(rows, row)
    ends = [(0, 0), (0, -row % length)]
    parts = (np.pad(ids, ends), np.pad(ids + 1, ends, constant_values=-1))
    split = (np.split(part, part.shape[1] // length, axis=1) for part in parts)
    return [(x.tolist(), y.tolist()) for x, y in zip(*split, strict=True)]


class FitTest(absltest.TestCase):
    def test_fit_and_evaluate_of_keras_take_them(self):
        read = open_batches(self, 10, 2, vocab_size=10)
        steps = read.steps_per_epoch
        once = [(x.tolist(), y.tolist()) for x, y in itertools.islice(read.for_fit(), steps)]
        self.assertEqual(once, folded(10, 2))
        model = TransformerXL(helpers.tiny_config(num_layers=1, vocab_size=10))
        model.compile("sgd", run_eagerly=True)
        found = model.fit(read.for_fit(), steps_per_epoch=steps, epochs=2, verbose=0)
        self.assertLen(found.history["loss"], 2)
        self.assertEqual(int(model.optimizer.iterations), 2 * steps)
        by_step = [np.mean(model.nll(np.array(x), np.array(y))[0]) for x, y in once]
        loss = model.evaluate(read.for_fit(), steps=steps, verbose=0)
        self.assertEqual([-1 in np.array(y) for _, y in once], [False, False])
        atol = rounding.of_scores(model.config)
        self.assertAlmostEqual(loss, np.mean(by_step), delta=atol)


class ContinuityTest(parameterized.TestCase):
    @parameterized.product(**SIZES, num_shards=(1, 2, 5))
    def test_training_folds_the_stream_whatever_the_shards(
        self, num_tokens, batch_size, num_shards
    ):
        read = open_batches(self, num_tokens, batch_size, num_shards, num_parallel=num_shards)
        found = [step[:2] for step in as_lists(read.arrays(epochs=1))]
        self.assertEqual(found, folded(num_tokens, batch_size))
        self.assertLen(found, read.steps_per_epoch)
        self.assertEqual(read.scored, (num_tokens - 1) // batch_size * batch_size)
        self.assertEqual(read.scored + read.dropped, num_tokens - 1)

    @parameterized.product(**SIZES)
    def test_evaluation_rows_are_disjoint_runs_of_the_stream(self, num_tokens, batch_size):
        read = open_batches(self, num_tokens, batch_size, num_shards=5, mode="eval")
        steps = list(read.arrays(epochs=1))
        rows = [pairs(steps, row) for row in range(batch_size)]
        self.assertEqual(sum(rows, []), [(i, i + 1) for i in range(num_tokens - 1)])
        for this, following in itertools.pairwise(steps):
            more = following.targets[:, 0] != -1
            np.testing.assert_array_equal(following.ids[more, 0], this.targets[more, -1])
        self.assertEqual((read.scored, read.dropped), (num_tokens - 1, 0))

    @parameterized.parameters(1, 3, 3000)
    def test_segments_of_any_length(self, segment_len):
        read = open_batches(self, 4500, 2, num_shards=3, run_tokens=50, segment_len=segment_len)
        steps = list(read.arrays(epochs=1))
        self.assertEqual(steps[0].ids.shape, (2, segment_len))
        self.assertEqual([first for first, _ in pairs(steps, 0)], list(range(2249)))
        self.assertEqual([first for first, _ in pairs(steps, 1)], list(range(2249, 4498)))

    def test_shards_of_the_writer(self):
        folder = stream_data.write(helpers.temp_dir(self), range(100))
        expected = as_lists(
            batches.Batches(folder, "train", batch_size=3, segment_len=7).arrays(0, 1)
        )
        with shards.ShardWriter(folder, "valid", shard_tokens=16, run_tokens=5) as writer:
            writer.write(np.arange(100))
        train = metadata.Metadata.load(folder)
        split = metadata.SplitMetadata(shards=tuple(writer.shards), tokens=100, run_tokens=5)
        data = metadata.Metadata(
            tokenizer=train.tokenizer,
            vocab_size=100,
            vocab_checksum="",
            splits={**train.splits, "valid": split},
        )
        (folder / metadata.FILE_NAME).write_text(data.to_json())
        read = batches.Batches(folder, "valid", batch_size=3, segment_len=7)
        self.assertEqual(as_lists(read.arrays(epochs=1)), expected)


class ExamplesTest(absltest.TestCase):
    """Worked by hand."""

    def check(self, read, *expected):
        steps = list(read.arrays(epochs=1))
        self.assertEqual([(s.ids.tolist(), s.targets.tolist()) for s in steps], list(expected))

    def test_training(self):
        read = open_batches(self, 11, 2)
        self.check(
            read,
            ([[0, 1], [5, 6]], [[1, 2], [6, 7]]),
            ([[2, 3], [7, 8]], [[3, 4], [8, 9]]),
            ([[4, 0], [9, 0]], [[5, -1], [10, -1]]),
        )
        self.assertEqual((read.pairs, read.scored, read.dropped), (10, 10, 0))

    def test_training_drops_the_tail(self):
        read = open_batches(self, 12, 2)
        self.assertEqual((read.pairs, read.scored, read.dropped), (11, 10, 1))

    def test_evaluation(self):
        read = open_batches(self, 11, 2, mode="eval")
        self.check(
            read,
            ([[0, 1], [5, 6]], [[1, 2], [6, 7]]),
            ([[2, 3], [7, 8]], [[3, 4], [8, 9]]),
            ([[4, 0], [9, 0]], [[5, -1], [10, -1]]),
        )
        self.assertEqual((read.scored, read.dropped), (10, 0))

    def test_evaluation_with_empty_rows(self):
        read = open_batches(self, 7, 5, mode="eval")
        self.check(
            read,
            (
                [[0, 1], [2, 3], [4, 5], [0, 0], [0, 0]],
                [[1, 2], [3, 4], [5, 6], [-1, -1], [-1, -1]],
            ),
        )

    def test_reference_of_11(self):
        read = open_batches(self, 11, 2, layout="reference")
        self.check(
            read,
            ([[0, 1], [5, 6]], [[1, 2], [6, 7]]),
            ([[2, 3], [7, 8]], [[3, 4], [8, 9]]),
        )
        self.assertEqual((read.pairs, read.scored, read.dropped), (10, 8, 2))

    def test_reference_of_12(self):
        read = open_batches(self, 12, 2, layout="reference")
        self.check(
            read,
            ([[0, 1], [6, 7]], [[1, 2], [7, 8]]),
            ([[2, 3], [8, 9]], [[3, 4], [9, 10]]),
            ([[4, 0], [10, 0]], [[5, -1], [11, -1]]),
        )
        self.assertEqual((read.pairs, read.scored, read.dropped), (11, 10, 1))

    def test_reference_of_streams(self):
        read = open_batches(self, 13, 2, layout="reference", streams=[5, 1, 7])
        self.check(
            read,
            ([[0, 0], [2, 0]], [[1, -1], [3, -1]]),
            ([[6, 7], [9, 10]], [[7, 8], [10, 11]]),
        )
        self.assertEqual((read.pairs, read.scored, read.dropped), (12, 6, 6))

    def test_document_starts_are_those_of_the_inputs(self):
        read = open_batches(self, 12, 2, num_shards=5, document_start=[0, 3, 4, 5, 11])
        starts = [step.document_start.tolist() for step in read.arrays(epochs=1)]
        self.assertEqual(
            starts,
            [
                [[True, False], [True, False]],
                [[False, True], [False, False]],
                [[True, False], [False, False]],
            ],
        )


class EpochTest(parameterized.TestCase):
    def test_rows_restart(self):
        read = open_batches(self, 11, 2, num_shards=2)
        steps = as_lists(read.arrays(epochs=3))
        self.assertLen(steps, 9)
        self.assertEqual(steps, steps[:3] * 3)
        self.assertEqual([restart for *_, restart in steps], [True, False, False] * 3)

    @parameterized.parameters(
        dict(num_tokens=21, batch_size=2, num_shards=5),
        dict(num_tokens=20, batch_size=3, num_shards=3, segment_len=3, mode="eval"),
        dict(num_tokens=4101, batch_size=2, num_shards=2, segment_len=300, run_tokens=64),
        dict(num_tokens=14, batch_size=2, num_shards=2, layout="reference", streams=[7, 1, 6]),
    )
    def test_starting_anywhere_is_having_read_so_far(self, **options):
        read = open_batches(self, **options)
        steps = as_lists(read.arrays(epochs=3))
        self.assertLen(steps, 3 * read.steps_per_epoch)
        for start in range(len(steps) + 1):
            self.assertEqual(as_lists(read.arrays(start, epochs=3)), steps[start:])

    def test_epochs_repeat_by_default(self):
        read = open_batches(self, 11, 2)
        self.assertLen(list(itertools.islice(read.arrays(), 10)), 10)

    def test_negative_start(self):
        read = open_batches(self, 11, 2)
        with self.assertRaisesRegex(ValueError, "start_step must be at least 0, got -1"):
            read.arrays(-1)


class WorkersTest(parameterized.TestCase):
    @parameterized.parameters(("train", 40), ("eval", 9))
    def test_rows_of_workers_are_those_of_one(self, mode, num_tokens):
        options = dict(num_tokens=num_tokens, batch_size=6, mode=mode, num_shards=2)
        whole = as_lists(open_batches(self, **options).arrays(epochs=1))
        parts = [open_batches(self, **options, rows=rows) for rows in ((0, 3), (3, 4), (4, 6))]
        for step, *shares in zip(
            whole, *(as_lists(part.arrays(epochs=1)) for part in parts), strict=True
        ):
            for name, expected, *found in zip(batches.Batch._fields, step, *shares, strict=True):
                if name == "restart":
                    self.assertEqual(found, [expected] * 3)
                else:
                    self.assertEqual(sum(found, []), expected)
        for part in parts:
            self.assertEqual(part.scored + part.dropped, num_tokens - 1)


class ArraysTest(absltest.TestCase):
    def test_shapes_and_dtypes(self):
        (*_, batch) = open_batches(self, 29, 3, segment_len=4).arrays(epochs=1)
        found = [(part.dtype.name, part.shape) for part in batch]
        segments = (3, 4)
        expected = [("int32", segments), ("int32", segments), ("bool", segments), ("bool", ())]
        self.assertEqual(found, expected)

    def test_error_names_the_file(self):
        read = open_batches(self, 29, 3, num_shards=2)
        path = next(iter(read.split_metadata.files("train")))
        with tf.io.TFRecordWriter(f"{read.data_dir}/{path}") as writer:
            writer.write(b"")
        with self.assertRaisesRegex(ValueError, f"{path} must hold 15 tokens"):
            list(read.arrays(epochs=1))

    def test_closing_ends_the_threads_that_read(self):
        before = set(threading.enumerate())
        reading = open_batches(self, 29, 3, num_shards=2).arrays()
        next(reading)
        self.assertNotEqual(set(threading.enumerate()), before)
        reading.close()
        self.assertEqual(set(threading.enumerate()), before)


class ErrorTest(parameterized.TestCase):
    @parameterized.parameters("train", "eval")
    def test_too_short(self, mode):
        message = (
            "split 'train': the stream must hold at least 6 tokens for batch_size 5, got 5 tokens "
            r"\(4 pairs of input and target for 5 rows\)"
        )
        with self.assertRaisesRegex(ValueError, message):
            open_batches(self, 5, 5, mode=mode)

    @parameterized.parameters(
        (dict(batch_size=0), "batch_size must be at least 1, got 0"),
        (dict(segment_len=0), "segment_len must be at least 1, got 0"),
        (dict(num_parallel=0), "num_parallel must be at least 1, got 0"),
        (dict(rows=(1, 3)), r"rows must lie within 0..2, got \(1, 3\)"),
        (dict(rows=(1, 1)), r"rows must lie within 0..2, got \(1, 1\)"),
        (dict(layout="rows"), "layout must be one of contiguous, reference, got 'rows'"),
        (dict(mode="test"), "mode must be one of train, eval, got 'test'"),
    )
    def test_arguments(self, wrong, message):
        with self.assertRaisesRegex(ValueError, message):
            open_batches(self, **(dict(num_tokens=11, batch_size=2) | wrong))

    def test_unknown_split(self):
        folder = stream_data.write(helpers.temp_dir(self), range(9))
        with self.assertRaisesRegex(ValueError, "unknown split 'valid'; choose from train"):
            batches.Batches(folder, "valid", batch_size=1, segment_len=2)

    def test_no_data(self):
        with self.assertRaisesRegex(ValueError, "data_dir must hold metadata.json"):
            batches.Batches(helpers.temp_dir(self), "train", batch_size=1, segment_len=2)


if __name__ == "__main__":
    absltest.main()
