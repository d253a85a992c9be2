"""What the shapes of a checkpoint in the original's layout reveal, as flags of the original."""

import itertools
import re
from collections.abc import Mapping
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]

# Of the PyTorch original's attn_type 0 to 3: the tables and biases that tell them apart.
_ATTENTION = {
    (True, False, False): 0,  # r_r_bias
    (False, True, True): 1,  # r_emb and r_bias
    (False, False, False): 2,
    (False, True, False): 3,  # r_emb
}


def hparams(shapes: Shapes, given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of a checkpoint: those its shapes reveal, then `given`, then the defaults.

    Args:
      shapes: of the parameters, under the names of `original.parameters`.
      given: flags by the names of `hparams.FLAGS`.

    Raises:
      ValueError: a tensor that tells something is missing, a flag contradicts the shapes, or a flag
        that they cannot tell is not given; names it.
    """
    found = _of_layers(shapes, given) | _of_words(shapes, given)
    for name in found.keys() & given.keys():
        if _differ(name, given[name], found[name], shapes):
            told_by = f" ({_TOLD_BY[name]})" if name in _TOLD_BY else ""
            raise ValueError(
                f"{name} must be {_shown(found[name])}, as the tensors have it{told_by}, "
                f"got {_shown(given[name])}"
            )
    if given.get("mem_len") is None:
        raise ValueError(
            "mem_len must be given, by itself, a config or a preset: the tensors do not tell it"
        )
    return _DEFAULTS | dict(given) | found


_TOLD_BY = dict(
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


def _of_layers(shapes: Shapes, given: Mapping[str, Any]) -> dict[str, Any]:
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
            "num_heads must be given, by itself or as n_head of a config: the tensors only tell "
            f"that heads times width is {merged}"
        )
    if heads * width != merged:
        teller = next((name for name in ("r_w_bias", "r_emb") if name in shapes), "n_head")
        raise ValueError(
            f"layer_0/rel_attn/o/kernel must have as many rows as {heads} heads of width {width}, "
            f"as {teller} has it, got {merged}"
        )
    if table is not None:
        found["num_positions"] = table[1]
    return found | dict(n_head=heads, d_head=width)


def _attention(shapes: Shapes) -> int:
    marks = tuple(name in shapes for name in ("r_r_bias", "r_emb", "r_bias"))
    if marks not in _ATTENTION:
        present = [name for name in ("r_w_bias", "r_r_bias", "r_emb", "r_bias") if name in shapes]
        raise ValueError(
            "checkpoint must hold r_w_bias and r_r_bias, or what another attn_type has, "
            f"got {', '.join(present) or 'none of them'}"
        )
    return _ATTENTION[marks]


def _of_words(shapes: Shapes, given: Mapping[str, Any]) -> dict[str, Any]:
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
    # Whether a cluster's embedding is projected, and so whether its softmax may be.
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
    if len(sizes) == 1:  # the TensorFlow original does not read the flag
        found["own_proj"] = "adaptive_softmax/proj" in shapes
        found["tie_projs"] = tuple(given.get("tie_projs") or (False,))
    same = [projected[i] for i, (_, width) in enumerate(tables) if split and width == d_model]
    if same:
        found["proj_same_dim"] = any(same)
    return found


def _cluster_sizes(shapes: Shapes) -> list[int]:
    """How many words each cluster of a single table has."""
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
    """The least divisor that gives these widths; `given` if it does."""
    if len(widths) == 1:
        return 1
    fits = [
        divisor
        for divisor in range(2, widths[0] + 1)
        if all(widths[0] // divisor**i == width for i, width in enumerate(widths))
    ]
    if not fits:
        raise ValueError(f"widths of embedding tables must fall by a whole factor, got {widths}")
    return given if given in fits else fits[0]


def _shape(shapes: Shapes, name: str, rank: int) -> tuple[int, ...]:
    if name not in shapes:
        raise ValueError(f"checkpoint must hold {name}, got none; it has {_sample(shapes)}")
    if len(shapes[name]) != rank:
        raise ValueError(f"{name} must have {rank} axes, got shape {list(shapes[name])}")
    return shapes[name]


def _sample(shapes: Shapes) -> str:
    return ", ".join(sorted(shapes)[:3]) + (", ..." if len(shapes) > 3 else "")


def _differ(name: str, given: Any, found: Any, shapes: Shapes) -> bool:
    if name != "tie_projs":
        return (tuple(given) if isinstance(given, list | tuple) else given) != found
    # A flag a cluster, the last one repeated; it says nothing where nothing is projected.
    said = [given[min(i, len(given) - 1)] for i in range(len(found))]
    return any(
        say != is_tied and (is_tied or f"adaptive_softmax/cutoff_{i}/proj" in shapes)
        for i, (say, is_tied) in enumerate(zip(said, found, strict=True))
    )


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, list | tuple) else str(value)
