"""Comparison of contenders on the same work: equal outputs, times, fraction of the roofline."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from benchmarks import roofline, timing
from benchmarks.options import Options
from benchmarks.workers.hf_client import Peer
from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import POLICIES, TrainConfig
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.progress import Progress

OURS, THEIRS = "txl_tf", "TransfoXL"
STEPS = 3  # number of steps whose outputs are compared
_TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05}  # absolute and relative
TRAINED = {precision: POLICIES[precision] for precision in ("float32", "bfloat16")}
_NUM_TRACED = 3  # calls in a trace


class Contender(NamedTuple):
    """An implementation under measurement.

    Attributes:
      library: name of the library.
      precision: compute precision.
      jit: whether XLA compiles it; None if there is no choice.
      outputs: computes the outputs of the first STEPS steps, by name; called once, before `call`.
      call: runs the next `steps` steps.
      steps: number of steps of a call.
    """

    library: str
    precision: str
    jit: bool | None
    outputs: Callable[[], Mapping[str, np.ndarray]]
    call: Callable[[], object]
    steps: int = 1

    @property
    def name(self) -> str:
        jit = "" if self.jit is None else f" jit={str(self.jit).lower()}"
        return f"{self.library} {self.precision}{jit}"


def draw_ids(model: TransformerXL, *shape: int) -> np.ndarray:
    """Returns random int32 ids of the model's vocabulary, a function of the shape."""
    return np.random.default_rng(0).integers(model.config.vocab_size, size=shape, dtype=np.int32)


def copy(model: TransformerXL, precision: str, **changes: Any) -> TransformerXL:
    """Returns a copy for training in a precision, with the same weights and a changed config."""
    config = dataclasses.replace(model.config, **changes)
    copied = TransformerXL(config, dtype=TRAINED[precision])
    copied.set_weights(model.get_weights())
    return copied


def reader(model: TransformerXL, precision: str, **changes: Any) -> TransformerXL:
    """Returns a copy for inference, with weights rounded to the precision."""
    copied = copy(model, "float32", **changes)
    return copied if precision == "float32" else model_dirs.rounded(copied, precision)


def theirs(
    other: Peer | None,
    work: str,
    model: TransformerXL,
    train: TrainConfig,
    inputs: Mapping[str, np.ndarray],
    options: Options,
) -> Iterator[Contender]:
    """Yields the peer's contenders, if any: float32 first, the baseline of all others."""
    if other is None:
        return
    for precision in peer_precisions(options):
        name = f"{work} {precision}"
        other.make(name, work, model, dataclasses.replace(train, precision=precision), inputs)
        outputs = functools.partial(other.outputs, name, STEPS)
        yield Contender(THEIRS, precision, None, outputs, functools.partial(other.call, name))


def peer_precisions(options: Options) -> tuple[str, ...]:
    """Returns the peer's precisions: always float32 first, then the others of txl_tf."""
    return tuple(dict.fromkeys(("float32", *options.precisions)))


def precisions_and_jits(options: Options) -> Iterator[tuple[str, bool]]:
    """Returns the variants of txl_tf to measure: each precision, with and without XLA."""
    return itertools.product(options.precisions, options.jits)


def race(
    contenders: Sequence[Contender], tokens: int, flops: float, options: Options
) -> list[dict[str, Any]]:
    """Checks that all contenders compute the same, times them, and returns a row for each.

    Args:
      contenders: contenders; the first is the baseline.
      tokens: tokens of a step, over all rows.
      flops: FLOPs of a token; see flops.py.
      options: options of the run.

    Raises:
      ValueError: the outputs of two contenders differ, so their times are not comparable.
    """
    with Progress("compare outputs", "contenders", len(contenders)) as progress:
        expected = contenders[0].outputs()
        for done, contender in enumerate(contenders[1:], 1):
            progress.reach(done)
            found = contender.outputs()
            for name, values in expected.items():
                check(f"{name} of {contender.name}", values, found[name], contender.precision)
    if options.profile:
        _trace(next(c for c in contenders if c.library == OURS), options.profile)
    precisions = {contender.precision for contender in contenders}
    ceilings = {f"ceiling {p}": roofline.product(p) for p in sorted(precisions)}
    times = timing.race({c.name: c.call for c in contenders} | ceilings, options.repeats)
    return _rows(contenders, times, tokens, flops)


def check(name: str, expected: np.ndarray, found: np.ndarray, precision: str) -> None:
    """Raises if outputs differ by more than rounding.

    Raises:
      ValueError: names the output and the largest difference.
    """
    tolerance = _TOLERANCES[precision]
    distances = np.abs(np.subtract(found, expected)) / (1 + np.abs(expected))
    largest = float(distances.max())
    logging.info("%s: difference=%.2g", name, largest)
    if not largest <= tolerance:
        raise ValueError(
            f"{name} must be within {tolerance} of the baseline, got a difference of {largest:.2g}"
        )


def _trace(contender: Contender, folder: str) -> None:
    for _ in range(2):  # excludes compilation
        contender.call()
    with tf.profiler.experimental.Profile(folder):
        for number in range(_NUM_TRACED):
            with tf.profiler.experimental.Trace("call", step_num=number, _r=1):
                contender.call()
    logging.info("profile of %d calls of %s: %s", _NUM_TRACED, contender.name, folder)


def _rows(
    contenders: Sequence[Contender],
    times: Mapping[str, timing.Timing],
    tokens: int,
    flops: float,
) -> list[dict[str, Any]]:
    baseline = times[contenders[0].name].median / contenders[0].steps
    rows = []
    for contender in contenders:
        median, fastest, slowest = (x / contender.steps for x in times[contender.name])
        gflops = tokens * flops / median / 1e9
        bound = roofline.FLOPS / times[f"ceiling {contender.precision}"].median / 1e9
        rows.append(
            {
                "library": contender.library,
                "precision": contender.precision,
                "jit": contender.jit,
                "tokens_per_s": tokens / median,
                "ms": 1e3 * median,
                "fastest": 1e3 * fastest,
                "slowest": 1e3 * slowest,
                "times_faster": baseline / median,
                "gflops": gflops,
                "ceiling": bound,
                "of_ceiling": gflops / bound,
            }
        )
    return rows
