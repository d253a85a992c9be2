"""White-space word splitting in NumPy, with a Python object for each distinct word only.

Looking up each word of `str.split` in a dictionary takes most of the time of preparing text. Here
words are hashed to integers, which are sorted to group equal words: up to 1.75 times as fast,
depending on the text, with the same result.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from txl_tf.data import text

_SHORT = 1 << 12  # characters, below which plain Python is faster
_WIDE_SPACES = {
    name: [c for c in spaces if not c.isascii()] for name, spaces in text.WHITE_SPACES.items()
}
_IS_SPACE = {  # of each byte
    name: np.isin(np.arange(256), [ord(c) for c in spaces if c.isascii()])
    for name, spaces in text.WHITE_SPACES.items()
}
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)  # masks of n bytes
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, pseudo-random bits
_HALF = np.uint64(32)
_EXACT = 7  # longest word, in bytes, that is its own key, with its length in the eighth byte
_MIXED = 16  # longest word that its length and its first and last eight bytes determine


# Plain Python equivalents, for each name in `text.WHITE_SPACES`.
LISTED: Mapping[str, Callable[[str], list[str]]] = {
    "unicode": str.split,
    "ascii": re.compile(r"\S+", re.ASCII).findall,
}


class Words(NamedTuple):
    """The words of a text.

    Attributes:
      symbols: the distinct words, in order of first occurrence.
      counts: [len(symbols)], occurrences of each.
      indices: [number of words], the index of each word in `symbols`.
    """

    symbols: list[str]
    counts: np.ndarray
    indices: np.ndarray


def split(content: str, white_space: str = "unicode") -> Words:
    """Splits a text into words.

    Args:
      content: the text.
      white_space: a name in `text.WHITE_SPACES`; "unicode" gives the words of `content.split()`.
    """
    if len(content) < _SHORT:
        return _split_short(LISTED[white_space](content))
    if not content.isascii():
        for space in _WIDE_SPACES[white_space]:
            content = content.replace(space, " ")
    data = content.encode("utf-8", "surrogatepass")
    spans = _spans(data, _IS_SPACE[white_space])
    if not len(spans.starts):
        return _split_short([])
    for longest in (_MIXED, _EXACT):  # the second only after a hash collision
        firsts, counts, indices = _grouped(_keys(data, spans, longest))
        if _equal(spans, firsts[indices]):
            break
    return Words(_cut_out(data, spans, firsts), counts, indices)


def _split_short(listed: list[str]) -> Words:
    index: dict[str, int] = {}
    indices = np.array([index.setdefault(word, len(index)) for word in listed], np.int64)
    return Words(list(index), np.bincount(indices, minlength=len(index)), indices)


class _Spans(NamedTuple):
    """Positions and key material of words; each [n].

    Attributes:
      starts, ends: first byte, and end (exclusive).
      lengths: in bytes.
      heads: the first eight bytes (or fewer) as an integer.
      longer: indices of the words above `_EXACT` bytes.
      tails: the last eight bytes of the longer words.
    """

    starts: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray
    heads: np.ndarray
    longer: np.ndarray
    tails: np.ndarray


def _spans(data: bytes, is_space: np.ndarray) -> _Spans:
    between = np.ones(len(data) + 2, bool)
    between[1:-1] = is_space[np.frombuffer(data, np.uint8)]
    edges = np.flatnonzero(between[1:] != between[:-1])
    starts, ends = edges[0::2], edges[1::2]
    eight = np.ndarray(len(data) + 1, np.dtype("<u8"), data + bytes(8), strides=(1,))  # by byte
    lengths = (ends - starts).astype(np.uint64)
    heads = eight[starts] & _FIRST_BYTES[np.minimum(ends - starts, 8)]
    longer = np.flatnonzero(lengths > _EXACT)
    return _Spans(starts, ends, lengths, heads, longer, eight[ends[longer] - 8])


def _keys(data: bytes, spans: _Spans, longest: int) -> np.ndarray:
    """Returns a key for each word, [n] uint64, the same for equal words.

    Words of up to `_EXACT` bytes are their own key. Longer ones are hashed from length, head and
    tail, with rare collisions; words above `longest` are numbered by a dictionary.
    """
    keys = spans.heads | spans.lengths << np.uint64(56)
    mixed = spans.lengths[spans.longer] * _FACTOR
    for part in (spans.heads[spans.longer], spans.tails):
        mixed = (mixed ^ part) * _FACTOR  # carries low bits to all higher bits,
        mixed = (mixed ^ mixed >> _HALF) * _FACTOR  # and high bits to low ones, from there to all
    keys[spans.longer] = mixed
    listed = np.flatnonzero(spans.lengths > longest)
    numbers: dict[str, int] = {}
    words = _cut_out(data, spans, listed)
    keys[listed] = [numbers.setdefault(word, len(numbers)) | 255 << 56 for word in words]
    return keys


def _grouped(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns first index and count of each distinct key, in order of first occurrence.

    The third value is the rank of each key in that order.
    """
    order = np.argsort(keys)
    ordered = keys[order]
    is_new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    begins = np.flatnonzero(is_new)
    firsts = np.minimum.reduceat(order, begins)
    counts = np.diff(begins, append=len(keys))
    by_first = np.argsort(firsts)
    rank = np.empty(len(firsts), np.int64)
    rank[by_first] = np.arange(len(firsts))
    indices = np.empty(len(keys), np.int64)
    indices[order] = rank[np.cumsum(is_new) - 1]
    return firsts[by_first], counts[by_first], indices


def _equal(spans: _Spans, others: np.ndarray) -> bool:
    """Whether each word of up to `_MIXED` bytes equals word `others`, given equal keys."""
    if (spans.lengths[others] != spans.lengths).any():
        return False
    tails = np.zeros(len(others), np.uint64)
    tails[spans.longer] = spans.tails
    heads = spans.heads[others[spans.longer]] == spans.heads[spans.longer]
    return bool((heads & (tails[others[spans.longer]] == spans.tails)).all())


def _cut_out(data: bytes, spans: _Spans, indices: np.ndarray) -> list[str]:
    """Returns some words as text."""
    edges = zip(spans.starts[indices].tolist(), spans.ends[indices].tolist(), strict=True)
    return [data[start:end].decode("utf-8", "surrogatepass") for start, end in edges]
