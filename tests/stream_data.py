"""Writes a token stream in the documented format, without the code under test."""

import json
import pathlib

import numpy as np
import tensorflow as tf


def write(
    folder,
    tokens,
    *,
    num_shards=1,
    run_tokens=3,
    document_start=(0,),
    vocab_size=None,
    streams=(),
    **counts,
):
    """Writes data of one split, "train", in shards of equal size up to a token; returns the folder.

    `counts` are more fields of the split, such as bytes.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    begins = np.isin(np.arange(len(tokens)), document_start)
    shards = [piece for piece in np.array_split(np.arange(len(tokens)), num_shards) if len(piece)]
    for index, places in enumerate(shards):
        name = f"train-{index:05d}-of-{len(shards):05d}.tfrecord"
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for i in range(0, len(places), run_tokens):
                run = places[i : i + run_tokens]
                writer.write(example(np.take(tokens, run), np.flatnonzero(begins[run])))
    split = dict(
        shards=[len(piece) for piece in shards],
        tokens=len(tokens),
        run_tokens=run_tokens,
        streams=list(streams),
        **counts,
    )
    content = dict(
        format_version=1,
        tokenizer=dict(kind="byte", options={}),
        vocab_size=vocab_size or int(max(tokens)) + 1,
        vocab_checksum="0123456789abcdef",
        splits=dict(train=split),
    )
    (folder / "metadata.json").write_text(json.dumps(content))
    return folder


def example(tokens, document_start):
    """Returns the serialized Example of a run, by the protocol buffer library."""
    lists = dict(tokens=tokens, document_start=document_start)
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, values)))
        for name, values in lists.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
