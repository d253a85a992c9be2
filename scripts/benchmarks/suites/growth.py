"""The growth suite: time per token and peak memory by segment length, memory length and batch size.

One of them at a time is halved and doubled; the others stay as configured, for evaluation (with a
key-value cache) and for a training step. Evaluation is also measured after a short text and after
one four times as long, which should make no difference.

Times are milliseconds per token. The peak of each point is measured in a process of its own; own_mb
is without TensorFlow's own memory. The precision is `train.precision`; XLA compiles if `train.jit`.
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
_CALLS = 4  # steps before the peak is measured
_TEXT = 16  # segments of the short text

SETTINGS = ("train.batch_size=4", "eval.batch_size=4", "model.init_std=0.05")

_VARIED = flags.DEFINE_multi_enum(
    "varied",
    [*_LENGTHS, "segments"],
    [*_LENGTHS, "segments"],
    "Lengths to vary, for --suite=growth",
)


class Point(NamedTuple):
    """One measurement.

    Attributes:
      work: "eval" or "train".
      varied: the length that differs from the base; "none" for the base itself.
      batch_size, segment_len, mem_len: B, T, M.
      segments: calls before the measurement.
    """

    work: str
    varied: str
    batch_size: int
    segment_len: int
    mem_len: int
    segments: int = _CALLS


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each base, and for each of `points` in a length of --varied.

    Raises:
      ValueError: a loss differs from the model's.
    """
    asked = [point for point in points(config) if point.varied in ("none", *_VARIED.value)]
    return measure(config, options, asked)


def measure(config: Config, options: Options, at: list[Point]) -> list[dict[str, Any]]:
    """Returns a row for each point; the points of a kind of work take turns."""
    at_rest, rows = peak(start_tensorflow), []
    for work in _WORKS:
        selected = [point for point in at if point.work == work]
        peaks = {point: peak(run_point, config, point) for point in selected}
        contenders = {point: _warmed_up(config, point, is_checked=True) for point in selected}
        times = timing.race(contenders, options.repeats)
        rows += [_row(point, times[point], peaks[point], at_rest) for point in selected]
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
    """Evaluates one segment repeatedly; a call returns its loss, [B, T]."""

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
        loss, self._memory = self._read(ids, targets, self._memory)
        return loss.numpy()

    def check(self) -> None:
        """Raises if the loss of the first two segments differs from that with hidden states."""
        ids, targets, *_ = self._batch
        memory = self._model.initial_mems(self._point.batch_size)
        for _ in range(2):
            expected, memory = self._model.nll(ids, targets, memory)
            precision = self._config.train.precision
            comparison.check("loss with keys and values", expected.numpy(), self(), precision)


class Training:
    """Takes training steps on one batch; a call returns the mean loss."""

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
        """Raises if the loss differs from the model's; with dropout, if it is not finite."""
        ids, targets, *_ = self._batch
        nll, _ = self._model.nll(ids, targets, self._memory)
        found, expected = self(), np.mean(nll)
        has_dropout = self._config.model.dropout or self._config.model.attention_dropout
        precision = self._config.train.precision
        comparison.check("loss of a step", found if has_dropout else expected, found, precision)


_WORKS: dict[str, type[Evaluation] | type[Training]] = {"eval": Evaluation, "train": Training}


def _warmed_up(config: Config, point: Point, *, is_checked: bool) -> Evaluation | Training:
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
    """Returns Keras' policy of a precision; raises for float16, which needs loss scaling."""
    if precision not in comparison.TRAINED:
        known = ", ".join(comparison.TRAINED)
        raise ValueError(f"precision must be one of {known}, got {precision!r}")
    return comparison.TRAINED[precision]


def _batch(config: Config, point: Point) -> Batch:
    shape = point.batch_size, point.segment_len + 1
    ids = np.random.default_rng(0).integers(config.model.vocab_size, size=shape, dtype=np.int32)
    starts = np.zeros_like(ids[:, 1:], bool)
    return Batch(*map(tf.constant, (ids[:, :-1], ids[:, 1:], starts, np.array(False))))


def run_point(config: Config, point: Point) -> None:
    """Runs the work of a point, in the process whose peak memory is measured."""
    _warmed_up(config, point, is_checked=False)


def start_tensorflow() -> None:
    """Starts TensorFlow: the memory that is not the work's own."""
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
