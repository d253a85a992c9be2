"""What a checkpoint holds: tensors by name, and where each of ours comes from."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Tensor(NamedTuple):
    """A value and the names of the checkpoint's tensors that it was made of."""

    value: np.ndarray
    sources: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkpoint as a format reads it.

    Attributes:
      tensors: the model's, by the names they have there.
      step: optimizer steps behind them.
      hparams: flags of the original that the checkpoint itself tells.
    """

    tensors: dict[str, np.ndarray]
    step: int = 0
    hparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def own(tensors: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Tensors that are their own source."""
    return {name: Tensor(value, (name,)) for name, value in tensors.items()}


def check_numbers(tensors: Mapping[str, np.ndarray]) -> None:
    """Refuses tensors of anything but finite numbers, and names them."""
    kinds = [name for name, value in tensors.items() if not _is_float(value)]
    if kinds:
        raise ValueError(f"checkpoint must hold floating-point tensors, got others: {_few(kinds)}")
    wild = [name for name, value in tensors.items() if not np.isfinite(value).all()]
    if wild:
        raise ValueError(
            f"checkpoint must hold finite numbers, got NaN or infinity in {_few(wild)}"
        )


def _is_float(value: np.ndarray) -> bool:
    return np.issubdtype(value.dtype, np.floating) or value.dtype.name == "bfloat16"


def _few(names: list[str], most: int = 10) -> str:
    shown = ", ".join(sorted(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def summarise_mapping(
    moves: Iterable[tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]],
) -> list[str]:
    """One line for all layers' moves of a kind: "layers.*.o_net [8, 8] x3 -> block_*/output".

    Args:
      moves: names there, shape there, names here.
    """
    counts: dict[str, int] = {}
    for sources, shape, targets in moves:
        alike = len(sources) // len(set(map(_pattern, sources)))  # one of each layer
        line = f"{_joined(sources)} {list(shape)}{{}} -> {_joined(targets)}"
        counts[line] = counts.get(line, 0) + alike
    return [line.replace("{}", f" x{n}" if n > 1 else "", 1) for line, n in counts.items()]


def _joined(names: tuple[str, ...]) -> str:
    return " + ".join(dict.fromkeys(map(_pattern, names)))


def _pattern(name: str) -> str:
    """A name without the number of its layer."""
    return re.sub(r"\b(layers\.|layer_|block_)\d+", r"\1*", name, count=1)
