"""The growth suite: cost of a token and peak memory against segment length, memory length, batch.

One of them at a time is halved and doubled; the others stay as the configuration has them, for
evaluation (by keys and values) as for a training step. Evaluation is also seen after a short text
and after one four times as long, which should change nothing.

Times are milliseconds of a token. Each point takes its peak in a process of its own; own_mb is that
without what TensorFlow takes to begin with. All is computed in `train.precision`, and compiled by
XLA as `train.jit` says.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from benchmarks import comparison, timing
from benchmarks.options import Options
from benchmarks.peak_memory import peak
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.configs.run import Config
from txl_tf.data.batches import Batch
from txl_tf.inference import decode_state as states
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, step
from txl_tf.training.distribution import make_distribution

_LENGTHS = ("segment_len", "mem_len", "batch_size")
_FACTORS = (0.5, 2.0)
_CALLS = 4  # of a step, before its process tells its peak
_TEXT = 16  # segments of the short text

SETTINGS = ("train.batch_size=4", "eval.batch_size=4", "model.init_std=0.05")

_VARIED = flags.DEFINE_multi_enum(
    "varied",
    [*_LENGTHS, "segments"],
    [*_LENGTHS, "segments"],
    "Lengths to vary, for --suite=growth",
)


class Point(NamedTuple):
    """What is measured once.

    Attributes:
      work: "eval" or "train".
      varied: the length that differs from the base; "none" at the base itself.
      batch_size, segment_len, mem_len: rows, tokens of a row in a call, tokens remembered.
      segments: calls before the cost of one is measured.
    """

    work: str
    varied: str
    batch_size: int
    segment_len: int
    mem_len: int
    segments: int = _CALLS


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """A row for each base, and for each of `points` whose length is asked for.

    Raises:
      ValueError: nats are not those of the model itself.
    """
    asked = [point for point in points(config) if point.varied in ("none", *_VARIED.value)]
    return measure(config, options, asked)


def measure(config: Config, options: Options, at: list[Point]) -> list[dict[str, Any]]:
    """A row for each point; those of a kind of work take turns."""
    at_rest, rows = peak(rest), []
    for work in _WORKS:
        mine = [point for point in at if point.work == work]
        peaks = {point: peak(alone, config, point) for point in mine}
        contenders = {point: _prepared(config, point, is_checked=True) for point in mine}
        times = timing.race(contenders, options.repeats)
        rows += [_row(point, times[point], peaks[point], at_rest) for point in mine]
    return rows


def points(config: Config) -> list[Point]:
    """Returns the base point of each kind of work, and its variations in one length."""
    train, evaluation = config.train, config.eval
    segment_len = evaluation.segment_len or train.segment_len
    mem_len = config.model.mem_len if evaluation.mem_len is None else evaluation.mem_len
    bases = [
        Point("eval", "none", evaluation.batch_size, segment_len, mem_len),
        Point("train", "none", train.batch_size, train.segment_len, config.model.mem_len),
    ]
    found = []
    for base in bases:
        found.append(base)
        for name in _LENGTHS:
            values = [round(factor * getattr(base, name)) for factor in _FACTORS]
            found += [base._replace(varied=name, **{name: max(v, 1)}) for v in values]
    texts = [bases[0]._replace(varied="segments", segments=n) for n in (_TEXT, 4 * _TEXT)]
    return [*found, *texts]


class Evaluation:
    """Reads one segment repeatedly; a call returns its loss in nats, [B, T]."""

    def __init__(self, config: Config, point: Point) -> None:
        self._config, self._point, self._batch = config, point, _batch(config, point)
        clamp_len = config.eval.clamp_len or config.model.clamp_len
        self._model = _model(
            config,
            dataclasses.replace(
                config.model, mem_len=point.mem_len, clamp_len=clamp_len, attention_span=None
            ),
        )
        state = states.make("kv", self._model, point.segment_len)
        self._memory = state.initial(point.batch_size)
        self._read = tf.function(state.nll, jit_compile=config.train.jit, autograph=False)

    def __call__(self) -> np.ndarray:
        ids, targets, *_ = self._batch
        nats, self._memory = self._read(ids, targets, self._memory)
        return nats.numpy()

    def check(self) -> None:
        """Refuses other nats than hidden states give, in the first two segments."""
        ids, targets, *_ = self._batch
        memory = self._model.initial_mems(self._point.batch_size)
        for _ in range(2):
            expected, memory = self._model.nll(ids, targets, memory)
            precision = self._config.train.precision
            comparison.check("nats of keys and values", expected.numpy(), self(), precision)


class Training:
    """Takes steps on one batch; the result of a call is the mean of nats."""

    def __init__(self, config: Config, point: Point) -> None:
        self._config = config = dataclasses.replace(
            config,
            model=dataclasses.replace(config.model, mem_len=point.mem_len),
            train=dataclasses.replace(
                config.train,
                batch_size=point.batch_size,
                segment_len=point.segment_len,
                accumulate_steps=1,
            ),
        )
        self._batch = _batch(config, point)
        self._model = _model(config, config.model)
        self._memory = self._model.initial_mems(point.batch_size)
        adam = optimizer.make_optimizer(config.train)
        adam.build(self._model.trainable_variables)
        one_device = make_distribution("one_device")
        self._step = step.make_train_step(self._model, adam, one_device, config)

    def __call__(self) -> np.ndarray:
        metrics, self._memory = self._step(self._batch, self._memory)
        return metrics.loss.numpy()

    def check(self) -> None:
        """Refuses another loss than the model's; with dropout, one that is no number."""
        ids, targets, *_ = self._batch
        nats, _ = self._model.nll(ids, targets, self._memory)
        found, expected = self(), np.mean(nats)
        has_dropout = self._config.model.dropout or self._config.model.attention_dropout
        precision = self._config.train.precision
        comparison.check("nats of a step", found if has_dropout else expected, found, precision)


_WORKS: dict[str, type[Evaluation] | type[Training]] = {"eval": Evaluation, "train": Training}


def _prepared(config: Config, point: Point, *, is_checked: bool) -> Evaluation | Training:
    """Returns the work of a point, after its first segments."""
    logging.info("%s", point)
    keras.utils.set_random_seed(config.train.seed)
    work = _WORKS[point.work](config, point)
    if is_checked:
        work.check()
    for _ in range(point.segments):
        work()
    return work


def _model(config: Config, model: TransformerXLConfig) -> TransformerXL:
    train = config.train
    return TransformerXL(model, rematerialize=train.rematerialize, dtype=policy(train.precision))


def policy(precision: str) -> str:
    """Keras' name for it; refuses float16, whose steps need the loss scaled."""
    if precision not in comparison.TRAINED:
        known = ", ".join(comparison.TRAINED)
        raise ValueError(f"precision must be one of {known}, got {precision!r}")
    return comparison.TRAINED[precision]


def _batch(config: Config, point: Point) -> Batch:
    shape = point.batch_size, point.segment_len + 1
    ids = np.random.default_rng(0).integers(config.model.vocab_size, size=shape, dtype=np.int32)
    starts = np.zeros_like(ids[:, 1:], bool)
    return Batch(*map(tf.constant, (ids[:, :-1], ids[:, 1:], starts, np.array(False))))


def alone(config: Config, point: Point) -> None:
    """Runs the work of a point, in the process whose peak is measured."""
    _prepared(config, point, is_checked=False)


def rest() -> None:
    """The same without the work: starts TensorFlow."""
    tf.config.list_logical_devices()


def _row(point: Point, found: timing.Timing, peak_bytes: int, at_rest: int) -> dict[str, Any]:
    tokens = point.batch_size * point.segment_len
    return point._asdict() | {
        "ms_per_token": 1e3 * found.median / tokens,
        "fastest": 1e3 * found.fastest / tokens,
        "slowest": 1e3 * found.slowest / tokens,
        "peak_mb": peak_bytes / 1e6,
        "own_mb": (peak_bytes - at_rest) / 1e6,
    }
