"""Measures speed side by side, in one run: every figure is a median, every row a ratio.

    python scripts/benchmark.py --suite=edge --preset=tiny

What is compared takes turns, and its outputs are compared before it is timed. Suites:

    edge    a step of one batch row by LiteRT, float32 and dynamic int8, against the SavedModel

stdout has a table; its last line is one JSON object. Measure on an idle machine.
"""

import json
from typing import Any

import program  # first: it quiets TensorFlow, which the others import

import keras
from absl import flags, logging

import benchmark_edge
import config_flags
from txl_tf import presets

_SUITES = {"edge": benchmark_edge.run}
_SUITE = flags.DEFINE_enum("suite", None, list(_SUITES), "What to measure.", required=True)
_REPEATS = flags.DEFINE_integer("repeats", 7, "Turns of each contender.", lower_bound=1)
_PRESET = config_flags.define_preset()
config_flags.define_shorthands({"seed": "train.seed"})


def main(argv: list[str]) -> None:
    del argv  # program.run refuses arguments that are no flags
    program.log_devices()
    config = config_flags.resolve(presets.preset(_PRESET.value))
    keras.utils.set_random_seed(config.train.seed)
    logging.info("suite=%s preset=%s repeats=%d", _SUITE.value, _PRESET.value, _REPEATS.value)
    rows = _SUITES[_SUITE.value](config, _REPEATS.value)
    print(_table(rows))
    told = {"suite": _SUITE.value, "preset": _PRESET.value, "repeats": _REPEATS.value}
    print(json.dumps(told | {"rows": rows}))


def _table(rows: list[dict[str, Any]]) -> str:
    """Columns as wide as what they hold."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(lines)


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    program.run(main)
