"""The rows of the data suite about reading, and training that reads; see benchmark_data.py."""

import dataclasses
import itertools
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import benchmark_growth
import timing
from peak import peak
from txl_tf.config import Config
from txl_tf.data.batches import Batch, Batches
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import devices, optimizer, step

_READS = 64  # batches of a call


def rows(config: Config, content: str, data_dir: str, repeats: int) -> list[dict[str, Any]]:
    """Those of reading, training and waiting; `data_dir` has the bytes of `content`."""
    train = config.train
    reader = reader_of(config, data_dir)
    check_rows(reader, content)
    work = _Training(config, reader)
    times = timing.race({"read": work.read, "train": work.train, "fed": work.fed}, repeats)
    tokens = train.batch_size * train.segment_len
    read = row("read", "byte", 1, "tokens/s", _READS * tokens, times["read"])
    read["peak_mb"] = peak(read_all, config, data_dir) / 1e6
    read["times_faster"] = read["rate"] * times["train"].median / tokens
    still = row("train", "one batch", 1, "tokens/s", tokens, times["train"])
    fed = row("train", "batches read", 1, "tokens/s", tokens, times["fed"])
    fed["times_faster"] = times["train"].median / times["fed"].median
    shares = 100 * work.waited / work.taken
    wait = still | {"work": "wait", "of": "batches read", "unit": "percent", "times_faster": None}
    wait |= {
        "rate": float(100 * work.waited.sum() / work.taken.sum()),
        "slowest": float(shares.max()),
        "fastest": float(shares.min()),
    }
    return [read, still, fed, wait]


def reader_of(config: Config, data_dir: str) -> Batches:
    """The split train, in the sizes of training."""
    train = config.train
    return Batches(data_dir, "train", batch_size=train.batch_size, segment_len=train.segment_len)


def check_rows(reader: Batches, content: str) -> None:
    """Refuses a reader whose first row does not go through the text from its beginning."""
    steps = min(_READS, reader.steps_per_epoch)
    ids = np.concatenate([batch.ids[0] for batch in itertools.islice(reader.arrays(), steps)])
    if ids.astype(np.uint8).tobytes() != content[: len(ids)].encode():
        raise ValueError("row 0 must read the text from its beginning, which it does not")


class _Training:
    """The works of reading and of training; each call of a step ends when it is done.

    Attributes:
      waited, taken: [calls of fed] seconds, until a batch was there and in all.
    """

    def __init__(self, config: Config, reader: Batches) -> None:
        keras.utils.set_random_seed(config.train.seed)
        model = dataclasses.replace(config.model, vocab_size=reader.metadata.vocab_size)
        self._config = dataclasses.replace(config, model=model)
        policy = benchmark_growth.policy(config.train.precision)
        self._model = TransformerXL(model, dtype=policy)
        adam = optimizer.make_optimizer(config.train)
        adam.build(self._model.trainable_variables)
        one_device = devices.make("one_device")
        self._step = step.make_train_step(self._model, adam, one_device, self._config)
        self._memory = self._model.initial_mems(config.train.batch_size)
        self._batches, self._others = reader.arrays(), reader.arrays()
        self._batch = next(self._batches)
        self._seconds: list[tuple[float, float]] = []

    def read(self) -> None:
        for _ in range(_READS):
            next(self._others)

    def train(self) -> None:
        self._advance(self._batch)

    def fed(self) -> None:
        start = time.perf_counter()
        batch = next(self._batches)
        there = time.perf_counter()
        self._advance(batch)
        self._seconds.append((there - start, time.perf_counter() - start))

    def _advance(self, batch: Batch) -> None:
        metrics, self._memory = self._step(Batch(*map(tf.constant, batch)), self._memory)
        if metrics.skipped.numpy():  # waits until it is done
            raise ValueError("the loss of a step must be a number, got none")

    @property
    def waited(self) -> np.ndarray:
        return np.array([waited for waited, _ in self._seconds])

    @property
    def taken(self) -> np.ndarray:
        return np.array([taken for _, taken in self._seconds])


def read_all(config: Config, data_dir: str) -> None:
    """One epoch."""
    for _ in reader_of(config, data_dir).arrays(epochs=1):
        pass


def row(
    work: str, of: str, num_workers: int, unit: str, amount: float, found: timing.Timing
) -> dict[str, Any]:
    """One of the data suite: `amount` is what a call does, in units."""
    return {
        "work": work,
        "of": of,
        "workers": num_workers,
        "unit": unit,
        "rate": amount / found.median,
        "slowest": amount / found.slowest,
        "fastest": amount / found.fastest,
        "times_faster": 1.0,
        "peak_mb": None,
    }
