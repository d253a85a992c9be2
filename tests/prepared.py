"""Reads the output of `prepare` with only TensorFlow and JSON."""

import json
import pathlib

import numpy as np
import tensorflow as tf


def stream(folder, split="train"):
    """Returns the tokens of a split and the positions of document starts, as lists."""
    tokens, starts = [], []
    for path in sorted(pathlib.Path(folder).glob(f"{split}-*.tfrecord")):
        for record in tf.data.TFRecordDataset(str(path)):
            feature = tf.train.Example.FromString(record.numpy()).features.feature
            starts += [len(tokens) + s for s in feature["document_start"].int64_list.value]
            tokens += feature["tokens"].int64_list.value
    return tokens, starts


def metadata(folder):
    """`metadata.json`."""
    return json.loads((pathlib.Path(folder) / "metadata.json").read_text("utf-8"))


def contents(folder):
    """File name -> bytes."""
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())}


def text(size, seed=0):
    """Returns lines of words, some rare, with some blank lines, of about `size` characters."""
    draw = np.random.default_rng(seed)
    syllables = [first + second for first in "klmtspv" for second in "aiou"]
    pairs = [first + second for first in syllables for second in syllables]
    words = ["a", "the", "of", "and", "to", "in", "café", "日本", "naïve", *pairs]
    lines, length = [], 0
    while length < size:
        ranks = draw.random(draw.integers(12)) ** 3 * len(words)
        lines.append(" ".join(words[int(rank)] for rank in ranks))
        length += len(lines[-1]) + 1
    return "\n".join(lines) + "\n"
