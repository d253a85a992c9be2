"""Benchmarks of speed and memory: each figure is a median, each suite compares in a single run.

    python scripts/benchmark.py --suite=train --peers=/path/to/bin/python
    python scripts/benchmark.py --suite=decode --precision=float32 --set=model.num_layers=6
    python scripts/benchmark.py --suite=edge --preset=tiny

Contenders alternate, and their outputs are compared before they are timed. Suites with their
default presets:

    train   enwik8_base  an optimizer step: 2 rows of 512, memory 512
    eval    enwik8_base  a segment in the published setting: 10 rows of 80, memory 2,100, clamp 820
    decode  enwik8_base  generation of a token after a memory of 2,100, with 1 row and with 8
    speedup enwik8_base  the paper's sliding window against segments with a memory, per token, by
                         number of attended tokens
    attention            each kind of attention against dense, by length: time, memory, growth
    growth  small        time per token and peak memory, by length of segment and memory, and batch
    data                 preparing and reading text, and train.py against its bare step
    edge    tiny         a step of one row in LiteRT, float32 and dynamic int8, against the
                         SavedModel
    libraries            what we wrote ourselves beside the libraries that could do it

--set changes these settings. --peers is an interpreter with `torch==2.13.0 transformers==4.36.2`:
Hugging Face's TransfoXL then does the same work with the same weights in the first three, and its
word pipeline prepares the same text in `data` (which needs sacremoses there). The first three
report

    tokens_per_s, ms          over all rows; milliseconds per step, segment or generated token
    fastest, slowest          milliseconds, of the rounds
    times_faster              speedup over the first row
    gflops                    10^9 model FLOPs per second, counted by flops.py
    ceiling, of_ceiling       those of a large matmul in the same dtype, and the fraction reached
    late_over_early           decode: time of token 2,000 divided by that of token 50
    peak_mb                   train: peak memory of a separate process

stdout has a table; its last line is one JSON object. Measure on an idle machine.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import keras
import tensorflow as tf
from absl import flags, logging

from benchmarks.options import Options
from benchmarks.suites import (
    attention,
    data,
    decoding,
    edge,
    evaluation,
    growth,
    libraries,
    speedup,
    training,
)
from txl_tf.cli import config_flags, entry_point
from txl_tf.configs import presets
from txl_tf.configs.run import Config, override_all
from txl_tf.progress import Progress


class _Suite(NamedTuple):
    """A suite: its function, its preset, and changes of that which --set may undo."""

    run: Callable[[Config, Options], list[dict[str, Any]]]
    preset: str = "tiny"
    settings: tuple[str, ...] = ()


_SUITES = {
    "train": _Suite(training.run, "enwik8_base", training.SETTINGS),
    "eval": _Suite(evaluation.run, "enwik8_base", evaluation.SETTINGS),
    "decode": _Suite(decoding.run, "enwik8_base", decoding.SETTINGS),
    "speedup": _Suite(speedup.run, "enwik8_base", speedup.SETTINGS),
    "attention": _Suite(attention.run),
    "growth": _Suite(growth.run, "small", growth.SETTINGS),
    "data": _Suite(data.run),
    "edge": _Suite(edge.run),
    "libraries": _Suite(libraries.run),
}
_JITS = {"false": False, "true": True}
_ALL = Options()

_SUITE = flags.DEFINE_enum("suite", None, list(_SUITES), "Suite to run.", required=True)
_REPEATS = flags.DEFINE_integer("repeats", _ALL.repeats, "Rounds of each contender.", lower_bound=1)
_PEERS = flags.DEFINE_string(
    "peers", None, "Python interpreter with torch and transformers, to compare with."
)
_PRECISION = flags.DEFINE_multi_enum(
    "precision", list(_ALL.precisions), list(_ALL.precisions), "Precisions of txl_tf"
)
_JIT = flags.DEFINE_multi_enum(
    "jit", list(_JITS), list(_JITS), "Whether to compile txl_tf with XLA"
)
_PROFILE = flags.DEFINE_string(
    "profile", None, "Folder for a TensorBoard profile of some calls of the first row of txl_tf."
)
_PRESET = config_flags.define_preset(None)
config_flags.define_shorthands({"seed": "train.seed"})
for _module in (attention, data, growth, speedup):
    flags.adopt_module_key_flags(_module)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses arguments that are no flags
    entry_point.log_devices()
    suite = _SUITES[_SUITE.value]
    preset = _PRESET.value or suite.preset
    config = config_flags.resolve(override_all(presets.preset(preset), list(suite.settings)))
    options = Options(
        repeats=_REPEATS.value,
        peers=_PEERS.value,
        precisions=tuple(dict.fromkeys(_PRECISION.value)),
        jits=tuple(dict.fromkeys(_JITS[jit] for jit in _JIT.value)),
        profile=_PROFILE.value,
    )
    tf.get_logger().setLevel("ERROR")  # each contender traces the same functions anew
    keras.utils.set_random_seed(config.train.seed)
    logging.info("suite=%s preset=%s repeats=%d", _SUITE.value, preset, options.repeats)
    with Progress(f"suite {_SUITE.value}"):
        rows = suite.run(config, options)
    print(_table(rows))
    told = {"suite": _SUITE.value, "preset": preset, "repeats": options.repeats}
    print(json.dumps(told | {"rows": rows}))


def _table(rows: list[dict[str, Any]]) -> str:
    """Columns as wide as what they hold."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def run() -> NoReturn:
    """The program."""
    entry_point.run(main)
