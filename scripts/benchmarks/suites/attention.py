"""The attention suite: time and memory of each kind of attention against dense, by length.

What is timed is a core alone, one row, two heads of 64: its scores, weights and sums, and their
gradients, as in training. The projections around it are the same for all.

    dense                 every token sees all before it
    local                 itself and 128 before it
    local, dilated        64 before it; half of the heads every second one
    dense, both ways      every token sees all
    longformer            itself, 128 on either side, and 4 global tokens; with their projections
    bigbird               its block of 64 and the two beside it, the first, the last, 3 at random

The first three are causal, the others look ahead and are held against dense that does. All have
Transformer-XL's positions. At the shortest length the values of windows are held to those of dense
attention under the same mask; tests hold the rest.

    ms, fastest, slowest    of values and gradients
    us_per_token            microseconds
    own_mb                  peak memory of a process of its own, without what TensorFlow and the
                            inputs take; "-" where dense attention would not fit: not run
    times_faster            than dense at this length
    of_dense                own memory, as part of dense's
    growth                  p, where time grows as length^p from 2,048 tokens on (least squares)
"""

import dataclasses
import math
import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags, logging

from benchmarks import comparison, timing
from benchmarks.options import Options
from benchmarks.peak_memory import peak
from txl_tf.attention import make_core
from txl_tf.configs import layer_specs
from txl_tf.configs.run import Config
from txl_tf.ops.attention_mask import AttentionMask
from txl_tf.ops.dropout import DropoutKey

_HEADS, _WIDTH, _WINDOW, _GLOBAL = 2, 64, 128, 4


class Kind(NamedTuple):
    """What a row measures.

    Attributes:
      spec: of the core.
      rival: the kind of dense attention that it is held against.
      lookahead: see `attention_mask.AttentionMask`.
    """

    spec: str
    rival: str = "dense"
    lookahead: int | None = 0


_BOTH_WAYS: dict[str, Any] = dict(rival="dense, both ways", lookahead=None)
_KINDS = {
    "dense": Kind("dense"),
    "local": Kind(f"local(window={_WINDOW})"),
    "local, dilated": Kind(f"local(window={_WINDOW // 2}, dilations=(1, 2))"),
    "dense, both ways": Kind("dense", **_BOTH_WAYS),
    "longformer": Kind(f"longformer(window={_WINDOW}, max_global_tokens={_GLOBAL})", **_BOTH_WAYS),
    "bigbird": Kind("bigbird(block=64, random=3)", **_BOTH_WAYS),
}
_GROWS_FROM = 2048

_LENGTHS = flags.DEFINE_multi_integer(
    "text_len",
    [512, 1024, 2048, 4096, 8192, 16384],
    "Text lengths in tokens, for --suite=attention",
    lower_bound=64,
)


class Point(NamedTuple):
    """A kind, by its name here, at a length."""

    kind: str
    length: int


class Core:
    """Values and gradients of a kind on random inputs; the result of a call is its values."""

    def __init__(self, point: Point) -> None:
        kind, length = _KINDS[point.kind], point.length
        self.rules = AttentionMask(
            remembered=tf.constant([0]),
            lookahead=kind.lookahead,
            global_tokens=tf.range(length)[tf.newaxis] % (length // _GLOBAL) == 0,
        )
        draw = np.random.default_rng(0).normal
        shape = [1, _HEADS, length, _WIDTH]
        self.inputs = [tf.constant(draw(size=shape), tf.float32) for _ in range(4)]
        self.core = _core(kind.spec)
        self.core.build_weights(_HEADS * _WIDTH, _HEADS, _WIDTH, 0.02)
        self.core.built = True
        if self.core.TAKES_INPUT:
            shape = [1, length, _HEADS * _WIDTH]
            self.inputs.append(tf.constant(draw(size=shape), tf.float32))
        reach = min(length - 1, self.core.spec.reach or length)
        rows = 1 + reach * (1 if kind.lookahead == 0 else 2)
        self.encodings = tf.constant(draw(size=[_HEADS, rows, _WIDTH]), tf.float32)
        self._step = tf.function(self._values_and_gradients, autograph=False)

    def __call__(self) -> np.ndarray:
        values, gradients = self._step()
        gradients[-1].numpy()
        return values.numpy()

    def values(self, spec: str | None = None, **changes: Any) -> np.ndarray:
        """Returns values of this core or another, under the same or a changed mask."""
        core = self.core if spec is None else _core(spec)
        rules = dataclasses.replace(self.rules, **changes)
        return self._attend(core, rules).numpy()

    def _attend(self, core, rules, **kwargs):
        x = {"x": self.inputs[4]} if core.TAKES_INPUT else {}
        return core(*self.inputs[:4], self.encodings, visibility=rules, **x, **kwargs)

    def _values_and_gradients(self):
        # A key, though nothing is dropped: in training, dense attention keeps all of its scores.
        key = DropoutKey(tf.constant([0, 0]), tf.constant([0]))
        with tf.GradientTape() as tape:
            tape.watch(self.inputs)
            values = self._attend(self.core, self.rules, dropout_key=key)
        return values, tape.gradient(values, self.inputs)


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each kind and length.

    Raises:
      ValueError: a kind computes something else than dense attention under its mask.
    """
    del config
    return measure(options, sorted(set(_LENGTHS.value)))


def measure(options: Options, lengths: list[int]) -> list[dict[str, Any]]:
    """As `run`, at these lengths."""
    _check(lengths[0])
    rows = []
    for length in lengths:
        points = [Point(kind, length) for kind in _KINDS if _fits(kind, length)]
        logging.info("length=%d: %s", length, ", ".join(point.kind for point in points))
        at_rest = peak(_inputs_alone, length)
        own = {point: peak(alone, point) - at_rest for point in points}
        found = timing.race({point: Core(point) for point in points}, options.repeats)
        rows += [_row(Point(kind, length), found, own) for kind in _KINDS]
    for row in rows:
        row["growth"] = _growth([r for r in rows if r["kind"] == row["kind"]])
    return rows


def alone(point: Point) -> None:
    """Runs the work of a point, in the process whose peak is measured."""
    core = Core(point)
    for _ in range(2):
        core()


def _inputs_alone(length: int) -> None:
    """The same without the work: starts TensorFlow and draws the inputs."""
    Core(Point("local", length))


def _check(length: int) -> None:
    for name in ("local", "longformer"):
        core, is_causal = Core(Point(name, length)), _KINDS[name].lookahead == 0
        # A window of all is attended to densely, by encodings that end early.
        dense = "dense" if is_causal else f"local(window={length})"
        seen = dict(attention_span=_WINDOW + 1, lookahead=0 if is_causal else _WINDOW)
        expected = core.values(dense, global_tokens=None, **seen)
        found = core.values(global_tokens=None)
        comparison.check(f"values of {name}", expected, found, "float32")


def _fits(kind: str, length: int) -> bool:
    """Whether it leaves memory to others: dense takes six arrays of all scores, or ten."""
    if kind != _KINDS[kind].rival:
        return True
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    arrays = 6 if _KINDS[kind].lookahead == 0 else 10
    return arrays * 4 * _HEADS * length**2 < 0.7 * physical


def _row(point: Point, times: dict[Point, timing.Timing], own: dict[Point, int]) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": point.kind, "length": point.length}
    names = ("ms", "fastest", "slowest", "us_per_token", "own_mb", "times_faster", "of_dense")
    if point not in times:
        return row | dict.fromkeys(names)
    median, least, most = times[point]
    dense = Point(_KINDS[point.kind].rival, point.length)
    values = (
        1e3 * median,
        1e3 * least,
        1e3 * most,
        1e6 * median / point.length,
        own[point] / 1e6,
        times[dense].median / median if dense in times else None,
        own[point] / own[dense] if dense in own else None,
    )
    return row | dict(zip(names, values, strict=True))


def _growth(rows: list[dict[str, Any]]) -> float | None:
    """Returns the slope of log time over log length; None with fewer than two lengths."""
    measured = [r for r in rows if r["ms"] is not None and r["length"] >= _GROWS_FROM]
    if len(measured) < 2:
        return None
    x, y = ([math.log(r[name]) for r in measured] for name in ("length", "ms"))
    return float(np.polyfit(x, y, 1)[0])


def _core(spec: str):
    return make_core(layer_specs.parse(layer_specs.ATTENTION, spec))
