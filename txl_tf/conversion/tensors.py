"""Tensors of a checkpoint by name, and the sources of our weights."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

# Names of a parameter in the source, its shape in a checkpoint, and names in the target.
Move = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]


class Tensor(NamedTuple):
    """A value and the names of the checkpoint's tensors it is made from."""

    value: np.ndarray
    sources: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkpoint as read by a format.

    Attributes:
      tensors: of the model, by their names in the checkpoint.
      step: number of optimizer steps of the weights.
      hparams: flags of the original stored in the checkpoint.
    """

    tensors: dict[str, np.ndarray]
    step: int = 0
    hparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def own(tensors: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Wraps tensors that are their own source."""
    return {name: Tensor(value, (name,)) for name, value in tensors.items()}


def check_numbers(tensors: Mapping[str, np.ndarray]) -> None:
    """Raises if tensors are not floating-point or not finite; names them."""
    kinds = [name for name, value in tensors.items() if not _is_float(value)]
    if kinds:
        raise ValueError(f"checkpoint must hold floating-point tensors, got others: {_few(kinds)}")
    infinite = [name for name, value in tensors.items() if not np.isfinite(value).all()]
    if infinite:
        raise ValueError(
            f"checkpoint must hold finite numbers, got NaN or infinity in {_few(infinite)}"
        )


def _is_float(value: np.ndarray) -> bool:
    return np.issubdtype(value.dtype, np.floating) or value.dtype.name == "bfloat16"


def _few(names: list[str], limit: int = 10) -> str:
    shown = ", ".join(sorted(names)[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def summarise_mapping(
    moves: Iterable[Move],
) -> list[str]:
    """Returns one line per name pattern: "layers.*.o_net [8, 8] x3 -> block_*/output".

    Args:
      moves: names there, shape there, and names here, for each parameter.
    """
    counts: dict[str, int] = {}
    for sources, shape, targets in moves:
        count = len(sources) // len(set(map(_pattern, sources)))  # one per layer
        line = f"{_joined(sources)} {list(shape)}{{}} -> {_joined(targets)}"
        counts[line] = counts.get(line, 0) + count
    return [line.replace("{}", f" x{n}" if n > 1 else "", 1) for line, n in counts.items()]


def _joined(names: tuple[str, ...]) -> str:
    return " + ".join(dict.fromkeys(map(_pattern, names)))


def _pattern(name: str) -> str:
    """Returns a name without its layer index."""
    return re.sub(r"\b(layers?\.|layer_|block_)\d+", r"\1*", name, count=1)
