"""Parameter names and shapes of the TensorFlow original, with our weights for each.

Every importer converts its checkpoint to this layout first; one function then assigns it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.layers.multi_head_attention import RelativeAttention


class Parameter(NamedTuple):
    """A parameter of the original and our weights that it fills."""

    shape: tuple[int, ...]
    weights: tuple[Any, ...]  # Keras variables
    cut: Callable[[np.ndarray], list[np.ndarray]]  # value -> values of the weights


def config_from_hparams(
    hparams: Mapping[str, Any], *, span: int, **own: Any
) -> TransformerXLConfig:
    """Returns the architecture of the flags that both originals share, under their names.

    Args:
      hparams: values of the flags.
      span: attention span with `same_length`.
      **own: fields in which the originals differ.
    """
    clamp_len = hparams["clamp_len"]
    return TransformerXLConfig(
        vocab_size=hparams["n_token"],
        num_layers=hparams["n_layer"],
        d_model=hparams["d_model"],
        num_heads=hparams["n_head"],
        head_dim=hparams["d_head"],
        d_inner=hparams["d_inner"],
        mem_len=hparams["mem_len"],
        d_embed=hparams["d_embed"],
        cutoffs=tuple(hparams["cutoffs"]),
        div_val=hparams["div_val"],
        tie_projections=tuple(hparams["tie_projs"]),
        tie_output_projection=not hparams.get("own_proj", False),
        dropout=hparams["dropout"],
        attention_dropout=hparams["dropatt"],
        clamp_len=clamp_len if clamp_len > 0 else None,
        attention_span=span if hparams["same_length"] else None,
        **own,
    )


def parameters(model) -> dict[str, Parameter]:
    """Returns all parameters of `model` (a TransformerXL) under the original's names.

    Shapes: attention's `qkv` kernel holds the thirds q | k | v, head-major inside each.
    """
    found: dict[str, Parameter] = {}
    _add_embedding(model, found)
    _ADD_POSITIONS[model.config.position](model, found)
    for layer, block in enumerate(model.blocks):
        _add_block(f"layer_{layer}", block, found)
    _add_softmax(model, found)
    return found


def assign(
    model, values: Mapping[str, np.ndarray], label: Callable[[str], str] = lambda name: name
) -> int:
    """Assigns every weight of `model` from values under the original's names.

    Args:
      model: a TransformerXL.
      values: of all parameters.
      label: returns a parameter's name for messages.

    Returns:
      The number of elements assigned.

    Raises:
      ValueError: a parameter is missing, unused or of another shape; names all such.
    """
    expected = parameters(model)
    missing = sorted(label(name) for name in expected.keys() - values.keys())
    unused = sorted(label(name) for name in values.keys() - expected.keys())
    if missing or unused:
        raise ValueError(
            f"checkpoint must fit the model, got missing: {', '.join(missing) or 'none'}; "
            f"unused: {', '.join(unused) or 'none'}"
        )
    wrong = [
        f"{label(name)} must have shape {parameter.shape}, got {values[name].shape}"
        for name, parameter in expected.items()
        if values[name].shape != parameter.shape
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    total = 0
    for name, parameter in expected.items():
        parts = parameter.cut(np.asarray(values[name]))
        for weight, part in zip(parameter.weights, parts, strict=True):
            weight.assign(part.reshape(weight.shape))
        total += values[name].size
    return total


def values_of(model) -> dict[str, np.ndarray]:
    """Returns the parameters of `model` under the original's names, float32; undoes `assign`."""
    return {name: _joined(parameter) for name, parameter in parameters(model).items()}


def _joined(parameter: Parameter) -> np.ndarray:
    """Undoes `cut`, a permutation: cutting the indices gives the target of each element."""
    parts = [np.asarray(tf.convert_to_tensor(weight), np.float32) for weight in parameter.weights]
    if len(parts) == 1:
        return parts[0].reshape(parameter.shape)
    size = math.prod(parameter.shape)
    indices = parameter.cut(np.arange(size).reshape(parameter.shape))
    value = np.empty(size, np.float32)
    for index, part in zip(indices, parts, strict=True):
        value[index.ravel()] = part.ravel()
    return value.reshape(parameter.shape)


def _add(found, name, shape, *weights, cut=None):
    found[name] = Parameter(tuple(shape), weights, cut or (lambda value: [value]))


def _add_embedding(model, found):
    embedding = model.embedding
    split = len(embedding.tables) > 1
    for i, (table, projection) in enumerate(
        zip(embedding.tables, embedding.projections, strict=True)
    ):
        scope = f"adaptive_embed/cutoff_{i}" if split else "adaptive_embed"
        _add(found, f"{scope}/lookup_table", table.shape, table)
        if projection is not None:
            _add(found, f"{scope}/proj_W", projection.shape, projection)


def _add_biases(model, found):
    heads = (model.config.num_heads, model.config.head_dim)
    for theirs, ours in (("r_w_bias", "content"), ("r_r_bias", "position")):
        if model.biases is not None:
            _add(found, theirs, heads, getattr(model.biases, ours))
        else:
            weights = [getattr(block.attention, f"{ours}_bias") for block in model.blocks]
            _add(found, theirs, (len(weights), *heads), *weights, cut=list)


def _add_distance_tables(model, found):
    """Adds the position parameters of the PyTorch original's attn_type 1."""
    attentions = [block.attention for block in model.blocks]
    for theirs, ours in (
        ("r_w_bias", "content_bias"),
        ("r_emb", "distance_table"),
        ("r_bias", "distance_bias"),
    ):
        weights = [getattr(attention, ours) for attention in attentions]
        _add(found, theirs, (len(weights), *weights[0].shape), *weights, cut=list)


def _add_position_tables(model, found):
    """Adds the position tables of the PyTorch original's attn_type 3, rows of model width."""
    config = model.config
    weights = [table.table for table in model.position_tables]
    heads = (config.num_heads, config.head_dim)
    _add(found, "r_emb", (len(weights), config.num_positions, *heads), *weights, cut=list)


_ADD_POSITIONS = {
    "xl": _add_biases,
    "shaw": _add_distance_tables,
    "absolute": lambda model, found: None,
    "absolute_per_layer": _add_position_tables,
}


def _add_block(scope, block, found):
    attention, net = block.attention, block.feed_forward
    d_model, heads, width = attention.query_kernel.shape
    merged = heads * width
    _add(
        found,
        f"{scope}/rel_attn/qkv/kernel",
        (d_model, 3 * merged),
        attention.query_kernel,
        attention.key_kernel,
        attention.value_kernel,
        cut=lambda value: np.split(value, 3, axis=1),
    )
    if isinstance(attention, RelativeAttention):
        _add(found, f"{scope}/rel_attn/r/kernel", (d_model, merged), attention.position_kernel)
    _add(found, f"{scope}/rel_attn/o/kernel", (merged, d_model), attention.output_kernel)
    _add(found, f"{scope}/ff/layer_1/kernel", net.inner_kernel.shape, net.inner_kernel)
    _add(found, f"{scope}/ff/layer_1/bias", net.inner_bias.shape, net.inner_bias)
    _add(found, f"{scope}/ff/layer_2/kernel", net.outer_kernel.shape, net.outer_kernel)
    _add(found, f"{scope}/ff/layer_2/bias", net.outer_bias.shape, net.outer_bias)
    for part, norm in (("rel_attn", block.attention_norm), ("ff", block.feed_forward_norm)):
        _add(found, f"{scope}/{part}/LayerNorm/gamma", (d_model,), norm.gamma)
        _add(found, f"{scope}/{part}/LayerNorm/beta", (d_model,), norm.beta)


def _add_softmax(model, found):
    softmax = model.softmax
    split = len(softmax.tables) > 1
    for i, table in enumerate(softmax.tables):  # empty if tied to the embedding
        scope = f"adaptive_softmax/cutoff_{i}" if split else "adaptive_softmax"
        _add(found, f"{scope}/lookup_table", table.shape, table)
    if not model.config.cutoffs:
        _add(found, "adaptive_softmax/bias", softmax.biases[0].shape, softmax.biases[0])
        (projection,) = softmax.projections
        if projection is not None:  # in PyTorch codes only
            _add(found, "adaptive_softmax/proj", projection.shape, projection)
        return
    for i, (bias, projection) in enumerate(zip(softmax.biases, softmax.projections, strict=True)):
        scope = f"adaptive_softmax/cutoff_{i}"
        _add(found, f"{scope}/b", bias.shape, bias)
        if projection is not None:
            _add(found, f"{scope}/proj", projection.shape, projection)
    scope = "adaptive_softmax/cutoff_0"
    _add(found, f"{scope}/cluster_W", softmax.cluster_weight.shape, softmax.cluster_weight)
    _add(found, f"{scope}/cluster_b", softmax.cluster_bias.shape, softmax.cluster_bias)
