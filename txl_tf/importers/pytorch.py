"""Weights of the original PyTorch code, from a .safetensors file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from txl_tf.config import TransformerXLConfig
from txl_tf.importers import original

_RECOMPUTED = "pos_emb.inv_freq"


def config_from_hparams(hparams: Mapping[str, Any]) -> TransformerXLConfig:
    """The architecture that the original builds from its flags, by the names it gives them.

    Its LayerNorm has epsilon 1e-5, its initial memory is empty, its u and v are tied, and its
    `same_length` lets a query see mem_len keys.

    Raises:
      ValueError: `attn_type` is not 0, the paper's attention.
    """
    if hparams["attn_type"] != 0:
        raise ValueError(f"attn_type must be 0 (the paper's attention), got {hparams['attn_type']}")
    return original.config_from_hparams(
        hparams,
        span=hparams["mem_len"],
        pre_norm=hparams["pre_lnorm"],
        layer_norm_epsilon=1e-5,
    )


def load_weights(model, path: str) -> int:
    """Assigns a .safetensors file to `model`; returns the number of elements.

    Raises:
      ValueError: a tensor is missing, left over or of another shape.
    """
    return original.assign(model, to_original(safetensors.numpy.load_file(path), model))


def to_original(state: Mapping[str, np.ndarray], model) -> dict[str, np.ndarray]:
    """Renames a state dict that belongs to `model` into the layout of the TensorFlow original.

    Linear weights and projections are transposed; the rows of the cluster weights are turned
    round, since PyTorch counts the clusters' columns from the end; aliases of tied tables and
    projections must equal what they alias and are dropped.

    Raises:
      ValueError: an alias differs from its table.
    """
    split = len(model.embedding.tables) > 1
    found: dict[str, np.ndarray] = {}
    for name, value in state.items():
        scope, _, rest = name.partition(".")
        if scope == "layers":
            layer, _, part = rest.partition(".")
            found[f"layer_{layer}/{_BLOCK.get(part, part)}"] = value.T if value.ndim == 2 else value
        elif scope == "word_emb":
            kind, i = rest.removesuffix(".weight").split(".")
            cluster = f"cutoff_{i}/" if split else ""
            table = kind == "emb_layers"
            found[f"adaptive_embed/{cluster}{'lookup_table' if table else 'proj_W'}"] = (
                value if table else value.T
            )
        elif scope == "crit":
            _add_softmax(rest, value, state, model.softmax, found)
        elif name != _RECOMPUTED:
            found[name] = value
    return found


_BLOCK = {
    "dec_attn.qkv_net.weight": "rel_attn/qkv/kernel",
    "dec_attn.r_net.weight": "rel_attn/r/kernel",
    "dec_attn.o_net.weight": "rel_attn/o/kernel",
    "dec_attn.layer_norm.weight": "rel_attn/LayerNorm/gamma",
    "dec_attn.layer_norm.bias": "rel_attn/LayerNorm/beta",
    "pos_ff.CoreNet.0.weight": "ff/layer_1/kernel",
    "pos_ff.CoreNet.0.bias": "ff/layer_1/bias",
    "pos_ff.CoreNet.3.weight": "ff/layer_2/kernel",
    "pos_ff.CoreNet.3.bias": "ff/layer_2/bias",
    "pos_ff.layer_norm.weight": "ff/LayerNorm/gamma",
    "pos_ff.layer_norm.bias": "ff/LayerNorm/beta",
}


def _add_softmax(rest, value, state, softmax, found):
    scope = "adaptive_softmax/"
    if rest == "cluster_weight":
        found[f"{scope}cutoff_0/cluster_W"] = value[::-1]
    elif rest == "cluster_bias":
        found[f"{scope}cutoff_0/cluster_b"] = value[::-1]
    elif rest.startswith("out_projs."):
        i = rest.split(".")[1]
        if softmax.ties_projection(int(i)):
            _check_alias(f"crit.{rest}", value, state[f"word_emb.emb_projs.{i}"])
        else:
            found[f"{scope}cutoff_{i}/proj"] = value.T
    else:
        _, i, kind = rest.split(".")
        if kind == "weight":
            _check_alias(f"crit.{rest}", value, state[f"word_emb.emb_layers.{i}.weight"])
        elif not softmax.cutoffs:
            found[f"{scope}bias"] = value
        elif softmax.div_val > 1:
            found[f"{scope}cutoff_{i}/b"] = value
        else:  # one bias over the whole vocabulary
            for cluster, (start, end) in enumerate(softmax.bounds):
                found[f"{scope}cutoff_{cluster}/b"] = value[start:end]


def _check_alias(name, value, table):
    if not np.array_equal(value, table):
        raise ValueError(f"{name} must equal the embedding that it is tied to, got other values")
