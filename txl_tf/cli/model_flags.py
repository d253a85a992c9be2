"""Flags of the programs that use a trained model: its path, lengths and precision.

    model_flags.define({"segment_len": "eval.segment_len"})

    def main(argv):
        loaded = model_flags.load()

An unset length defaults to the model's eval settings, then to the model itself; "none" is off.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from absl import app, flags, logging

from txl_tf.cli import config_flags
from txl_tf.configs import choices, presets
from txl_tf.configs import objectives as objective_specs
from txl_tf.configs.run import Config

if TYPE_CHECKING:
    from txl_tf.model_dir import Loaded

flags.disclaim_key_flags()  # the flags belong to the program, whose --help shows them

_LENGTHS = ("mem_len", "clamp_len", "attention_span")
_HELPS = {  # "none" is off here, not that of the model as in EvalConfig
    "mem_len": "Memory slots of each layer. Default: as in the eval settings, else in the model.",
    "clamp_len": "Distances are clamped to it; none is off. Default: as for --mem_len.",
    "attention_span": (
        "Maximum number of keys that a token attends to, itself included; none is no limit. "
        "Default: as for --mem_len."
    ),
}
_DTYPES = {"float32": None, "bfloat16": "bfloat16"}
_changeable: set[str] = set()
_defined: set[str] = set()  # flags that modify the model of --model_dir


def define(shorthands: Mapping[str, str], *, required: bool = True) -> None:
    """Defines the flags, and shorthands for the config fields that the program reads.

    Args:
      shorthands: flag -> field, as "eval.batch_size".
      required: whether --model_dir is required.
    """
    flags.DEFINE_string(
        "model_dir", None, "Model, the output of train or import_checkpoint.", required=required
    )
    flags.DEFINE_enum(
        "checkpoint",
        None,
        ["best", "latest"],
        "Weights to use; default: the best if saved, else the latest.",
    )
    flags.DEFINE_enum("precision", "float32", list(_DTYPES), "Precision of the computation.")
    flags.DEFINE_enum(
        "state",
        "kv",
        choices.STATES,
        "State of the model: cached keys and values (kv), or hidden states.",
    )
    lengths = {name: f"eval.{name}" for name in _LENGTHS}
    config_flags.define_shorthands({**shorthands, **lengths}, helps=_HELPS)
    _changeable.update(shorthands.values())
    _defined.update(("checkpoint", "precision", "state", "set", *shorthands, *lengths))


def load(
    eval_preset: str | None = None, objectives: Collection[str] = objective_specs.NEXT_TOKEN
) -> "Loaded":
    """Loads the model, with lengths from the flags and its eval settings.

    Its config has the flags applied; a length of None in `config.eval` is off.

    Args:
      eval_preset: preset whose eval settings replace the model's.
      objectives: names of the objectives that the program supports.

    Raises:
      app.UsageError: a flag changes a setting that is fixed after training.
      ValueError: the model is of another objective.
    """
    from txl_tf import model_dir as model_dirs

    objective = model_dirs.read_config(flags.FLAGS.model_dir).train.objective
    if objective_specs.parse(objective).name not in objectives:
        raise ValueError(
            f"model_dir must hold a model of objective {' or '.join(objectives)} here, "
            f"got {objective} in {flags.FLAGS.model_dir}"
        )
    loaded = model_dirs.load(
        flags.FLAGS.model_dir, flags.FLAGS.checkpoint, _DTYPES[flags.FLAGS.precision]
    )
    settings = presets.preset(eval_preset).eval if eval_preset else loaded.config.eval
    start = _with_lengths(dataclasses.replace(loaded.config, eval=settings))
    config = config_flags.resolve(start)
    _check_changes(start, config)
    model = loaded.model.with_lengths(**{name: getattr(config.eval, name) for name in _LENGTHS})
    for message in model.config.warnings():
        logging.info(message)
    return dataclasses.replace(loaded, model=model, config=config)


def refuse(reason: str, *names: str) -> None:
    """Refuses flags without effect: those named, or else all except --model_dir.

    Raises:
      app.UsageError: one was given.
    """
    config_flags.refuse(reason, *(names or sorted(_defined)))


def state() -> str:
    """Returns the kind of state that the flags ask for, a name in `choices.STATES`."""
    return flags.FLAGS.state


def segment_len(config: Config) -> int:
    """Returns the number of tokens read at once; by default that of training."""
    return config.eval.segment_len or config.train.segment_len


def _with_lengths(config: Config) -> Config:
    """Returns `config` with unset lengths of its eval section taken from the model."""
    unset = {k: getattr(config.model, k) for k in _LENGTHS if getattr(config.eval, k) is None}
    return dataclasses.replace(config, eval=dataclasses.replace(config.eval, **unset))


def _check_changes(before: Config, after: Config) -> None:
    for section in ("model", "data", "train"):
        old, new = getattr(before, section), getattr(after, section)
        for field in dataclasses.fields(old):
            path = f"{section}.{field.name}"
            if getattr(old, field.name) != getattr(new, field.name) and path not in _changeable:
                raise app.UsageError(f"--set must change a setting of eval here, got {path}")
