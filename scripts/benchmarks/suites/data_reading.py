"""Rows of the data suite for reading, and for train.py compared with its bare step; see data.py."""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import timing
from benchmarks.peak_memory import peak
from benchmarks.suites import growth
from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config
from txl_tf.data import prefetch, tokenizers
from txl_tf.data.batches import Batch, Batches
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import metric_writers, optimizer, step
from txl_tf.training.distribution import make_distribution

_READS = 64  # batches per call
_STEPS = 60  # per run of train.py, and per call of its bare step
_LOG_EVERY = 20
_PROGRAM = str(pathlib.Path(__file__).parents[2] / "train.py")


def rows(config: Config, content: str, data_dir: str, repeats: int) -> list[dict[str, Any]]:
    """Returns the rows of reading and training; `data_dir` holds `content` as bytes."""
    reader = reader_of(config, data_dir)
    check_rows(reader, content)
    model = dataclasses.replace(config.model, vocab_size=reader.metadata.vocab_size)
    config = dataclasses.replace(config, model=model, train=_short(config))
    with prefetch.prefetched(reader.arrays()) as batches:
        reading = timing.race({"read": functools.partial(_read, batches)}, repeats)["read"]
    bare = _Step(config, next(reader.arrays()))
    contenders: dict[str, Callable[[], timing.Seconds]] = {
        "one batch": bare,
        "train.py": functools.partial(run_program, config, data_dir),
    }
    times = timing.take_turns(contenders, repeats)
    tokens = config.train.batch_size * config.train.segment_len
    found = [row("read", "byte", 1, "tokens/s", _READS * tokens, reading)]
    found[0]["peak_mb"] = peak(read_all, config, data_dir) / 1e6
    found[0]["times_faster"] = found[0]["rate"] * times["one batch"].median / tokens
    for who, seconds in times.items():
        trained = row("train", who, 1, "tokens/s", tokens, seconds)
        trained["times_faster"] = times["one batch"].median / seconds.median
        found.append(trained)
    return found


def reader_of(config: Config, data_dir: str) -> Batches:
    """Returns the reader of split train, with the batch shape of training."""
    train = config.train
    return Batches(data_dir, "train", batch_size=train.batch_size, segment_len=train.segment_len)


def check_rows(reader: Batches, content: str) -> None:
    """Raises if the first row of a reader does not begin with the text."""
    steps = min(_READS, reader.steps_per_epoch)
    ids = np.concatenate([batch.ids[0] for batch in itertools.islice(reader.arrays(), steps)])
    if ids.astype(np.uint8).tobytes() != content[: len(ids)].encode():
        raise ValueError("row 0 must begin with the text, got other ids")


def run_program(config: Config, data_dir: str) -> timing.Seconds:
    """Runs train.py from new weights; returns its logged seconds per step, without the first.

    Raises:
      ValueError: it fails; quotes the last line of its log.
    """
    with tempfile.TemporaryDirectory() as model_dir:
        model_dirs.describe(model_dir, config, tokenizers.load(data_dir))
        command = [sys.executable, _PROGRAM, f"--data_dir={data_dir}", f"--model_dir={model_dir}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"train.py must succeed, got: {done.stderr.splitlines()[-1]}")
        with open(os.path.join(model_dir, metric_writers.FILE_NAME)) as file:
            lines = [line for line in map(json.loads, file) if "tokens_per_s" in line]
    tokens = config.train.batch_size * config.train.segment_len
    seconds = sum(line["steps"] * tokens / line["tokens_per_s"] for line in lines)
    return timing.Seconds(seconds / sum(line["steps"] for line in lines))


def read_all(config: Config, data_dir: str) -> None:
    """Reads one epoch."""
    for _ in reader_of(config, data_dir).arrays(epochs=1):
        pass


def row(
    work: str, of: str, num_workers: int, unit: str, amount: float, found: timing.Timing
) -> dict[str, Any]:
    """Returns a row of the data suite; `amount` is the work of a call, in units."""
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


def _short(config: Config) -> Any:
    """Returns the train config of a run of _STEPS steps that only trains."""
    return dataclasses.replace(
        config.train,
        train_steps=_STEPS,
        warmup_steps=0,
        log_every=_LOG_EVERY,
        checkpoint_every=_STEPS,
        eval_every=None,
        stop_after_evals=None,
        sample_length=0,
    )


def _read(batches: Iterator[Batch]) -> None:
    for _ in range(_READS):
        next(batches)


class _Step:
    """The bare training step, repeated on one batch; a call returns the seconds per step."""

    def __init__(self, config: Config, batch: Batch) -> None:
        keras.utils.set_random_seed(config.train.seed)
        policy = growth.policy(config.train.precision)
        self._model = TransformerXL(config.model, dtype=policy)
        adam = optimizer.make_optimizer(config.train)
        adam.build(self._model.trainable_variables)
        one_device = make_distribution("one_device")
        self._step = step.make_train_step(self._model, adam, one_device, config)
        self._memory = self._model.initial_mems(config.train.batch_size)
        self._batch = Batch(*map(tf.constant, batch))
        self._advance()  # compiles

    def __call__(self) -> timing.Seconds:
        start = time.perf_counter()
        for _ in range(_STEPS):
            self._advance()
        return timing.Seconds((time.perf_counter() - start) / _STEPS)

    def _advance(self) -> None:
        metrics, self._memory = self._step(self._batch, self._memory)
        if metrics.skipped.numpy():  # waits for the result
            raise ValueError("loss must be finite, got NaN or infinity")
