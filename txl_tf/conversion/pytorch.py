"""Checkpoints of the original PyTorch code: .pt files, and .safetensors of their state dicts."""

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
_OTHERS = {"transformer.": "huggingface", "crit.out_layers_biases.": "nvidia"}  # by their names


def config_from_hparams(flags: Mapping[str, Any], more_span: int = 0) -> TransformerXLConfig:
    """The architecture that the original builds from its flags, by the names it gives them.

    Its LayerNorm has epsilon 1e-5, its initial memory is empty, its u and v are tied, and its
    `same_length` lets a query see mem_len keys; in codes that grew out of it, `more_span` more.
    """
    kind = flags["attn_type"]
    if kind not in range(len(POSITIONS)):
        raise ValueError(f"attn_type must be 0, 1, 2 or 3, got {kind}")
    own: dict[str, Any] = {}
    if kind in _WITH_TABLES:
        lengths = (flags[name] for name in ("tgt_len", "ext_len", "mem_len"))
        own["num_positions"] = flags.get("num_positions") or sum(lengths)
    clamp_len = flags["clamp_len"]
    if kind == 1 and clamp_len > 0:  # so many distances are told apart; elsewhere one more
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
    """Reads a file: .safetensors, or what `torch.save` wrote of a state dict or a whole model.

    A whole model also tells its flags.
    """
    state = read_state(checkpoint)
    if checkpoint.endswith(".safetensors"):
        return tensors.Source(state)
    held = torch_files.load(checkpoint, tensors=False)
    return tensors.Source(state, hparams=_flags(held) if isinstance(held, Record) else {})


def _flags(model: Record) -> dict[str, Any]:
    """The flags of a pickled MemTransformerLM, as its modules keep them."""
    found = hparams.known(model.fields, "the model")
    words = _module(model, "word_emb").fields
    layer = _module(model, "layers", "0", "dec_attn").fields
    ends = words.get("cutoffs")
    if isinstance(ends, list) and ends:
        found["cutoffs"] = ends[:-1]  # it ends with the vocabulary
    own = {"div_val": words.get("div_val"), "pre_lnorm": layer.get("pre_lnorm")}
    return found | hparams.known(own, "the model")


def _module(module: Record, *path: str) -> Record:
    for name in path:
        inner = (module.fields.get("_modules") or {}).get(name)
        if not isinstance(inner, Record):
            raise ValueError(f"checkpoint must hold a MemTransformerLM, got one without {name}")
        module = inner
    return module


def read_state(checkpoint: str) -> dict[str, np.ndarray]:
    """The state dict in a file.

    Raises:
      ValueError: the file is not there, cut or of another kind; names it.
    """
    if files.is_folder(checkpoint) or not files.exists(checkpoint):
        raise ValueError(f"checkpoint must be a file, got {checkpoint}")
    if not checkpoint.endswith(".safetensors"):
        return torch_files.state_dict(checkpoint)
    try:
        return safetensors.numpy.load_file(checkpoint)
    except (safetensors.SafetensorError, TypeError, KeyError) as error:
        what = f"{checkpoint}: {error}"
        raise ValueError(f"checkpoint must be a whole .safetensors file, got {what}") from error


def renamed(state: Mapping[str, np.ndarray], given: Mapping[str, Any]) -> dict[str, tensors.Tensor]:
    """Renames a state dict into the layout of the TensorFlow original; see `naming`.

    Raises:
      ValueError: its names are those of another code.
    """
    for mark, name in _OTHERS.items():
        others = [key for key in state if key.startswith(mark)]
        if others:
            raise ValueError(
                f"checkpoint must hold tensors as the original code names them, got {others[0]}; "
                f"is its format {name}?"
            )
    return torch_naming.to_original(tensors.own(state), given, reverse_clusters=True)


source_name = torch_naming.source_name


def to_original(state: Mapping[str, np.ndarray], model) -> dict[str, np.ndarray]:
    """`renamed` for a model that is there already: the values alone."""
    found = renamed(state, hparams.of(model.config))
    return {name: tensor.value for name, tensor in found.items()}


def load_weights(model, checkpoint: str) -> int:
    """Assigns a checkpoint to `model`; returns the number of elements. See `original.assign`."""
    return original_layout.assign(model, to_original(read_state(checkpoint), model), source_name)
