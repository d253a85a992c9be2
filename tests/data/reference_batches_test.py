"""layout="reference" equals the batches of the original code, segment by segment."""

import json

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import stream_data
from txl_tf.data import batches, encoding_passes

SETTINGS = ("wt103", "ptb", "enwik8", "text8", "lm1b")
SIZES = {
    "wt103": ((4, 5), (3, 8)),
    "ptb": ((4, 5), (3, 8)),
    "enwik8": ((4, 24), (3, 31)),
    "text8": ((4, 24), (3, 31)),
    "lm1b": ((3, 4), (2, 9)),
}


def streams(arrays, split):
    """The token streams of a split: for lm1b's training, each file twice, its lines shuffled."""
    if split in arrays:
        return [arrays[split]]
    files = []
    for k in range(2):
        lengths = arrays[f"train_shard_{k}_lengths"].astype(int)
        starts = np.cumsum([0, *lengths])[:-1]
        files.append(
            encoding_passes.Encoded(arrays[f"train_shard_{k}_sentences"], starts, 0, 0, 0, True)
        )
    return [encoded.ids for encoded in encoding_passes.shuffled(files, times=2, boundary="file")]


def read(test, parts, batch_size, segment_len, num_shards=3):
    """[(inputs, labels), ...] of an epoch without the padding, which is checked."""
    folder = stream_data.write(
        helpers.temp_dir(test),
        np.concatenate(parts),
        num_shards=num_shards,
        run_tokens=50,
        streams=[len(part) for part in parts],
    )
    source = batches.Batches(
        folder, "train", batch_size=batch_size, segment_len=segment_len, layout="reference"
    )
    found = []
    for step in source.arrays(epochs=1):
        length = int((step.targets[0] != -1).sum())
        np.testing.assert_array_equal(step.targets[:, length:], -1)
        np.testing.assert_array_equal(step.ids[:, length:], 0)
        found.append((step.ids[:, :length].tolist(), step.targets[:, :length].tolist()))
    test.assertEqual(source.scored, sum(len(row) for ids, _ in found for row in ids))
    return found


def joined(arrays, name):
    """[(inputs, labels), ...] from segments that stand side by side."""
    ends = np.cumsum(arrays[f"{name}.seg_lens"])[:-1]
    inputs, labels = (
        np.split(arrays[f"{name}.{part}"], ends, axis=1) for part in ("inputs", "labels")
    )
    return [(x.tolist(), y.tolist()) for x, y in zip(inputs, labels, strict=True)]


def examples(path, batch_size):
    """[(inputs, labels), ...] from a list of records, one a row of a segment."""
    steps = []
    for file in json.loads(path.read_text())["files"]:
        rows = file["examples"]
        for i in range(0, len(rows), batch_size):
            part = rows[i : i + batch_size]
            steps.append(([row["inputs"] for row in part], [row["labels"] for row in part]))
    return steps


class EveryCloneTest(parameterized.TestCase):
    """Against arrays in tests/golden."""

    def setUp(self):
        super().setUp()
        self.arrays = np.load(helpers.GOLDEN / "D1_batches.npz")

    def part(self, prefix):
        names = [name for name in self.arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.arrays[name] for name in names}

    @parameterized.product(
        split=("train", "valid", "test"), size=SIZES["wt103"], code=("tf", "pytorch")
    )
    def test_one_stream(self, split, size, code):
        rows, length = size
        expected = joined(self.part(f"wt103/{code}/"), f"{split}.b{rows}.t{length}")
        self.assertGreater(len(expected), 3)
        self.assertEqual(read(self, streams(self.part("wt103/"), split), *size), expected)

    @parameterized.parameters(*SIZES["lm1b"])
    def test_shuffled_sentences(self, rows, length):
        written = self.part("lm1b/tf/")
        files = ("train-000-00", "train-000-01", "train-001-00", "train-001-01")
        expected = [s for file in files for s in joined(written, f"{file}.b{rows}.t{length}")]
        found = read(self, streams(self.part("lm1b/"), "train"), rows, length)
        self.assertEqual(found, expected)

    def test_the_default_layout_is_another(self):
        whole = self.part("wt103/")["train"]
        folder = stream_data.write(helpers.temp_dir(self), whole)
        source = batches.Batches(folder, "train", batch_size=3, segment_len=8)
        inputs, _ = joined(self.part("wt103/tf/"), "train.b3.t8")[0]
        self.assertNotEqual(next(source.arrays()).ids.tolist(), inputs)


class SharedGoldenTest(parameterized.TestCase):
    """Against all that the originals wrote, in the originals' files."""

    @parameterized.product(setting=SETTINGS, split=("train", "valid", "test"), which=(0, 1))
    def test_records_of_the_tensorflow_code(self, setting, split, which):
        folder = helpers.shared(f"golden/D1_data/{setting}")
        rows, length = SIZES[setting][which]
        expected = examples(folder / f"examples-{split}.bsz-{rows}.tlen-{length}.json", rows)
        found = read(self, streams(np.load(folder / "io.npz"), split), rows, length)
        self.assertEqual(found, expected)

    @parameterized.product(setting=SETTINGS[:-1], split=("train", "valid", "test"), which=(0, 1))
    def test_ordered_iterator_of_the_pytorch_code(self, setting, split, which):
        folder = helpers.shared(f"golden/D1_data/{setting}")
        rows, length = SIZES[setting][which]
        arrays = np.load(folder / "pytorch_batches.npz")
        name = f"{split}.b{rows}.t{length}.e0"
        count = json.loads((folder / "pytorch_batches.json").read_text())[name]["n"]
        expected = [
            tuple(arrays[f"{name}.{part}_{k}"].T.tolist() for part in ("data", "target"))
            for k in range(count)
        ]
        self.assertEqual(
            read(self, streams(np.load(folder / "io.npz"), split), rows, length), expected
        )


if __name__ == "__main__":
    absltest.main()
