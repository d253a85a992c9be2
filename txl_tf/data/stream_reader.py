"""Sequential reading of a split's stream from any token."""

import bisect
import itertools
from collections.abc import Iterator
from concurrent import futures
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import message

from txl_tf.data import files, metadata, shards, tfrecord


class Run(NamedTuple):
    """Consecutive tokens of a stream.

    Shapes: tokens [n] int32, document_start [n] bool.
    """

    tokens: np.ndarray
    document_start: np.ndarray


class StreamReader:
    """The token stream of one split, in the order of its shards.

    Raises:
      ValueError: a shard is missing; or, while reading, does not fit the metadata, or the folder
        was replaced. The message names the file or the folder.
    """

    def __init__(self, data_dir: str, split: str, data: metadata.Metadata):
        folder = str(data_dir).rstrip("/")
        self._split = data.split(split)
        self._vocab_size = data.vocab_size
        names = self._split.files(split)
        missing = sorted(set(names) - set(files.names(folder)))
        if missing:
            raise ValueError(
                f"data_dir must hold the {len(names)} shards of {split!r}, got "
                f"{len(missing)} missing: {folder}/{missing[0]}"
            )
        self._folder = folder
        self._described = files.read_bytes(f"{folder}/{metadata.FILE_NAME}")
        self._paths = [f"{folder}/{name}" for name in names]
        self._shard_starts = [0, *itertools.accumulate(self._split.shards)]

    def runs(self, position: int) -> Iterator[Run]:
        """Yields the stream from a token on, run by run; reads at most one shard partially."""
        first = bisect.bisect_right(self._shard_starts, position) - 1
        for shard in range(first, len(self._paths)):
            yield from self._shard_runs(shard, max(position - self._shard_starts[shard], 0))

    def _shard_runs(self, shard: int, offset: int) -> Iterator[Run]:
        """Yields a shard from its token `offset` on."""
        self._check_unchanged()
        path, tokens = self._paths[shard], self._split.shards[shard]
        run_tokens = self._split.run_tokens
        first, skipped = divmod(offset, run_tokens)
        starts = range(first * run_tokens, tokens, run_tokens)
        lengths = (min(run_tokens, tokens - start) for start in starts)
        for example, length in itertools.zip_longest(tfrecord.records(path, first), lengths):
            run = self._parse(path, example) if example is not None else None
            if run is None or len(run.tokens) != length:
                raise ValueError(
                    f"{path} must hold {tokens} tokens in runs of {run_tokens}, as in "
                    f"{metadata.FILE_NAME}, got another number"
                )
            yield Run(run.tokens[skipped:], run.document_start[skipped:])
            skipped = 0

    def _check_unchanged(self) -> None:
        """Raises if the folder was replaced by other data with the same shard names."""
        if files.read_bytes(f"{self._folder}/{metadata.FILE_NAME}") != self._described:
            raise ValueError(f"{self._folder} must not change while it is read, got other data")

    def _parse(self, path: str, example: bytes) -> Run:
        try:
            return parse(example, self._vocab_size)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


class ReadAhead:
    """Re-cuts runs to any lengths, reading the next run in the background."""

    def __init__(self, runs: Iterator[Run], pool: futures.Executor):
        self._runs = runs
        self._pool = pool
        self._next = pool.submit(next, runs)
        self._held = Run(np.empty(0, np.int32), np.empty(0, bool))

    def take(self, count: int) -> Run:
        """Returns the next `count` tokens and one more, with which the next call begins."""
        while len(self._held.tokens) <= count:
            run = self._next.result()
            self._next = self._pool.submit(next, self._runs)
            self._held = Run(*map(np.concatenate, zip(self._held, run, strict=True)))
        tokens, document_start = self._held
        self._held = Run(tokens[count:], document_start[count:])
        return Run(tokens[: count + 1], document_start[: count + 1])


def parse(example: bytes, vocab_size: int) -> Run:
    """Parses an Example.

    Raises:
      ValueError: it is malformed, or an id is not below `vocab_size`.
    """
    try:
        feature = tf.train.Example.FromString(example).features.feature
    except message.DecodeError as error:
        raise ValueError(f"records must be tf.train.Examples, got {error}") from error
    tokens = np.array(feature["tokens"].int64_list.value, np.int64)
    starts = np.array(feature["document_start"].int64_list.value, np.int64)
    shards.check_within("tokens", tokens, vocab_size)
    shards.check_within("document_start", starts, len(tokens))
    document_start = np.zeros(len(tokens), bool)
    document_start[starts] = True
    return Run(tokens.astype(np.int32), document_start)
