"""Checkpoints of the original TensorFlow code (V1 or V2 files)."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import hparams as flags
from txl_tf.conversion import original_layout, tensors
from txl_tf.data import files

_SCOPE = "transformer/"
_SLOTS = ("/Adam", "/Adam_1")  # of the optimizer


def config_from_hparams(hparams: Mapping[str, Any]) -> TransformerXLConfig:
    """Returns the architecture of the TensorFlow original's flags, under their names.

    Its LayerNorm has epsilon 1e-12, its initial memory is zeros that receive attention, and with
    `same_length` a query attends to mem_len + 1 keys.
    """
    return original_layout.config_from_hparams(
        hparams,
        span=hparams["mem_len"] + 1,
        untie_biases=hparams["untie_r"],
        project_same_dim=hparams.get("proj_same_dim", True),
        layer_norm_epsilon=1e-12,
        attend_to_initial_zeros=True,
    )


def read(checkpoint: str, scope: str = _SCOPE) -> tensors.Source:
    """Reads a checkpoint: the prefix of its files, or a folder with a file "checkpoint".

    Args:
      checkpoint: see above.
      scope: beginning of the names of the model's variables.

    Raises:
      ValueError: the checkpoint is missing, truncated, or has no variables of the scope.
    """
    files.check_plain("checkpoint", checkpoint)
    prefix = checkpoint
    if files.is_folder(checkpoint):
        prefix = tf.train.latest_checkpoint(checkpoint)
        if prefix is None:
            raise ValueError(f"checkpoint must hold a file named checkpoint, got {checkpoint}")
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", prefix)
    try:
        reader = tf.train.load_checkpoint(prefix)
        variables = {
            name: reader.get_tensor(name)
            for name in sorted(reader.get_variable_to_shape_map())
            if name.startswith(scope) and not name.endswith(_SLOTS)
        }
        has_step = reader.has_tensor("global_step")
        step = int(reader.get_tensor("global_step")) if has_step else 0
    except (ValueError, RuntimeError, IndexError, tf.errors.OpError) as error:
        raise ValueError(f"checkpoint must be readable, got {prefix}: {error}") from error
    if not variables:
        raise ValueError(f"checkpoint must hold variables under {scope}, got none in {prefix}")
    return tensors.Source(variables, step)


def read_parameters(checkpoint: str) -> dict[str, np.ndarray]:
    """Returns the model's parameters in a checkpoint, without the optimizer's, by original name.

    Raises:
      ValueError: see `read`.
    """
    parameters = renamed(read(checkpoint).tensors, {})
    return {name: tensor.value for name, tensor in parameters.items()}


def renamed(state: Mapping[str, np.ndarray], given: Mapping[str, Any]) -> dict[str, tensors.Tensor]:
    """Returns the variables named as in `original_layout.parameters`."""
    del given  # names are unambiguous
    return {name.removeprefix(_SCOPE): tensor for name, tensor in tensors.own(state).items()}


def source_name(name: str) -> str:
    """Returns the name of a parameter in a checkpoint."""
    return _SCOPE + name


def load_weights(model, checkpoint: str) -> int:
    """Assigns a checkpoint to `model` by `original_layout.assign`; returns the element count."""
    return original_layout.assign(model, read_parameters(checkpoint), source_name)


def unsupported_options(config: TransformerXLConfig) -> list[str]:
    """Returns the options of `config` that the original lacks."""
    options = []
    if config.pre_norm:
        options.append("pre_norm")
    if not config.tie_embeddings:
        options.append("tie_embeddings off")
    if not config.tie_output_projection:
        options.append("tie_output_projection off")
    return options


def known_differences(config: TransformerXLConfig) -> list[str]:
    """Returns the computations in which the original differs for these weights."""
    lines = []
    if config.layer_norm_epsilon != 1e-12:
        lines.append(f"layer_norm_epsilon is 1e-12 there, here {config.layer_norm_epsilon:g}")
    if config.attention_span not in (None, config.mem_len + 1):
        lines.append(f"same_length sees mem_len + 1 keys there, here {config.attention_span}")
    if not config.attend_to_initial_zeros:
        lines.append("zeros of an initial memory receive attention there, but not here")
    return lines


def write(folder: str, values: Mapping[str, np.ndarray], config: TransformerXLConfig, step: int):
    """Writes a V2 checkpoint in the format of the original's Saver, and config.json with flags."""
    name = f"model.ckpt-{step}"
    variables: dict[str, Any] = {source_name(n): value for n, value in values.items()}
    variables["global_step"] = np.int64(step)
    names = sorted(variables)
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, name),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[variables[n] for n in names],
    )
    state = f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
    files.write_bytes(os.path.join(folder, "checkpoint"), state.encode())
    text = json.dumps({"hparams": flags.from_config(config)}, indent=1) + "\n"
    files.write_bytes(os.path.join(folder, "config.json"), text.encode())
