"""Checkpoints of the original PyTorch code: .pt files, or .safetensors of state dicts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import hparams, original_layout, tensors, torch_naming
from txl_tf.conversion.torch_reader import torch_files
from txl_tf.conversion.torch_reader.allowlist import Record
from txl_tf.data import files

POSITIONS = ("xl", "shaw", "absolute", "absolute_per_layer")  # by attn_type
_WITH_TABLES = (1, 3)
_OTHERS = {"transformer.": "huggingface", "crit.out_layers_biases.": "nvidia"}  # by prefix


def config_from_hparams(flags: Mapping[str, Any], more_span: int = 0) -> TransformerXLConfig:
    """Returns the architecture of the PyTorch original's flags, under their names.

    Its LayerNorm has epsilon 1e-5, its initial memory is empty, its u and v are shared by layers,
    and with `same_length` a query attends to mem_len keys, or `more_span` more in descendants.
    """
    kind = flags["attn_type"]
    if kind not in range(len(POSITIONS)):
        raise ValueError(f"attn_type must be 0, 1, 2 or 3, got {kind}")
    own: dict[str, Any] = {}
    if kind in _WITH_TABLES:
        lengths = (flags[name] for name in ("tgt_len", "ext_len", "mem_len"))
        own["num_positions"] = flags.get("num_positions") or sum(lengths)
    clamp_len = flags["clamp_len"]
    if kind == 1 and clamp_len > 0:  # number of distinct distances there, maximum distance here
        if clamp_len == 1:
            raise ValueError("clamp_len must be above 1 for attn_type 1, got 1")
        clamp_len -= 1
    return original_layout.config_from_hparams(
        {**flags, "clamp_len": clamp_len},
        span=flags["mem_len"] + more_span,
        pre_norm=flags["pre_lnorm"],
        layer_norm_epsilon=1e-5,
        tie_embeddings=flags.get("tie_weight", True),
        project_same_dim=flags.get("proj_same_dim", True),
        position=POSITIONS[kind],
        **own,
    )


def read(checkpoint: str) -> tensors.Source:
    """Reads a file: .safetensors, or one of `torch.save` with a state dict or a whole model.

    A whole model also contains its flags.
    """
    state = read_state(checkpoint)
    if checkpoint.endswith(".safetensors"):
        return tensors.Source(state)
    held = torch_files.load(checkpoint, tensors=False)
    return tensors.Source(state, hparams=_flags(held) if isinstance(held, Record) else {})


def _flags(model: Record) -> dict[str, Any]:
    """Returns the flags of a pickled MemTransformerLM, from its modules."""
    flags = hparams.known(model.fields, "the model")
    words = _module(model, "word_emb").fields
    layer = _module(model, "layers", "0", "dec_attn").fields
    ends = words.get("cutoffs")
    if isinstance(ends, list) and ends:
        flags["cutoffs"] = ends[:-1]  # the last is the vocabulary size
    own = {"div_val": words.get("div_val"), "pre_lnorm": layer.get("pre_lnorm")}
    return flags | hparams.known(own, "the model")


def _module(module: Record, *path: str) -> Record:
    for name in path:
        inner = (module.fields.get("_modules") or {}).get(name)
        if not isinstance(inner, Record):
            raise ValueError(f"checkpoint must hold a MemTransformerLM, got one without {name}")
        module = inner
    return module


def read_state(checkpoint: str) -> dict[str, np.ndarray]:
    """Returns the state dict in a file.

    Raises:
      ValueError: the file is missing, truncated or of another kind; names it.
    """
    if files.is_folder(checkpoint) or not files.exists(checkpoint):
        raise ValueError(f"checkpoint must be a file, got {checkpoint}")
    if not checkpoint.endswith(".safetensors"):
        return torch_files.state_dict(checkpoint)
    try:
        return safetensors.numpy.load_file(checkpoint)
    except (safetensors.SafetensorError, TypeError, KeyError) as error:
        reason = f"{checkpoint}: {error}"
        raise ValueError(f"checkpoint must be a whole .safetensors file, got {reason}") from error


def renamed(state: Mapping[str, np.ndarray], given: Mapping[str, Any]) -> dict[str, tensors.Tensor]:
    """Converts a state dict to the TensorFlow original's layout; see `torch_naming`.

    Raises:
      ValueError: its names are of another code.
    """
    for mark, name in _OTHERS.items():
        others = [key for key in state if key.startswith(mark)]
        if others:
            raise ValueError(
                f"checkpoint must hold tensors with the original code's names, got {others[0]}; "
                f"is its format {name}?"
            )
    return torch_naming.to_original(tensors.own(state), given, reverse_clusters=True)


source_name = torch_naming.source_name


def to_original(state: Mapping[str, np.ndarray], model) -> dict[str, np.ndarray]:
    """Returns the values of `renamed` for an existing model."""
    parameters = renamed(state, hparams.from_config(model.config))
    return {name: tensor.value for name, tensor in parameters.items()}


def load_weights(model, checkpoint: str) -> int:
    """Assigns a checkpoint to `model` by `original_layout.assign`; returns the element count."""
    return original_layout.assign(model, to_original(read_state(checkpoint), model), source_name)
