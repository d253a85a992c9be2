"""Folder of a run or an import ("model_dir"): config, tokenizer and checkpoints.

    config.json                       the Config
    data.json                         the data of the run, and its validation settings
    tokenizer.json, vocabulary        the tokenizer
    checkpoints/ckpt-STEP.*           the newest training states
    best/ckpt-STEP.*                  the weights with the best validation
    tensorboard/                      curves

It is complete once config.json exists, which is written last. Works on any file system of
`tf.io.gfile`.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from txl_tf import memory_estimate
from txl_tf.configs.run import Config
from txl_tf.data import files, outputs, tokenizers
from txl_tf.models import objectives
from txl_tf.models.recurrent_model import RecurrentModel
from txl_tf.ops import machine

CHECKPOINTS = "checkpoints"
BEST = "best"
_CONFIG = "config.json"
_INDEX = "checkpoint"  # TensorFlow's list of the checkpoints in a folder
_FOLDERS = {"latest": CHECKPOINTS, "best": BEST}


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Result of `load`.

    Attributes:
      model: built, with its trained weights.
      tokenizer: that of the training data.
      config: config of the run.
      step: number of optimizer steps of the weights.
    """

    model: Any
    tokenizer: tokenizers.Tokenizer
    config: Config
    step: int


def load(path: str, which: str | None = None, dtype: str | None = None) -> Loaded:
    """Loads the model of a folder; safe while a run writes to it.

    >>> loaded = txl_tf.load("model")
    >>> scorer = txl_tf.Scorer(loaded.model, loaded.tokenizer)

    Args:
      path: the folder.
      which: "best" (by validation) or "latest"; None is the best if it exists.
      dtype: "bfloat16" rounds the weights to it; None is float32.

    Raises:
      ValueError: the folder holds no usable model, or the machine has too little memory for its
        weights; names the folder.
    """
    config = read_config(path)
    sizes = memory_estimate.sizes_of(config.model)
    weights = memory_estimate.min_weight_bytes(config.model)
    machine.check_memory({f"weights of {path}": weights}, sizes)
    model = make_model(config)
    step = restore_weights(path, model, which)
    model = objectives.make(config.train.objective_spec).for_use(model)
    model = model if dtype is None else rounded(model, dtype)
    return Loaded(model, tokenizers.load(path), config, step)


def make_model(config: Config, **kwargs: Any) -> Any:
    """Returns a new model to train by the config's objective; `kwargs` are those of its class."""
    return objectives.make(config.train.objective_spec).make_model(config.model, **kwargs)


def rounded(model: RecurrentModel, dtype: str) -> RecurrentModel:
    """Returns the model with its weights in another floating-point type, for inference only.

    Norms, scores and losses are still computed in float32.
    """
    copy = type(model)(model.config, dtype=dtype)
    for weight, value in zip(copy.weights, model.weights, strict=True):
        weight.assign(tf.cast(value, weight.dtype))
    return copy


def exists(path: str) -> bool:
    """Returns whether the folder is a complete model_dir, possibly without a checkpoint."""
    return files.exists(os.path.join(path, _CONFIG))


def describe(path: str, config: Config, tokenizer: tokenizers.Tokenizer) -> None:
    """Writes the config and the tokenizer, each file atomically.

    Not safe for concurrent writers.
    """
    target = os.path.join(path, _CONFIG)
    outputs.sweep(target)
    with outputs.draft(target) as draft:
        tokenizer.save(draft)
        names = files.names(draft)
        files.write_bytes(os.path.join(draft, _CONFIG), config.to_json().encode("utf-8"))
        for name in [*names, _CONFIG]:
            files.rename(os.path.join(draft, name), os.path.join(path, name))


def read_config(path: str) -> Config:
    """Returns the Config of a folder.

    Raises:
      ValueError: the folder is not a model_dir, or its config.json is invalid.
    """
    files.check_plain("model_dir", path)
    if not exists(path):
        raise ValueError(
            f"model_dir must hold a {_CONFIG} (train and import_checkpoint write it), got {path}"
        )
    return files.read_json(os.path.join(path, _CONFIG), Config.from_json)


def weights_of(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns all weights by their paths in the model, for a `tf.train.Checkpoint` to track.

    Given a Keras model, tf.train.Checkpoint silently skips layers held in Python lists.
    """
    return named({name_of(weight): weight for weight in model.weights}, model.weights)


def name_of(weight: keras.Variable) -> str:
    """Returns the path of a weight in its model, without the model's name."""
    return weight.path.partition("/")[2]


def named(by_name: dict[str, Any], variables: list[Any]) -> dict[str, tf.Variable]:
    """Returns the TensorFlow variables of `by_name`, which must hold all Keras `variables`.

    Raises:
      ValueError: two share a name, so that a checkpoint would lose one.
    """
    lost = [v.path for v in variables if all(v is not kept for kept in by_name.values())]
    if lost:
        raise ValueError(f"variables must have distinct names, got {', '.join(lost)} twice")
    return {name: variable.value for name, variable in by_name.items()}


def save_weights(path: str, model: keras.Model, step: int = 0) -> None:
    """Writes a checkpoint of only the weights."""
    checkpoint = tf.train.Checkpoint(weights=weights_of(model))
    manager(checkpoint, os.path.join(path, CHECKPOINTS), keep=1).save(checkpoint_number=step)


def restore_weights(path: str, model: keras.Model, which: str | None = None) -> int:
    """Restores the weights of `model` and returns their step; see `load`."""
    return restore_variables(path, weights_of(model), which)


def restore_variables(path: str, weights: dict[str, tf.Variable], which: str | None = None) -> int:
    """Restores weights by their names in the model and returns their step; see `load`."""
    if which is not None and which not in _FOLDERS:
        raise ValueError(f"which must be one of {', '.join(_FOLDERS)}, got {which!r}")
    folders = [_FOLDERS[which]] if which else [BEST, CHECKPOINTS]
    prefixes = [c for folder in folders for c in checkpoints(os.path.join(path, folder))]
    prefix = restore_first(prefixes, functools.partial(restore_checkpoint, weights))
    if prefix is None:
        raise ValueError(f"model_dir must hold a checkpoint in {' or '.join(folders)}, got {path}")
    return step_of(prefix)


def restore_checkpoint(weights: dict[str, tf.Variable], prefix: str) -> None:
    """Restores weights by their names in the model from one checkpoint.

    Raises:
      ValueError: its weights are not exactly those of the model, or not finite; names both.
    """
    with fitting(prefix):
        names = [name for name, _ in tf.train.list_variables(prefix)]
        stored = sum(name.startswith("weights/") for name in names)
        if stored != len(weights):
            raise ValueError(f"it has {stored} weights, the config {len(weights)}")
        checkpoint = tf.train.Checkpoint(weights=weights)
        checkpoint.restore(prefix).assert_existing_objects_matched().expect_partial()
    check_finite("weights", weights, f"checkpoint {prefix}")


def check_finite(what: str, variables: Mapping[str, tf.Variable], where: str) -> None:
    """Raises if a variable holds NaN or infinity: the model would still write plausible text.

    Raises:
      ValueError: names the first such variable, its kind and its source.
    """
    for name, variable in variables.items():
        if variable.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(variable)):
            raise ValueError(
                f"{what} must be finite, got a NaN or infinity in {name} at {where}; "
                "use an earlier checkpoint"
            )


@contextlib.contextmanager
def fitting(prefix: str) -> Iterator[None]:
    """Converts TensorFlow's errors of a mismatched checkpoint to one that names it."""
    try:
        yield
    except (AssertionError, tf.errors.InvalidArgumentError, ValueError) as error:
        reason = str(error).partition("\n")[0].partition(": [")[0]  # without the dumped weights
        raise ValueError(f"checkpoint {prefix} must fit the model: {reason}") from error


def manager(checkpoint: tf.train.Checkpoint, folder: str, keep: int) -> tf.train.CheckpointManager:
    """Returns a manager that saves into a folder and removes older checkpoints.

    Repairs a damaged list of these.
    """
    prefixes = checkpoints(folder)
    if prefixes != _listed(folder):
        names = [os.path.basename(prefix) for prefix in prefixes]
        lines = [f'model_checkpoint_path: "{names[0]}"\n']
        for i, name in enumerate(reversed(names), 1):  # TensorFlow drops those without a timestamp
            lines.append(f'all_model_checkpoint_paths: "{name}"\n')
            lines.append(f"all_model_checkpoint_timestamps: {i}\n")
        outputs.write(os.path.join(folder, _INDEX), "".join(lines).encode())
    elif not prefixes and files.exists(os.path.join(folder, _INDEX)):
        files.remove(os.path.join(folder, _INDEX))
    return tf.train.CheckpointManager(checkpoint, folder, max_to_keep=keep)


def checkpoints(folder: str) -> list[str]:
    """Returns the prefixes of a folder's checkpoints, newest first.

    They are those of TensorFlow's list, which holds complete checkpoints only. Without a list, or
    if none of the listed ones exists, they are those of the folder.
    """
    files.check_plain("model_dir", folder)
    if not files.is_folder(folder):
        return []
    indices = (name for name in files.names(folder) if re.fullmatch(r"ckpt-\d+\.index", name))
    existing = [os.path.join(folder, name.removesuffix(".index")) for name in indices]
    listed = _listed(folder)
    is_valid = not existing or not set(listed).isdisjoint(existing)
    return listed if is_valid else sorted(existing, key=step_of, reverse=True)


def _listed(folder: str) -> list[str]:
    """Returns the prefixes in the list of a folder, newest first; none if it cannot be read."""
    path = os.path.join(folder, _INDEX)
    files.check_no_folder(path)
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError as error:  # not UTF-8, or without a checkpoint
        _warn_once(f"{path} cannot be read: {error}")
        return []
    prefixes = reversed(state.all_model_checkpoint_paths) if state else []
    return [prefix for prefix in prefixes if re.search(r"-\d+$", prefix)]


@functools.cache
def _warn_once(message: str) -> None:
    """Logs a warning once: a damaged list is read several times before a run repairs it."""
    logging.warning("%s", message)


def step_of(prefix: str) -> int:
    """Returns the step in a checkpoint's name: 12 for "checkpoints/ckpt-12"."""
    return int(prefix.rpartition("-")[2])


def restore_first(prefixes: list[str], restore: Callable[[str], None]) -> str | None:
    """Calls `restore` with each prefix until one is undamaged; returns that, or None without any.

    Raises:
      ValueError: all checkpoints are damaged or missing.
    """
    unusable: list[str] = []
    damage: Exception | None = None
    for prefix in prefixes:
        if damage:
            logging.warning("falling back to the previous checkpoint %s", prefix)
        try:
            restore(prefix)
            return prefix
        except (tf.errors.OpError, IndexError) as error:
            if not _is_damage(error):
                raise
            damage = error
            state = "damaged" if files.exists(f"{prefix}.index") else "missing"
            unusable.append(prefix if state == "damaged" else f"{prefix} (missing)")
            reason = str(error).partition("\n")[0]
            logging.warning("the checkpoint %s is %s: %s", prefix, state, reason)
    if damage:
        raise ValueError(
            f"model_dir must hold an undamaged checkpoint, got {', '.join(unusable)}"
        ) from damage
    return None


def _is_damage(error: Exception) -> bool:
    """Returns whether an error of TensorFlow means missing, truncated or altered files.

    An unreachable file system or a shape mismatch must not fall back to an older checkpoint.
    """
    kinds = (
        tf.errors.NotFoundError,
        tf.errors.DataLossError,
        tf.errors.OutOfRangeError,
        IndexError,
    )
    return isinstance(error, kinds) or type(error) is tf.errors.OpError
