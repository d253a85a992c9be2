"""The attention suite: time and memory of each kind of attention against dense, by length.

Times the attention core alone, forward and backward as in training, for one row and two heads of
64; the projections around it are the same for all kinds.

    dense                 all earlier tokens
    local                 128 earlier tokens
    routing               128 earlier tokens in one head; in the other, those of the same of sqrt(n)
                          clusters, which take sqrt(n) tokens each
    local, dilated        64 earlier tokens; in half of the heads every second one
    dense, both ways      all tokens
    longformer            128 tokens on either side and 4 global tokens, with their projections
    bigbird               the own block of 64, its neighbours, the first, the last, 3 random ones
    linformer             128 mixtures of all tokens

The first four are causal; the others are bidirectional and compared with bidirectional dense
attention. All but linformer have Transformer-XL's positions. At the shortest length, the outputs of
windows are checked against dense attention under the same mask; tests check the rest.

    ms, fastest, slowest    forward and backward
    us_per_token            microseconds
    own_mb                  peak memory of a process of its own, without TensorFlow and the inputs;
                            "-" where dense attention would not fit and is not run
    times_faster            than dense at this length
    of_dense                own memory as a fraction of dense's
    growth                  p in time ~ length^p from 2,048 tokens on (least squares)
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
    """A kind of attention.

    Attributes:
      spec: spec of the core; {length} stands for that of the text, {root} for its square root.
      baseline: the kind of dense attention to compare with.
      lookahead: see `attention_mask.AttentionMask`.
    """

    spec: str
    baseline: str = "dense"
    lookahead: int | None = 0


_BOTH_WAYS: dict[str, Any] = dict(baseline="dense, both ways", lookahead=None)
_KINDS = {
    "dense": Kind("dense"),
    "local": Kind(f"local(window={_WINDOW})"),
    "routing": Kind(
        f"routing(clusters={{root}}, window={{root}}, local_heads=1, local_window={_WINDOW})"
    ),
    "local, dilated": Kind(f"local(window={_WINDOW // 2}, dilations=(1, 2))"),
    "dense, both ways": Kind("dense", **_BOTH_WAYS),
    "longformer": Kind(f"longformer(window={_WINDOW}, max_global_tokens={_GLOBAL})", **_BOTH_WAYS),
    "bigbird": Kind("bigbird(block=64, random=3)", **_BOTH_WAYS),
    "linformer": Kind("linformer(max_tokens={length}, k=128)", **_BOTH_WAYS),
}
_MIN_GROWTH_LENGTH = 2048  # shorter texts are dominated by fixed costs

_LENGTHS = flags.DEFINE_multi_integer(
    "text_len",
    [512, 1024, 2048, 4096, 8192, 16384],
    "Text lengths in tokens, for --suite=attention",
    lower_bound=128,
)


class Point(NamedTuple):
    """One measurement: a kind of attention, by name, at a length."""

    kind: str
    length: int


class Core:
    """Forward and backward pass of a kind on random inputs; a call returns the outputs."""

    def __init__(self, point: Point) -> None:
        kind, length = _KINDS[point.kind], point.length
        self.mask = AttentionMask(
            remembered=tf.constant([0]),
            lookahead=kind.lookahead,
            global_tokens=tf.range(length)[tf.newaxis] % (length // _GLOBAL) == 0,
        )
        draw = np.random.default_rng(0).normal
        self.core = _core(kind.spec.format(length=length, root=math.isqrt(length)))
        query_heads = self.core.spec.num_query_heads(_HEADS)
        self.inputs = [
            tf.constant(draw(size=[1, heads, length, _WIDTH]), tf.float32)
            for heads in (query_heads, query_heads, _HEADS, _HEADS)
        ]
        self.core.build_weights(_HEADS * _WIDTH, _HEADS, _WIDTH, 0.02)
        self.core.built = True
        if self.core.TAKES_INPUT:
            shape = [1, length, _HEADS * _WIDTH]
            self.inputs.append(tf.constant(draw(size=shape), tf.float32))
        reach = min(length - 1, self.core.spec.reach or length)
        rows = 1 + reach * (1 if kind.lookahead == 0 else 2)
        self.encodings = tf.constant(draw(size=[query_heads, rows, _WIDTH]), tf.float32)
        self._step = tf.function(self._forward_and_backward, autograph=False)

    def __call__(self) -> np.ndarray:
        outputs, gradients = self._step()
        gradients[-1].numpy()
        return outputs.numpy()

    def outputs(self, spec: str | None = None, **changes: Any) -> np.ndarray:
        """Returns the outputs of this core or another, under the same or a changed mask."""
        core = self.core if spec is None else _core(spec)
        return self._attend(core, dataclasses.replace(self.mask, **changes)).numpy()

    def _attend(self, core, mask, **kwargs):
        x = {"x": self.inputs[4]} if core.TAKES_INPUT else {}
        return core(*self.inputs[:4], self.encodings, visibility=mask, **x, **kwargs)

    def _forward_and_backward(self):
        # With a key, though nothing is dropped, dense attention keeps all scores as in training.
        key = DropoutKey(tf.constant([0, 0]), tf.constant([0]))
        with tf.GradientTape() as tape:
            tape.watch(self.inputs)
            outputs = self._attend(self.core, self.mask, dropout_key=key)
        return outputs, tape.gradient(outputs, self.inputs + self.core.trainable_variables)


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each kind and length.

    Raises:
      ValueError: the outputs of a kind differ from those of dense attention under its mask.
    """
    del config
    return measure(options, sorted(set(_LENGTHS.value)))


def measure(options: Options, lengths: list[int]) -> list[dict[str, Any]]:
    """Runs the suite at given lengths; see `run`."""
    _check(lengths[0])
    rows = []
    for length in lengths:
        points = [Point(kind, length) for kind in _KINDS if _fits(kind, length)]
        logging.info("length=%d: %s", length, ", ".join(point.kind for point in points))
        at_rest = peak(_draw_inputs, length)
        own = {point: peak(run_point, point) - at_rest for point in points}
        found = timing.race({point: Core(point) for point in points}, options.repeats)
        rows += [_row(Point(kind, length), found, own) for kind in _KINDS]
    for row in rows:
        row["growth"] = _growth([r for r in rows if r["kind"] == row["kind"]])
    return rows


def run_point(point: Point) -> None:
    """Runs the work of a point, in the process whose peak memory is measured."""
    core = Core(point)
    for _ in range(2):
        core()


def _draw_inputs(length: int) -> None:
    """Starts TensorFlow and draws the inputs: the memory that is not the core's own."""
    Core(Point("local", length))


def _check(length: int) -> None:
    for name in ("local", "longformer"):
        core, is_causal = Core(Point(name, length)), _KINDS[name].lookahead == 0
        # A window of the whole length is dense attention, with the encodings of the small window.
        dense = "dense" if is_causal else f"local(window={length})"
        seen = dict(attention_span=_WINDOW + 1, lookahead=0 if is_causal else _WINDOW)
        expected = core.outputs(dense, global_tokens=None, **seen)
        found = core.outputs(global_tokens=None)
        comparison.check(f"outputs of {name}", expected, found, "float32")


def _fits(kind: str, length: int) -> bool:
    """Returns whether a kind fits into memory: dense takes six arrays of all scores, or ten."""
    if kind != _KINDS[kind].baseline:
        return True
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    arrays = 6 if _KINDS[kind].lookahead == 0 else 10
    return arrays * 4 * _HEADS * length**2 < 0.7 * physical


def _row(point: Point, times: dict[Point, timing.Timing], own: dict[Point, int]) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": point.kind, "length": point.length}
    names = ("ms", "fastest", "slowest", "us_per_token", "own_mb", "times_faster", "of_dense")
    if point not in times:
        return row | dict.fromkeys(names)
    median, fastest, slowest = times[point]
    dense = Point(_KINDS[point.kind].baseline, point.length)
    values = (
        1e3 * median,
        1e3 * fastest,
        1e3 * slowest,
        1e6 * median / point.length,
        own[point] / 1e6,
        times[dense].median / median if dense in times else None,
        own[point] / own[dense] if dense in own else None,
    )
    return row | dict(zip(names, values, strict=True))


def _growth(rows: list[dict[str, Any]]) -> float | None:
    """Returns the slope of log time over log length; None with fewer than two lengths."""
    measured = [r for r in rows if r["ms"] is not None and r["length"] >= _MIN_GROWTH_LENGTH]
    if len(measured) < 2:
        return None
    x, y = ([math.log(r[name]) for r in measured] for name in ("length", "ms"))
    return float(np.polyfit(x, y, 1)[0])


def _core(spec: str):
    return make_core(layer_specs.parse(layer_specs.ATTENTION, spec))
