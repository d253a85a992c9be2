"""Checkpoints of NVIDIA's PyTorch code (DeepLearningExamples, Transformer-XL).

A descendant of the original's: `same_length` is as in TensorFlow, output tables and biases have
other names, and its trainer's files hold the model's flags beside the state dict.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import hparams, pytorch, tensors, torch_naming
from txl_tf.conversion.torch_reader import torch_files

_SHARED = "crit.shared_out_projs."


def config_from_hparams(flags: Mapping[str, Any]) -> TransformerXLConfig:
    """Returns the architecture of NVIDIA's flags, given under the original's names.

    Its LayerNorm has epsilon 1e-5, its initial memory is empty, and with `same_length` a query
    attends to mem_len + 1 keys. Cut-offs are used unchanged: its trainer shifts the usual ones.
    """
    return pytorch.config_from_hparams(flags, more_span=1)


def read(checkpoint: str) -> tensors.Source:
    """Reads a file: .safetensors, a state dict, or a checkpoint of NVIDIA's trainer."""
    state = pytorch.read_state(checkpoint)
    if checkpoint.endswith(".safetensors"):
        return tensors.Source(state)
    held = torch_files.load(checkpoint, tensors=False)
    if not isinstance(held, Mapping) or not isinstance(held.get("model_config"), Mapping):
        return tensors.Source(state)
    flags = hparams.known(held["model_config"], f"model_config in {checkpoint}")
    return tensors.Source(state, int(held.get("train_step") or 0), flags)


def renamed(state: Mapping[str, np.ndarray], given: Mapping[str, Any]) -> dict[str, tensors.Tensor]:
    """Converts a state dict to the TensorFlow original's layout; see `torch_naming`.

    Raises:
      ValueError: its names are not NVIDIA's, or a shared projection differs from the embedding's.
    """
    others = [name for name in state if "crit.out_layers." in name]
    if others:
        raise ValueError(
            "checkpoint must hold crit.out_layers_biases, as in NVIDIA's models, "
            f"got {', '.join(sorted(others)[:3])}; is its format pytorch?"
        )
    found = {_rename(name): tensor for name, tensor in tensors.own(state).items()}
    for name in [name for name in found if name.startswith(_SHARED)]:
        tied = found.get(name.replace(_SHARED, "word_emb.emb_projs."))
        if tied is not None:
            alias = found.pop(name)
            if not np.array_equal(tied.value, alias.value):
                raise ValueError(f"{alias.sources[0]} must equal {tied.sources[0]}, got others")
    # With attn_type 3 the position table has heads and head widths merged.
    table = found.get("r_emb")
    if table is not None and table.value.ndim == 3 and given.get("n_head"):
        value = table.value.reshape(*table.value.shape[:2], given["n_head"], -1)
        found["r_emb"] = table._replace(value=value)
    return torch_naming.to_original(found, given, reverse_clusters=True)


def source_name(name: str) -> str:
    """Returns the name of a TensorFlow original's parameter in NVIDIA's state dict."""
    theirs = torch_naming.source_name(name)
    return re.sub(
        r"crit\.out_layers\.(\d+)\.(weight|bias)",
        lambda m: f"crit.out_layers_{'weights' if m[2] == 'weight' else 'biases'}.{m[1]}",
        theirs,
    )


def _rename(name: str) -> str:
    name = name.removeprefix("module.")  # of DistributedDataParallel
    name = re.sub(r"crit\.out_layers_weights\.(\d+)", r"crit.out_layers.\1.weight", name)
    return re.sub(r"crit\.out_layers_biases\.(\d+)", r"crit.out_layers.\1.bias", name)
