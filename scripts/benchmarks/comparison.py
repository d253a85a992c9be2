"""Comparison of contenders on the same work: outputs, times, and the machine's ceiling, as rows."""

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
STEPS = 3  # that are compared
_TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05}  # absolute, and a part of what is expected
TRAINED = {precision: POLICIES[precision] for precision in ("float32", "bfloat16")}
_TRACED = 3  # calls in a trace


class Contender(NamedTuple):
    """One way to do the work, step by step.

    Attributes:
      library, precision: of whom, in what.
      jit: whether XLA compiles it; None where there is no choice.
      outputs: what the first STEPS steps compute, by name; asked for once, before any call.
      call: does the next steps.
      steps: how many.
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
    """Returns random int32 ids of the model's vocabulary, the same for the same shape."""
    return np.random.default_rng(0).integers(model.config.vocab_size, size=shape, dtype=np.int32)


def copy(model: TransformerXL, precision: str, **changes: Any) -> TransformerXL:
    """Returns a model with the same weights, for training in a precision, with config changes."""
    config = dataclasses.replace(model.config, **changes)
    copied = TransformerXL(config, dtype=TRAINED[precision])
    copied.set_weights(model.get_weights())
    return copied


def reader(model: TransformerXL, precision: str, **changes: Any) -> TransformerXL:
    """Returns a copy for inference, its weights rounded to the precision."""
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
    """Yields the peer's contenders, if any: float32 first, the reference of all others."""
    if other is None:
        return
    for precision in peer_precisions(options):
        name = f"{work} {precision}"
        other.make(name, work, model, dataclasses.replace(train, precision=precision), inputs)
        outputs = functools.partial(other.outputs, name, STEPS)
        yield Contender(THEIRS, precision, None, outputs, functools.partial(other.call, name))


def peer_precisions(options: Options) -> tuple[str, ...]:
    """Returns the peer's precisions: always float32, then those of ours."""
    return tuple(dict.fromkeys(("float32", *options.precisions)))


def ways(options: Options) -> Iterator[tuple[str, bool]]:
    """Returns each precision of ours, with and without XLA."""
    return itertools.product(options.precisions, options.jits)


def race(
    contenders: Sequence[Contender], tokens: int, flops: float, options: Options
) -> list[dict[str, Any]]:
    """Returns a row for each contender, its outputs and time compared with the first.

    Args:
      contenders: the first is the yardstick.
      tokens: of a step, over all rows.
      flops: of a token; see flops.py.
      options: those of the run.

    Raises:
      ValueError: the outputs of two differ, so that their times may not be compared.
    """
    with Progress("compare outputs", "contenders", len(contenders)) as progress:
        expected = contenders[0].outputs()
        for done, contender in enumerate(contenders[1:], 1):
            progress.reach(done)
            found = contender.outputs()
            for what, values in expected.items():
                check(f"{what} of {contender.name}", values, found[what], contender.precision)
    if options.profile:
        _trace(next(c for c in contenders if c.library == OURS), options.profile)
    precisions = {contender.precision for contender in contenders}
    ceilings = {f"ceiling {p}": roofline.product(p) for p in sorted(precisions)}
    times = timing.race({c.name: c.call for c in contenders} | ceilings, options.repeats)
    return _rows(contenders, times, tokens, flops)


def check(what: str, expected: np.ndarray, found: np.ndarray, precision: str) -> None:
    """Raises if outputs differ by more than rounding.

    Raises:
      ValueError: they do; says by how much.
    """
    tolerance = _TOLERANCES[precision]
    distances = np.abs(np.subtract(found, expected)) / (1 + np.abs(expected))
    largest = float(distances.max())
    logging.info("%s differ by %.2g", what, largest)
    if not largest <= tolerance:
        raise ValueError(
            f"{what} must be within {tolerance} of those expected, "
            f"got a difference of {largest:.2g}"
        )


def _trace(contender: Contender, folder: str) -> None:
    for _ in range(2):  # what compiles is no part of it
        contender.call()
    with tf.profiler.experimental.Profile(folder):
        for number in range(_TRACED):
            with tf.profiler.experimental.Trace("call", step_num=number, _r=1):
                contender.call()
    logging.info("profile of %d calls of %s: %s", _TRACED, contender.name, folder)


def _rows(
    contenders: Sequence[Contender],
    times: Mapping[str, timing.Timing],
    tokens: int,
    flops: float,
) -> list[dict[str, Any]]:
    slowest = times[contenders[0].name].median / contenders[0].steps
    rows = []
    for contender in contenders:
        median, least, most = (x / contender.steps for x in times[contender.name])
        gflops = tokens * flops / median / 1e9
        bound = roofline.FLOPS / times[f"ceiling {contender.precision}"].median / 1e9
        rows.append(
            {
                "library": contender.library,
                "precision": contender.precision,
                "jit": contender.jit,
                "tokens_per_s": tokens / median,
                "ms": 1e3 * median,
                "fastest": 1e3 * least,
                "slowest": 1e3 * most,
                "times_faster": slowest / median,
                "gflops": gflops,
                "ceiling": bound,
                "of_ceiling": gflops / bound,
            }
        )
    return rows
