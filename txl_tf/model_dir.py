"""The folder of a run or an import: config, tokenizer and checkpoints; all that loading needs.

    config.json                       the Config
    data.json                         which text a run reads, and how it validates
    tokenizer.json, vocabulary        the tokenizer
    checkpoints/ckpt-STEP.*           the newest states of training
    best/ckpt-STEP.*                  the weights with the best validation
    tensorboard/                      curves

It is complete from the moment config.json is there, which is written last. Any file system that
`tf.io.gfile` knows will do.
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
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops import machine

CHECKPOINTS = "checkpoints"
BEST = "best"
_CONFIG = "config.json"
_LIST = "checkpoint"  # as TensorFlow calls its list of a folder's checkpoints
_FOLDERS = {"latest": CHECKPOINTS, "best": BEST}


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What `load` finds.

    Attributes:
      model: built, with its trained weights.
      tokenizer: that of the data it was trained on.
      config: of the run.
      step: optimizer steps behind the weights.
    """

    model: TransformerXL
    tokenizer: tokenizers.Tokenizer
    config: Config
    step: int


def load(path: str, which: str | None = None, dtype: str | None = None) -> Loaded:
    """Loads the model of a folder, also while a run is writing there.

    Args:
      path: the folder.
      which: "best" (by validation) or "latest"; None is the best where there is one.
      dtype: "bfloat16" rounds the weights to it, once and for all; None is float32.

    Raises:
      ValueError: nothing usable is there, or the machine has too little memory for its weights;
        names the folder.
    """
    config = read_config(path)
    sizes = memory_estimate.sizes_of(config.model)
    weights = memory_estimate.least_weights(config.model)
    machine.check_memory({f"weights of {path}": weights}, sizes)
    model = TransformerXL(config.model)
    step = restore_weights(path, model, which)
    model = model if dtype is None else rounded(model, dtype)
    return Loaded(model, tokenizers.load(path), config, step)


def rounded(model: TransformerXL, dtype: str) -> TransformerXL:
    """The model with its weights in another floating-point type: for inference, not for training.

    Norms, scores and losses are computed in float32 all the same.
    """
    other = TransformerXL(model.config, dtype=dtype)
    for weight, value in zip(other.weights, model.weights, strict=True):
        weight.assign(tf.cast(value, weight.dtype))
    return other


def exists(path: str) -> bool:
    """Whether the folder is a complete model_dir, though perhaps without a checkpoint yet."""
    return files.exists(os.path.join(path, _CONFIG))


def describe(path: str, config: Config, tokenizer: tokenizers.Tokenizer) -> None:
    """Writes the config and the tokenizer; each file appears whole or not at all.

    Nobody else may write there at the same time.
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
    """The Config of a folder.

    Raises:
      ValueError: the folder is no model_dir, or its config.json is broken.
    """
    files.check_plain("model_dir", path)
    if not exists(path):
        raise ValueError(
            f"model_dir must hold a {_CONFIG} (train and import_checkpoint write it), got {path}"
        )
    return files.read_json(os.path.join(path, _CONFIG), Config.from_json)


def weights_of(model: keras.Model) -> dict[str, tf.Variable]:
    """All weights by their paths in the model, for a `tf.train.Checkpoint` to track.

    Given a Keras model, a checkpoint leaves out, without a word, whatever hangs in a list.
    """
    return named({name_of(weight): weight for weight in model.weights}, model.weights)


def name_of(weight: keras.Variable) -> str:
    """The path of a weight in its model, whatever the model is called."""
    return weight.path.partition("/")[2]


def named(found: dict[str, Any], variables: list[Any]) -> dict[str, tf.Variable]:
    """The TensorFlow variables behind `found`, which must name every one of Keras' `variables`.

    Raises:
      ValueError: two share a name, so that a checkpoint would lose one.
    """
    lost = [v.path for v in variables if all(v is not kept for kept in found.values())]
    if lost:
        raise ValueError(f"variables must have distinct names, got {', '.join(lost)} again")
    return {name: variable.value for name, variable in found.items()}


def save_weights(path: str, model: keras.Model, step: int = 0) -> None:
    """Writes a checkpoint of the weights alone."""
    checkpoint = tf.train.Checkpoint(weights=weights_of(model))
    manager(checkpoint, os.path.join(path, CHECKPOINTS), keep=1).save(checkpoint_number=step)


def restore_weights(path: str, model: keras.Model, which: str | None = None) -> int:
    """Reads the weights into `model` and returns their step; see `load`."""
    return restore_variables(path, weights_of(model), which)


def restore_variables(path: str, weights: dict[str, tf.Variable], which: str | None = None) -> int:
    """Reads weights by their names in the model and returns their step; see `load`."""
    if which is not None and which not in _FOLDERS:
        raise ValueError(f"which must be one of {', '.join(_FOLDERS)}, got {which!r}")
    folders = [_FOLDERS[which]] if which else [BEST, CHECKPOINTS]
    found = [c for folder in folders for c in checkpoints(os.path.join(path, folder))]
    prefix = restore_first(found, functools.partial(restore_checkpoint, weights))
    if prefix is None:
        raise ValueError(f"model_dir must hold a checkpoint in {' or '.join(folders)}, got {path}")
    return step_of(prefix)


def restore_checkpoint(weights: dict[str, tf.Variable], prefix: str) -> None:
    """Reads weights by their names in the model from one checkpoint.

    Raises:
      ValueError: its weights are not those of the model, all of them, or not finite; names both.
    """
    with fitting(prefix):
        names = [name for name, _ in tf.train.list_variables(prefix)]
        stored = sum(name.startswith("weights/") for name in names)
        if stored != len(weights):
            raise ValueError(f"its weights are {stored}, those of the config {len(weights)}")
        checkpoint = tf.train.Checkpoint(weights=weights)
        checkpoint.restore(prefix).assert_existing_objects_matched().expect_partial()
    check_finite("weights", weights, f"checkpoint {prefix}")


def check_finite(what: str, variables: Mapping[str, tf.Variable], where: str) -> None:
    """Refuses NaN and infinity: whatever is computed from them is nothing, and looks like text.

    Raises:
      ValueError: names the first such variable, and what and where it is.
    """
    for name, variable in variables.items():
        if variable.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(variable)):
            raise ValueError(
                f"{what} must be finite, got a NaN or infinity in {name} at {where}; "
                "go on from a checkpoint before it"
            )


@contextlib.contextmanager
def fitting(prefix: str) -> Iterator[None]:
    """Names the checkpoint in what TensorFlow raises where it is not one of the model."""
    try:
        yield
    except (AssertionError, tf.errors.InvalidArgumentError, ValueError) as error:
        told = str(error).partition("\n")[0].partition(": [")[0]  # there follow weights, in full
        raise ValueError(f"checkpoint {prefix} must fit the model: {told}") from error


def manager(checkpoint: tf.train.Checkpoint, folder: str, keep: int) -> tf.train.CheckpointManager:
    """Returns a manager that saves into a folder and removes older checkpoints.

    A damaged list of those is made anew.
    """
    found = checkpoints(folder)
    if found != _listed(folder):
        names = [os.path.basename(prefix) for prefix in found]
        lines = [f'model_checkpoint_path: "{names[0]}"\n']
        for i, name in enumerate(reversed(names), 1):  # TensorFlow forgets those without a time
            lines.append(f'all_model_checkpoint_paths: "{name}"\n')
            lines.append(f"all_model_checkpoint_timestamps: {i}\n")
        outputs.write(os.path.join(folder, _LIST), "".join(lines).encode())
    elif not found and files.exists(os.path.join(folder, _LIST)):
        files.remove(os.path.join(folder, _LIST))
    return tf.train.CheckpointManager(checkpoint, folder, max_to_keep=keep)


def checkpoints(folder: str) -> list[str]:
    """The prefixes of a folder's checkpoints, newest first.

    They are those of its list, in which TensorFlow writes a checkpoint when it is complete. Without
    a list, or where none of its checkpoints is there, they are those that are.
    """
    files.check_plain("model_dir", folder)
    if not files.is_folder(folder):
        return []
    indices = (name for name in files.names(folder) if re.fullmatch(r"ckpt-\d+\.index", name))
    there = [os.path.join(folder, name.removesuffix(".index")) for name in indices]
    listed = _listed(folder)
    is_true = not there or not set(listed).isdisjoint(there)
    return listed if is_true else sorted(there, key=step_of, reverse=True)


def _listed(folder: str) -> list[str]:
    """The prefixes in the list of a folder, newest first; none where it cannot be read."""
    path = os.path.join(folder, _LIST)
    files.check_no_folder(path)
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError as error:  # it is no UTF-8, or names none
        _warn_once(f"{path} cannot be read: {error}")
        return []
    found = reversed(state.all_model_checkpoint_paths) if state else []
    return [prefix for prefix in found if re.search(r"-\d+$", prefix)]


@functools.cache
def _warn_once(message: str) -> None:
    """A list is read again and again before a run has mended it."""
    logging.warning("%s", message)


def step_of(prefix: str) -> int:
    """The step in a checkpoint's name: 12 of "checkpoints/ckpt-12"."""
    return int(prefix.rpartition("-")[2])


def restore_first(prefixes: list[str], restore: Callable[[str], None]) -> str | None:
    """Calls `restore` with one prefix after the other until one is whole; returns that.

    Raises:
      ValueError: there are checkpoints, but each of them is damaged or missing.
    """
    wrong: list[str] = []
    damage: Exception | None = None
    for prefix in prefixes:
        if damage:
            logging.warning("falling back to the checkpoint before it, %s", prefix)
        try:
            restore(prefix)
            return prefix
        except (tf.errors.OpError, IndexError) as error:
            if not _is_damage(error):
                raise
            damage = error
            how = "damaged" if files.exists(f"{prefix}.index") else "missing"
            wrong.append(prefix if how == "damaged" else f"{prefix} (missing)")
            told = str(error).partition("\n")[0]
            logging.warning("the checkpoint %s is %s: %s", prefix, how, told)
    if damage:
        raise ValueError(
            f"model_dir must hold an undamaged checkpoint, got {', '.join(wrong)}"
        ) from damage
    return None


def _is_damage(error: Exception) -> bool:
    """Whether files are missing, cut or altered, by what TensorFlow raises then.

    A file system out of reach or a model of another shape is no reason to go back in time.
    """
    kinds = (
        tf.errors.NotFoundError,
        tf.errors.DataLossError,
        tf.errors.OutOfRangeError,
        IndexError,
    )
    return isinstance(error, kinds) or type(error) is tf.errors.OpError
