"""Character tokenizer: Unicode code points."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from txl_tf.data import text, vocabulary
from txl_tf.data.tokenizers import counted, tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class CharTokenizer(counted.CountedTokenizer):
    """Character tokens. Lossless for text whose code points are all in the vocabulary.

    Attributes:
      end_of_line: "none": a line end is an ordinary symbol; "eos": it becomes "<eos>", which is
        also added to a last line without line end.
      drop_newlines: whether to drop line ends.
    """

    kind: ClassVar[str] = "char"
    UNIT: ClassVar[str | None] = "character"
    MARKS: ClassVar[Mapping[str, tuple[str, ...]]] = {"none": (), "eos": (counted.END_OF_LINE,)}

    end_of_line: str = "none"
    drop_newlines: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drop_newlines and self.marks:
            raise ValueError(
                f"drop_newlines must be off with end_of_line {self.end_of_line!r}, got on"
            )

    @staticmethod
    def check_symbol(symbol: str) -> None:
        if len(symbol) != 1:
            raise ValueError(f"vocabulary must hold single characters, got {symbol!r}")

    @classmethod
    def _read_list(cls, path: str, skip_repeats: bool) -> vocabulary.Vocabulary:
        if skip_repeats:
            raise ValueError("vocab_repeats must be left out for tokenizer char, got skip")
        return vocabulary.Vocabulary.load(path)

    def normalise(self, content: str, *, starts_line: bool, complete: bool) -> str:
        content = super().normalise(content, starts_line=starts_line, complete=complete)
        return content.replace("\n", "") if self.drop_newlines else content

    def count(self, content: str) -> dict[str, int]:
        codes = _code_points(content)
        if self.marks:
            codes = codes[codes != ord("\n")]
        counts = np.bincount(codes)
        first = np.empty(len(counts), np.int64)
        first[codes[::-1]] = np.arange(len(codes))[
            ::-1
        ]  # of equal indices the last one written stays
        seen = np.flatnonzero(counts)
        seen = seen[np.argsort(first[seen])]
        return {chr(code): int(counts[code]) for code in seen}

    def _encoding(self, content: str, *, starts_line: bool, complete: bool) -> tokenizer.Encoding:
        content = self.ended(content, starts_line, complete)
        table = self._table
        ids = table[np.minimum(_code_points(content), len(table) - 1)]
        if self.unknown == "error" and (ids < 0).any():
            raise self.refusal(content[int(np.argmax(ids < 0))])
        unknown = 0 if self.unknown_id is None else int(np.count_nonzero(ids == self.unknown_id))
        return tokenizer.Encoding(ids, text.utf8_size(content), len(content), unknown)

    @functools.cached_property
    def _table(self) -> np.ndarray:
        """Id of each code point, up to one above the highest known; -1 marks an error."""
        known = {ord(s): i for s, i in self.vocabulary.ids.items() if len(s) == 1}
        if self.marks:
            known[ord("\n")] = self.vocabulary.ids[counted.END_OF_LINE]
        fallback = -1 if self.unknown == "error" else self.vocabulary.unknown_id
        table = np.full(max(known, default=0) + 2, fallback, np.int32)
        table[list(known)] = list(known.values())
        return table

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text; "<unk>" becomes U+FFFD."""
        shown = self._shown
        return "".join([shown[i] for i in self.checked(ids)])

    @functools.cached_property
    def _shown(self) -> list[str]:
        special = {counted.END_OF_LINE: "\n", **dict.fromkeys(vocabulary.UNKNOWN, "\ufffd")}
        return [special.get(symbol, symbol) for symbol in self.vocabulary.symbols]


def _code_points(content: str) -> np.ndarray:
    """Returns the code points of a text, [n] uint32."""
    return np.frombuffer(content.encode("utf-32-le", "surrogatepass"), np.uint32)
