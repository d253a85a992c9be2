"""Averages the weights of a run's checkpoints into a new model_dir, often a better model.

    txl-average --model_dir=RUN --output_dir=NEW
    txl-average --model_dir=RUN --output_dir=NEW --steps=8000,9000

Averages the kept checkpoints (the newest train.keep_checkpoints of the run, without the best), the
newest of them, or those of given steps. All programs accept the new model_dir; train uses it with
--init_from. The last line of stdout is one JSON object.
"""

import json
from typing import NoReturn

from absl import app, flags

from txl_tf.cli import entry_point
from txl_tf.progress import Progress

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Run whose checkpoints to average.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "New model_dir to write.", required=True)
_LAST = flags.DEFINE_integer(
    "last", None, "Number of newest checkpoints to average; default: all.", lower_bound=2
)
_STEPS = flags.DEFINE_list("steps", None, "Steps of the checkpoints to average, comma-separated.")


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    chosen = _steps()
    from txl_tf.training import averaging

    with Progress("average"):
        steps = averaging.average(
            _MODEL_DIR.value, _OUTPUT_DIR.value, last=_LAST.value, steps=chosen
        )
    print(json.dumps({"output_dir": _OUTPUT_DIR.value, "step": steps[-1], "averaged": steps}))


def _steps() -> list[int] | None:
    if _STEPS.value is None:
        return None
    if _LAST.value is not None:
        raise app.UsageError("--last must be left out with --steps")
    for step in _STEPS.value:
        if not step.isdecimal():
            raise app.UsageError(f"--steps must be whole numbers, got {step!r}")
    return [int(step) for step in _STEPS.value]


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
