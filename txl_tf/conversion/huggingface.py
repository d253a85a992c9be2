"""Hugging Face's TransfoXLLMHeadModel: a folder with config.json, or a file of weights."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import hparams, original_layout, pytorch, tensors, torch_naming
from txl_tf.data import files

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_BODY = "transformer."
_BIASES = ("r_w_bias", "r_r_bias")
_LAYER_BIAS = re.compile(r"layers\.(\d+)\.dec_attn\.(?:r_w_bias|r_r_bias)")


def config_from_hparams(flags: Mapping[str, Any]) -> TransformerXLConfig:
    """Returns the architecture of Hugging Face's config, given under the original's names.

    Its initial memory is zeros that receive attention, and with `same_length` a query attends to
    mem_len keys.
    """
    return original_layout.config_from_hparams(
        flags,
        span=flags["mem_len"],
        untie_biases=flags["untie_r"],
        pre_norm=flags["pre_lnorm"],
        project_same_dim=flags.get("proj_same_dim", True),
        tie_embeddings=flags.get("tie_weight", True),
        layer_norm_epsilon=flags.get("layer_norm_epsilon", 1e-5),
        attend_to_initial_zeros=True,
    )


def has_weights(checkpoint: str) -> bool:
    """Returns whether a path is a folder of `save_pretrained`."""
    paths = (os.path.join(checkpoint, name) for name in _WEIGHTS)
    return files.is_folder(checkpoint) and any(map(files.exists, paths))


def read(checkpoint: str) -> tensors.Source:
    """Reads a folder of `save_pretrained`, or a file of weights in it.

    Raises:
      ValueError: the weights are missing or truncated; names the file.
    """
    if files.is_folder(checkpoint):
        paths = [os.path.join(checkpoint, name) for name in _WEIGHTS]
        existing = [path for path in paths if files.exists(path)]
        if not existing:
            raise ValueError(f"checkpoint must hold {' or '.join(_WEIGHTS)}, got {checkpoint}")
        checkpoint = existing[0]
    return tensors.Source(pytorch.read_state(checkpoint))


def renamed(state: Mapping[str, np.ndarray], given: Mapping[str, Any]) -> dict[str, tensors.Tensor]:
    """Converts a state dict to the TensorFlow original's layout; see `torch_naming`.

    Raises:
      ValueError: its names are not Hugging Face's.
    """
    if not any(name.startswith(_BODY) for name in state):
        raise ValueError(
            f"checkpoint must hold tensors under {_BODY}, as in Hugging Face's models, "
            f"got {', '.join(sorted(state)[:3])}; is its format pytorch?"
        )
    found = tensors.own({name.removeprefix(_BODY): value for name, value in state.items()})
    known = {name.removeprefix(_BODY): name for name in state}
    found = {name: t._replace(sources=(known[name],)) for name, t in found.items()}
    layers = {m[1] for m in map(re.compile(r"layers\.(\d+)\.").match, found) if m}
    own = {m[1] for m in map(_LAYER_BIAS.fullmatch, found) if m}
    is_untied = given.get("untie_r", len(own) > 1 and not any(bias in found for bias in _BIASES))
    for bias in _BIASES:
        names = [f"layers.{i}.dec_attn.{bias}" for i in sorted(layers, key=int)]
        parts = [found.pop(name) for name in names if name in found]
        if is_untied and len(parts) < len(names):
            present = {part.sources[0] for part in parts}
            missing = [n for n in names if not any(source.endswith(n) for source in present)]
            raise ValueError(f"checkpoint must hold {', '.join(missing)}, got none")
        parts = parts if is_untied else [*([found[bias]] if bias in found else []), *parts]
        for part in parts[1:]:
            if part.value.shape != parts[0].value.shape:
                both = f"{part.sources[0]} and {parts[0].sources[0]}"
                raise ValueError(f"{both} must have the same shape, got others")
            if not is_untied and not np.array_equal(part.value, parts[0].value):
                raise ValueError(f"{part.sources[0]} must equal {parts[0].sources[0]}, got others")
        if is_untied:
            value = np.stack([part.value for part in parts])
            found[bias] = tensors.Tensor(value, tuple(part.sources[0] for part in parts))
        elif parts:
            found[bias] = parts[0]
    return torch_naming.to_original(found, given, reverse_clusters=False)


def source_name(name: str) -> str:
    """Returns the name of a TensorFlow original's parameter in Hugging Face's state dict."""
    theirs = torch_naming.source_name(name)
    return theirs if theirs.startswith("crit.") else _BODY + theirs


def unsupported_options(config: TransformerXLConfig) -> list[str]:
    """Returns the options of `config` that Hugging Face's code lacks."""
    del config  # it has every option that tf1 lacks
    return []


def known_differences(config: TransformerXLConfig) -> list[str]:
    """Returns the computations in which Hugging Face's code differs for these weights."""
    lines = []
    if config.attention_span not in (None, config.mem_len):
        lines.append(f"same_length sees mem_len keys there, here {config.attention_span}")
    if not config.attend_to_initial_zeros:
        lines.append("zeros of an initial memory receive attention there, but not here")
    return lines


def write(folder: str, values: Mapping[str, np.ndarray], config: TransformerXLConfig, step: int):
    """Writes config.json and model.safetensors in the format of `save_pretrained`."""
    del step  # the format has no step
    state = torch_naming.to_state(values, len(config.cutoffs) + 1)
    if config.untie_biases:
        for bias in _BIASES:
            layers = enumerate(state.pop(bias))
            state.update({f"layers.{i}.dec_attn.{bias}": value for i, value in layers})
    state["pos_emb.inv_freq"] = _inverse_frequencies(config.d_model)
    named = {
        name if name.startswith("crit.") else _BODY + name: np.ascontiguousarray(value)
        for name, value in state.items()
    }
    data = safetensors.numpy.save(named, {"format": "pt"})
    files.write_bytes(os.path.join(folder, "model.safetensors"), data)
    text = json.dumps(_config_json(config), indent=2, sort_keys=True) + "\n"
    files.write_bytes(os.path.join(folder, "config.json"), text.encode())


def _inverse_frequencies(d_model: int) -> np.ndarray:
    """Returns the frequencies, rounded after each operation as in PyTorch."""
    exponents = np.arange(0, d_model, 2, dtype=np.float32) / np.float32(d_model)
    powers = (10000.0 ** exponents.astype(np.float64)).astype(np.float32)
    return np.float32(1) / powers


def _config_json(config: TransformerXLConfig) -> dict[str, Any]:
    flags = hparams.from_config(config)
    del flags["proj_same_dim"]
    flags["vocab_size"] = flags.pop("n_token")
    flags["tie_word_embeddings"] = flags.pop("tie_weight")
    return flags | dict(
        adaptive=True,
        architectures=["TransfoXLLMHeadModel"],
        attn_type=0,
        eos_token_id=0,
        init="normal",
        init_range=0.01,
        model_type="transfo-xl",
        sample_softmax=-1,
        torch_dtype="float32",
    )
