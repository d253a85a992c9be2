"""XLNet's checkpoints: of the original TensorFlow code, and of Hugging Face's classes."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import tensorflow as tf
from absl import logging

from txl_tf.configs.layer_specs import DenseNet
from txl_tf.configs.model import XLNetConfig
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.conversion import huggingface, tensors, tf1
from txl_tf.data import files

CONFIG = XLNetConfig
_SCOPE, _BODY = "model/", "transformer."
_TORCH_FILES = (".safetensors", ".bin", ".pt")
_ALIASES = ("lm_loss.weight",)  # of the embedding
_STACKED = {  # variables of the original that hold all layers
    "r_w_bias": "rel_attn.r_w_bias",
    "r_r_bias": "rel_attn.r_r_bias",
    "r_s_bias": "rel_attn.r_s_bias",
    "seg_embed": "rel_attn.seg_embed",
}
_OF_ORIGINAL = {  # its other variables
    "word_embedding/lookup_table": "word_embedding.weight",
    "mask_emb/mask_emb": "mask_emb",
    "lm_loss/bias": "lm_loss.bias",
}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
_SIZES = ("n_token", "n_layer", "d_model", "n_head", "d_head", "d_inner")


def read(checkpoint: str) -> tensors.Source:
    """Reads a folder or a file of Hugging Face's, or a checkpoint of the original by its prefix.

    The tensors have Hugging Face's names without "transformer."; heads of tasks are left out.

    Raises:
      ValueError: the files are missing, truncated, or not of an XLNet.
    """
    stored: dict[str, str] = {}
    if checkpoint.endswith(_TORCH_FILES) or huggingface.has_weights(checkpoint):
        state = huggingface.read(checkpoint).tensors
        named = {name.removeprefix(_BODY): value for name, value in state.items()}
        step = 0
    else:
        source = tf1.read(checkpoint, _SCOPE)
        named, step = _from_original(source.tensors), source.step
        stored = {"ff_activation": "gelu_new"}  # its gelu is the approximation
    found = {n: v for n, v in named.items() if _is_of_model(n) and n not in _ALIASES}
    if "word_embedding.weight" not in found:
        raise ValueError(
            f"checkpoint must hold the tensors of an XLNet, got {', '.join(sorted(named)[:3])}"
        )
    return tensors.Source(found, step, stored)


def _is_of_model(name: str) -> bool:
    return name.startswith(("word_embedding.", "layer.", "lm_loss.")) or name == "mask_emb"


def _from_original(variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the original's variables under Hugging Face's names, in its layout."""
    found: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        short = name.removeprefix(_SCOPE).removeprefix("transformer/")
        if short in _STACKED:
            for layer, part in enumerate(value):
                found[f"layer.{layer}.{_STACKED[short]}"] = part
        elif match := re.fullmatch(r"layer_(\d+)/(rel_attn|ff)/(\w+)/(\w+)", short):
            index, part, module, kind = match.groups()
            name = f"layer.{index}.{part}.{_module(part, module, kind)}"
            found[name] = value.T if part == "ff" and kind == "kernel" else value
        else:
            found[_OF_ORIGINAL.get(short, short)] = value
    return found


def _module(part: str, module: str, kind: str) -> str:
    if module == "LayerNorm":
        return {"gamma": "layer_norm.weight", "beta": "layer_norm.bias"}[kind]
    if part == "rel_attn":
        return module  # a kernel
    return f"{module}.{'weight' if kind == 'kernel' else kind}"


def config(source: tensors.Source, given: Mapping[str, Any], base: Config | None) -> Config:
    """Returns the config of a checkpoint: sizes from its tensors, the rest from flags.

    A single rate is that of all dropouts, as in Hugging Face's code. `reuse_len` belongs to data
    whose segments overlap, and is left out.

    Raises:
      ValueError: a flag contradicts the tensors, or its value has no equivalent.
    """
    flags = {**source.hparams, **given}
    sizes = _sizes(source.tensors)
    for name, size in sizes.items():
        if flags.get(name, size) != size:
            raise ValueError(f"{name} must be {size} as in the tensors, got {flags[name]}")
    activation = flags.get("ff_activation", "gelu")
    if "ff_activation" in source.hparams:
        activation = "gelu_new" if activation == "gelu" else activation
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"ff_activation must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}"
        )
    attn_type = flags.get("attn_type", "bi")
    if attn_type not in ("bi", "uni"):
        raise ValueError(f"attn_type must be bi or uni, got {attn_type!r}")
    if flags.get("reuse_len"):
        logging.warning("reuse_len %d is left out: set it where it is used", flags["reuse_len"])
    dropout, clamp_len = flags.get("dropout", 0.1), flags.get("clamp_len", -1)
    mem_len = flags.get("mem_len", 0)
    model = XLNetConfig(
        vocab_size=sizes["n_token"],
        num_layers=sizes["n_layer"],
        d_model=sizes["d_model"],
        num_heads=sizes["n_head"],
        head_dim=sizes["d_head"],
        d_inner=sizes["d_inner"],
        dropout=dropout,
        attention_dropout=flags.get("dropatt", dropout),
        feed_forward=(f"dense(activation='{_ACTIVATIONS[activation]}')",),
        layer_norm_epsilon=flags.get("layer_norm_epsilon", 1e-12),
        clamp_len=clamp_len if clamp_len > 0 else None,
        mem_len=mem_len,
        bidirectional=attn_type == "bi",
        attention_span=mem_len + 1 if flags.get("same_length") else None,
    )
    if base is None:
        return Config(model=model, train=TrainConfig(objective="permutation"))
    return dataclasses.replace(base, model=model)


def _sizes(state: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Returns the sizes that the shapes show, under the original's names."""
    layers = {m[1] for m in map(re.compile(r"layer\.(\d+)\.").match, state) if m}
    expected = ("layer.0.rel_attn.q", "layer.0.ff.layer_1.bias")
    missing = [name for name in expected if name not in state]
    if missing:
        raise ValueError(f"checkpoint must hold {', '.join(missing)}, got none")
    (vocab_size, d_model), query = state["word_embedding.weight"].shape, state[expected[0]].shape
    if len(query) != 3:
        raise ValueError(f"{expected[0]} must have 3 axes, got shape {query}")
    inner = state[expected[1]].shape[0]
    values = (vocab_size, len(layers), d_model, query[1], query[2], inner)
    return dict(zip(_SIZES, values, strict=True))


class Parameter(NamedTuple):
    """A weight, and the axes and shape of a parameter as Hugging Face has it."""

    weight: Any
    axes: tuple[int, ...] | None = None  # transposes theirs to ours
    shape: tuple[int, ...] | None = None  # of theirs, if it has other axes

    def to_ours(self, value: np.ndarray) -> np.ndarray:
        """Returns a value of theirs for the weight."""
        value = value if self.axes is None else value.transpose(self.axes)
        return value if self.shape is None else value.reshape(value.shape[1:])

    def to_theirs(self) -> np.ndarray:
        """Returns the value of the weight in their layout, float32."""
        value = np.asarray(tf.convert_to_tensor(self.weight), np.float32)
        value = value if self.axes is None else value.transpose(np.argsort(self.axes))
        return np.ascontiguousarray(value if self.shape is None else value.reshape(self.shape))


def parameters(model) -> dict[str, Parameter]:
    """Returns the parameters of an XLNet by Hugging Face's names, without "transformer."."""
    mask = model.query_embedding.tables[0]
    found = {
        "word_embedding.weight": Parameter(model.embedding.tables[0]),
        "mask_emb": Parameter(mask, shape=(1, *mask.shape)),
        "lm_loss.bias": Parameter(model.softmax.biases[0]),
    }
    for index, block in enumerate(model.blocks):
        attention, net = block.attention, block.feed_forward
        own = {
            "rel_attn.q": Parameter(attention.query_kernel),
            "rel_attn.k": Parameter(attention.key_kernel),
            "rel_attn.v": Parameter(attention.value_kernel),
            "rel_attn.r": Parameter(attention.position_kernel),
            "rel_attn.o": Parameter(attention.output_kernel, (1, 2, 0)),
            "rel_attn.r_w_bias": Parameter(attention.content_bias),
            "rel_attn.r_r_bias": Parameter(attention.position_bias),
            "rel_attn.r_s_bias": Parameter(attention.segment_bias),
            "rel_attn.seg_embed": Parameter(attention.segment_embedding),
            "rel_attn.layer_norm.weight": Parameter(block.attention_norm.gamma),
            "rel_attn.layer_norm.bias": Parameter(block.attention_norm.beta),
            "ff.layer_1.weight": Parameter(net.inner_kernel, (1, 0)),
            "ff.layer_1.bias": Parameter(net.inner_bias),
            "ff.layer_2.weight": Parameter(net.outer_kernel, (1, 0)),
            "ff.layer_2.bias": Parameter(net.outer_bias),
            "ff.layer_norm.weight": Parameter(block.feed_forward_norm.gamma),
            "ff.layer_norm.bias": Parameter(block.feed_forward_norm.beta),
        }
        found |= {f"layer.{index}.{name}": parameter for name, parameter in own.items()}
    return found


def assign(source: tensors.Source, given: Mapping[str, Any], model) -> int:
    """Assigns every weight of an XLNet, and logs the mapping; returns the number of elements.

    The bias of the output may be missing, as in a model without it: it is 0 then.

    Raises:
      ValueError: a parameter is missing, unused or of another shape; names all such.
    """
    del given  # names are unambiguous
    expected = parameters(model)
    missing = sorted(expected.keys() - source.tensors.keys() - {"lm_loss.bias"})
    unused = sorted(source.tensors.keys() - expected.keys())
    if missing or unused:
        raise ValueError(
            f"checkpoint must fit the model, got missing: {', '.join(missing) or 'none'}; "
            f"unused: {', '.join(unused) or 'none'}"
        )
    shapes = {name: parameter.to_theirs().shape for name, parameter in expected.items()}
    wrong = [
        f"{name} must have shape {shapes[name]}, got {value.shape}"
        for name, value in source.tensors.items()
        if value.shape != shapes[name]
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    for name, value in source.tensors.items():
        expected[name].weight.assign(expected[name].to_ours(value))
    moves = [
        ((name,), value.shape, (expected[name].weight.path.partition("/")[2],))
        for name, value in source.tensors.items()
    ]
    for line in tensors.summarise_mapping(moves):
        logging.info("%s", line)
    return sum(value.size for value in source.tensors.values())


def unsupported_options(config: XLNetConfig) -> list[str]:
    """Returns the options of `config` that Hugging Face's code lacks."""
    options = [f"attention {spec}" for spec in config.attention if spec != "dense"]
    if len(set(config.feed_forward)) > 1:
        options.append(f"feed_forward {', '.join(config.feed_forward)}")
    if config.pre_norm:
        options.append("pre_norm")
    if config.num_heads * config.head_dim != config.d_model:
        options.append(f"{config.num_heads} heads of {config.head_dim}, not d_model in all")
    if config.bidirectional and config.attention_span is not None:
        options.append("attention_span of a bidirectional model")
    return options


def known_differences(config: XLNetConfig) -> list[str]:
    """Returns the computations in which Hugging Face's code differs for these weights."""
    lines = []
    if config.attention_span not in (None, config.mem_len + 1):
        lines.append(f"same_length sees mem_len + 1 keys there, here {config.attention_span}")
    if config.attention_dropout != config.dropout:
        lines.append(f"dropout {config.dropout} is also that of attention weights there")
    return lines


def write(folder: str, model, step: int) -> list[tensors.Move]:
    """Writes config.json and model.safetensors in the format of `save_pretrained`.

    Returns the names of the weights here, their shapes there, and their names there.
    """
    del step  # the format has no step
    found = parameters(model)
    state = {_theirs(name): parameter.to_theirs() for name, parameter in found.items()}
    data = safetensors.numpy.save(state, {"format": "pt"})
    files.write_bytes(os.path.join(folder, "model.safetensors"), data)
    text = json.dumps(_config_json(model.config), indent=2, sort_keys=True) + "\n"
    files.write_bytes(os.path.join(folder, "config.json"), text.encode())
    return [
        ((parameter.weight.path.partition("/")[2],), state[_theirs(name)].shape, (_theirs(name),))
        for name, parameter in found.items()
    ]


def _theirs(name: str) -> str:
    return name if name.startswith("lm_loss.") else _BODY + name


def _config_json(config: XLNetConfig) -> dict[str, Any]:
    net = config.feed_forward_specs[0]
    activation = net.activation if isinstance(net, DenseNet) else ""
    return dict(
        architectures=["XLNetLMHeadModel"],
        attn_type="bi" if config.bidirectional else "uni",
        bi_data=False,
        clamp_len=config.clamp_len or -1,
        d_head=config.head_dim,
        d_inner=config.d_inner,
        d_model=config.d_model,
        dropout=config.dropout,
        ff_activation={ours: theirs for theirs, ours in _ACTIVATIONS.items()}[activation],
        initializer_range=config.init_std,
        layer_norm_eps=config.layer_norm_epsilon,
        mem_len=config.mem_len or None,
        model_type="xlnet",
        n_head=config.num_heads,
        n_layer=config.num_layers,
        reuse_len=config.reuse_len,
        same_length=config.attention_span is not None,
        torch_dtype="float32",
        untie_r=True,
        vocab_size=config.vocab_size,
    )
