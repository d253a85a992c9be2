"""Clusters of an adaptive vocabulary: their id ranges and table shapes."""

from typing import Any


def bounds(vocab_size: int, cutoffs: tuple[int, ...]) -> list[tuple[int, int]]:
    """Returns (first id, id after the last) of each cluster; one cluster without cut-offs."""
    return list(zip((0, *cutoffs), (*cutoffs, vocab_size), strict=True))


def table_shapes(
    vocab_size: int, d_embed: int, cutoffs: tuple[int, ...], div_val: int
) -> list[tuple[int, int]]:
    """Returns (rows, width) of each table: a single one if `div_val` is 1, else one a cluster."""
    if div_val == 1:
        return [(vocab_size, d_embed)]
    clusters = enumerate(bounds(vocab_size, cutoffs))
    return [(end - start, d_embed // div_val**i) for i, (start, end) in clusters]


def named(name: str, values: list) -> list[tuple[str, Any]]:
    """Pairs each value with a weight name: `name` for a single one, else `name_0`, `name_1`, ..."""
    if len(values) == 1:
        return [(name, values[0])]
    return [(f"{name}_{i}", value) for i, value in enumerate(values)]
