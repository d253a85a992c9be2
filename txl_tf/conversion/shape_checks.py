"""Consistency checks of a checkpoint's parameters, before the architecture is inferred.

A damaged tensor is thus named itself, rather than an architecture inferred from it.
"""

import collections
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from txl_tf.conversion.shape_inference import Shapes
from txl_tf.conversion.torch_naming import BLOCK

_R_KERNEL = "rel_attn/r/kernel"  # only with relative positions of the paper
Label = Callable[[str], str]


def check(shapes: Shapes, given: Mapping[str, Any], label: Label) -> None:
    """Raises if parameters are missing, unknown or inconsistent; names all of them.

    Args:
      shapes: named as in `original_layout.parameters`; other names are unused.
      given: flags of the original; `tie_projs` determines which projections must be present.
      label: returns a parameter's name for messages.

    Raises:
      ValueError: a parameter is missing, unused or inconsistent.
    """
    missing = [label(name) for name in _missing(shapes, given.get("tie_projs"))]
    unused = [label(name) for name in shapes if not _is_known(name)]
    if missing or unused:
        raise ValueError(
            f"checkpoint must fit the model, got missing: {', '.join(missing) or 'none'}; "
            f"unused: {', '.join(unused) or 'none'}"
        )
    wrong = [*_odd_layers(shapes, label), *_odd_words(shapes, "tie_projs" in given, label)]
    if wrong:
        raise ValueError("; ".join(wrong))


def _is_known(name: str) -> bool:
    scope, _, rest = name.partition("/")
    if re.fullmatch(r"layer_\d+", scope):
        return rest in BLOCK.values()
    return scope in _POSITIONS or bool(re.fullmatch(_WORDS, name))


_POSITIONS = ("r_w_bias", "r_r_bias", "r_emb", "r_bias")
_WORDS = (
    r"adaptive_embed/(cutoff_\d+/)?(lookup_table|proj_W)|adaptive_softmax/bias|"
    r"adaptive_softmax/(cutoff_\d+/)?(lookup_table|b|proj)|adaptive_softmax/cutoff_0/cluster_[Wb]"
)


def _missing(shapes: Shapes, ties: Sequence[bool] | None) -> Iterator[str]:
    yield from _missing_of_layers(shapes)
    split, clusters = _clusters(shapes)
    embeddings = [f"adaptive_embed/cutoff_{i}/" for i in range(clusters)]
    embeddings = embeddings if split else ["adaptive_embed/"]
    yield from _absent(shapes, *(f"{scope}lookup_table" for scope in embeddings))
    if clusters == 1:
        yield from _absent(shapes, "adaptive_softmax/bias")
        if "adaptive_softmax/proj" in shapes:
            yield from _absent(shapes, "adaptive_embed/proj_W")
        return
    scopes = [f"adaptive_softmax/cutoff_{i}/" for i in range(clusters)]
    yield from _absent(shapes, *(f"{scope}b" for scope in scopes))
    yield from _absent(shapes, f"{scopes[0]}cluster_W", f"{scopes[0]}cluster_b")
    for i, scope in enumerate(scopes):
        projection = f"{embeddings[i if split else 0]}proj_W"
        own = f"{scope}proj"
        if own in shapes:
            yield from _absent(shapes, projection)
        # By default no original ties the first cluster's.
        is_tied = i > 0 if ties is None else ties[min(i, len(ties) - 1)]
        if projection in shapes and not is_tied:
            yield from _absent(shapes, own)


def _missing_of_layers(shapes: Shapes) -> Iterator[str]:
    layers = _layers(shapes)
    is_usual = any(f"layer_{i}/{_R_KERNEL}" in shapes for i in layers)
    if not layers:
        raise ValueError(
            f"checkpoint must hold layers of a Transformer-XL, got {', '.join(sorted(shapes)[:3])}"
        )
    for i in range(max(layers) + 1):
        parts = [part for part in BLOCK.values() if is_usual or part != _R_KERNEL]
        yield from _absent(shapes, *(f"layer_{i}/{part}" for part in parts))
    if is_usual or "r_r_bias" in shapes:
        yield from _absent(shapes, "r_w_bias", "r_r_bias")
    elif "r_bias" in shapes or "r_w_bias" in shapes:
        yield from _absent(shapes, "r_w_bias", "r_emb", "r_bias")


def _absent(shapes: Shapes, *names: str) -> Iterator[str]:
    return (name for name in names if name not in shapes)


def _layers(shapes: Shapes) -> set[int]:
    matches = (re.match(r"layer_(\d+)/", name) for name in shapes)
    return {int(match[1]) for match in matches if match}


def _clusters(shapes: Shapes) -> tuple[bool, int]:
    """Returns whether each cluster has a table, and the number of clusters."""
    matches = [re.match(r"adaptive_(embed|softmax)/cutoff_(\d+)/", name) for name in shapes]
    kinds = [(match[1], int(match[2])) for match in matches if match]
    heads = [shapes.get(f"adaptive_softmax/cutoff_0/cluster_{x}", (0,))[0] for x in "Wb"]
    last = max((i for _, i in kinds), default=0)
    return any(kind == "embed" for kind, _ in kinds), 1 + max(last, min(heads))


def _odd_layers(shapes: Shapes, label: Label) -> Iterator[str]:
    """Yields parameters with other shapes than in other layers; of two layers, both."""
    layers = sorted(_layers(shapes))
    for part in BLOCK.values():
        by_layer = {i: shapes[n] for i in layers if (n := f"layer_{i}/{part}") in shapes}
        counts = collections.Counter(by_layer.values()).most_common()
        if len(counts) < 2:
            continue
        usual = counts[0][0] if counts[0][1] > counts[1][1] else None
        odd = [f"{label(f'layer_{i}/{part}')} {list(s)}" for i, s in by_layer.items() if s != usual]
        rule = f"must have the shape {list(usual)} of the other layers" if usual else "must agree"
        yield f"{' and '.join(odd)} {rule}"
    pair = [name for name in ("r_w_bias", "r_r_bias") if name in shapes]
    if len({shapes[name] for name in pair}) > 1:
        yield _must_agree(pair, shapes, label)
    for name, rank in (("r_w_bias", 3), ("r_r_bias", 3), ("r_emb", 4), ("r_bias", 3)):
        shape = shapes.get(name, ())
        if len(shape) == rank and shape[0] != len(layers):
            yield f"{label(name)} {list(shape)} must have {len(layers)} layers"


def _odd_words(shapes: Shapes, ties_given: bool, label: Label) -> Iterator[str]:
    """Yields parameters of a cluster that do not fit its table."""
    split, clusters = _clusters(shapes)
    outputs = [name for name in shapes if re.match(r"adaptive_softmax/.*lookup_table", name)]
    if 0 < len(outputs) < (clusters if split else 1):
        yield f"{', '.join(map(label, outputs))} must equal the embedding's, like the others"
    tails = [f"adaptive_softmax/cutoff_{i}/proj" for i in range(1, clusters)]
    own = [name for name in tails if name in shapes]
    if not ties_given and 0 < len(own) < len(tails):
        rest = ", ".join(label(name) for name in tails if name not in shapes)
        yield f"{', '.join(map(label, own))} must be tied to the embedding's like {rest}, or none"
    head = "adaptive_softmax/cutoff_0/cluster_"
    if clusters > 1:
        yield from _pair(shapes, label, f"{head}W", 0, f"{head}b", 0)
        if shapes[f"{head}W"][:1] != (clusters - 1,):
            yield f"{label(f'{head}W')} {list(shapes[f'{head}W'])} must have {clusters - 1} rows"
    for i in range(clusters if split else 1):
        scope = f"cutoff_{i}/" if split else ""
        table = f"adaptive_embed/{scope}lookup_table"
        projection = f"adaptive_embed/{scope}proj_W"
        yield from _pair(shapes, label, table, 1, projection, 0)
        width = shapes["layer_0/rel_attn/o/kernel"][-1:]
        if projection not in shapes and shapes[table][1:] != width:
            yield (
                f"{label(table)} {list(shapes[table])} must be as wide as the model, {width[0]}, "
                f"without {label(projection)}"
            )
        yield from _pair(shapes, label, table, 1, f"adaptive_softmax/{scope}proj", 0)
        if split:
            yield from _pair(shapes, label, table, 0, f"adaptive_softmax/{scope}b", 0)
        elif clusters == 1:
            yield from _pair(shapes, label, table, 0, "adaptive_softmax/bias", 0)
        else:
            biases = [f"adaptive_softmax/cutoff_{c}/b" for c in range(clusters)]
            words = sum(shapes[name][0] for name in biases)
            if words != shapes[table][0]:
                yield (
                    f"{label(table)} {list(shapes[table])} must have a row for each of the {words} "
                    f"biases {', '.join(map(label, biases))}"
                )


def _pair(
    shapes: Shapes, label: Label, name: str, axis: int, other: str, other_axis: int
) -> Iterator[str]:
    if other in shapes and shapes[name][axis : axis + 1] != shapes[other][other_axis:][:1]:
        yield _must_agree([name, other], shapes, label)


def _must_agree(names: list[str], shapes: Shapes, label: Label) -> str:
    return f"{' and '.join(f'{label(n)} {list(shapes[n])}' for n in names)} must agree"
