"""Inference of the original's flags from the shapes of a checkpoint in its layout."""

import itertools
import re
from collections.abc import Mapping
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]

# Tables and biases that distinguish attn_type 0 to 3 of the PyTorch original.
_ATTENTION = {
    (True, False, False): 0,  # r_r_bias
    (False, True, True): 1,  # r_emb and r_bias
    (False, False, False): 2,
    (False, True, False): 3,  # r_emb
}


def hparams(shapes: Shapes, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags of a checkpoint: from its shapes, else `given`, else the defaults.

    Args:
      shapes: of the parameters, named as in `original_layout.parameters`.
      given: flags by the names of `hparams.FLAGS`.

    Raises:
      ValueError: a required tensor is missing, a flag contradicts the shapes, or a flag that they
        do not determine is missing; names it.
    """
    found = _layer_flags(shapes, given) | _vocabulary_flags(shapes, given)
    for name in found.keys() & given.keys():
        if _differ(name, given[name], found[name], shapes):
            evidence = f" ({_EVIDENCE[name]})" if name in _EVIDENCE else ""
            raise ValueError(
                f"{name} must be {_shown(found[name])}, as in the tensors{evidence}, "
                f"got {_shown(given[name])}"
            )
    if given.get("mem_len") is None:
        raise ValueError(
            "mem_len must be given, by itself, a config or a preset: tensors do not determine it"
        )
    return _DEFAULTS | dict(given) | found


_EVIDENCE = dict(
    attn_type="r_w_bias, r_r_bias, r_emb, r_bias",
    cutoffs="adaptive_embed/cutoff_*/lookup_table or adaptive_softmax/cutoff_*/b",
    div_val="adaptive_embed/cutoff_*/lookup_table",
    n_head="r_w_bias, r_emb",
    proj_same_dim="adaptive_embed/cutoff_*/proj_W",
    tie_projs="adaptive_softmax/cutoff_*/proj",
    tie_weight="adaptive_softmax/*/lookup_table",
    untie_r="r_w_bias, r_r_bias",
)
_DEFAULTS = dict(
    clamp_len=-1, same_length=False, pre_lnorm=False, dropout=0.1, dropatt=0.0, ext_len=0
)


def _layer_flags(shapes: Shapes, given: Mapping[str, Any]) -> dict[str, Any]:
    layers = [int(m[1]) for m in (re.match(r"layer_(\d+)/", name) for name in shapes) if m]
    if not layers:
        raise ValueError(f"checkpoint must hold layers of a Transformer-XL, got {_sample(shapes)}")
    merged, d_model = _shape(shapes, "layer_0/rel_attn/o/kernel", 2)
    found: dict[str, Any] = dict(
        n_layer=max(layers) + 1,
        d_model=d_model,
        d_inner=_shape(shapes, "layer_0/ff/layer_1/kernel", 2)[1],
        attn_type=_attention(shapes),
    )
    biases, table = shapes.get("r_w_bias"), shapes.get("r_emb")
    if biases is not None:
        heads, width = biases[-2:]
        found["untie_r"] = len(biases) == 3
    elif table is not None and len(table) == 4:
        heads, width = table[-2:]
    elif "n_head" in given:
        heads, width = given["n_head"], merged // given["n_head"]
    else:
        raise ValueError(
            "num_heads must be given, by itself or as n_head of a config: tensors only determine "
            f"that heads times width is {merged}"
        )
    if heads * width != merged:
        evidence = next((name for name in ("r_w_bias", "r_emb") if name in shapes), "n_head")
        raise ValueError(
            f"layer_0/rel_attn/o/kernel must have a row for each of {heads} heads x {width} units, "
            f"as in {evidence}, got {merged}"
        )
    if table is not None:
        found["num_positions"] = table[1]
    return found | dict(n_head=heads, d_head=width)


def _attention(shapes: Shapes) -> int:
    marks = tuple(name in shapes for name in ("r_r_bias", "r_emb", "r_bias"))
    if marks not in _ATTENTION:
        present = [name for name in ("r_w_bias", "r_r_bias", "r_emb", "r_bias") if name in shapes]
        raise ValueError(
            "checkpoint must hold r_w_bias and r_r_bias, or those of another attn_type, "
            f"got {', '.join(present) or 'none of them'}"
        )
    return _ATTENTION[marks]


def _vocabulary_flags(shapes: Shapes, given: Mapping[str, Any]) -> dict[str, Any]:
    split = "adaptive_embed/cutoff_0/lookup_table" in shapes
    scope = "adaptive_embed/cutoff_{}" if split else "adaptive_embed"
    tables = [_shape(shapes, scope.format(0) + "/lookup_table", 2)]
    for i in itertools.count(1):
        shape = shapes.get(f"{scope.format(i)}/lookup_table")
        if not split or shape is None:
            break
        tables.append(shape)
    sizes = [rows for rows, _ in tables]
    if not split and "adaptive_softmax/bias" not in shapes:
        sizes = _cluster_sizes(shapes)
    d_model = shapes["layer_0/rel_attn/o/kernel"][1]
    clusters = range(len(sizes))
    # Whether each cluster's embedding is projected, so that its softmax may be, too.
    projected = [f"{scope.format(i)}/proj_W" in shapes for i in clusters]
    owned = [f"adaptive_softmax/cutoff_{i}/proj" in shapes for i in clusters]
    found = dict(
        n_token=sum(rows for rows, _ in tables),
        d_embed=tables[0][1],
        cutoffs=tuple(itertools.accumulate(sizes))[:-1],
        div_val=_div_val([width for _, width in tables], given.get("div_val")),
        tie_projs=tuple(p and not own for p, own in zip(projected, owned, strict=True)),
        tie_weight=not any(re.match(r"adaptive_softmax/.*lookup_table", name) for name in shapes),
    )
    if len(sizes) == 1:  # the TensorFlow original ignores the flag
        found["own_proj"] = "adaptive_softmax/proj" in shapes
        found["tie_projs"] = tuple(given.get("tie_projs") or (False,))
    same = [projected[i] for i, (_, width) in enumerate(tables) if split and width == d_model]
    if same:
        found["proj_same_dim"] = any(same)
    return found


def _cluster_sizes(shapes: Shapes) -> list[int]:
    """Returns the number of words of each cluster of a single table."""
    sizes = []
    for i in itertools.count():
        shape = shapes.get(f"adaptive_softmax/cutoff_{i}/b")
        if shape is None:
            break
        sizes.append(shape[0])
    if not sizes:
        raise ValueError(
            "checkpoint must hold adaptive_softmax/bias or adaptive_softmax/cutoff_0/b, got neither"
        )
    return sizes


def _div_val(widths: list[int], given: int | None) -> int:
    """Returns the smallest divisor that gives these widths, or `given` if it does."""
    if len(widths) == 1:
        return 1
    fits = [
        divisor
        for divisor in range(2, widths[0] + 1)
        if all(widths[0] // divisor**i == width for i, width in enumerate(widths))
    ]
    if not fits:
        raise ValueError(f"embedding widths must decrease by an integer factor, got {widths}")
    return given if given in fits else fits[0]


def _shape(shapes: Shapes, name: str, rank: int) -> tuple[int, ...]:
    if name not in shapes:
        raise ValueError(f"checkpoint must hold {name}, got {_sample(shapes)}")
    if len(shapes[name]) != rank:
        raise ValueError(f"{name} must have {rank} axes, got shape {list(shapes[name])}")
    return shapes[name]


def _sample(shapes: Shapes) -> str:
    return ", ".join(sorted(shapes)[:3]) + (", ..." if len(shapes) > 3 else "")


def _differ(name: str, given: Any, found: Any, shapes: Shapes) -> bool:
    if name != "tie_projs":
        return (tuple(given) if isinstance(given, list | tuple) else given) != found
    # One flag per cluster, the last repeated; meaningless without projections.
    flags = [given[min(i, len(given) - 1)] for i in range(len(found))]
    return any(
        flag != is_tied and (is_tied or f"adaptive_softmax/cutoff_{i}/proj" in shapes)
        for i, (flag, is_tied) in enumerate(zip(flags, found, strict=True))
    )


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, list | tuple) else str(value)
