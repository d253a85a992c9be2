r"""Vocabulary: symbols and their ids, counted, saved as plain text and loaded.

`vocab.txt` has one symbol per line; its id is the line index from 0. Five characters are escaped,
so that a symbol may contain any character and no line is blank:

    newline \n    carriage return \r    tab \t    space \s    backslash \\

A user's own list is simpler, see `Vocabulary.from_list`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from txl_tf.data import files, text

UNKNOWN = ("<unk>", "<UNK>")  # the first in a vocabulary is its unknown symbol
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": "\\s"}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_UNESCAPES = {escape[1]: symbol for symbol, escape in _ESCAPES.items()}


class Vocabulary:
    """Distinct symbols in the order of their ids.

    Attributes:
      symbols: by id.
      ids: id of each symbol.
      unknown_id: the id of "<unk>", else of "<UNK>", else None.
    """

    def __init__(self, symbols: Iterable[str]):
        self.symbols = tuple(symbols)
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        if len(self.ids) < len(self.symbols):
            again = next(s for i, s in enumerate(self.symbols) if self.ids[s] != i)
            raise ValueError(f"symbols must be distinct, got {again!r} twice")
        self.unknown_id = next((self.ids[name] for name in UNKNOWN if name in self.ids), None)

    def __len__(self) -> int:
        return len(self.symbols)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.symbols == other.symbols

    def __hash__(self) -> int:
        return hash(self.symbols)

    @classmethod
    def build(
        cls,
        counts: Mapping[str, int],
        *,
        specials: Sequence[str] = (),
        min_count: int = 0,
        max_size: int | None = None,
        unknown: bool = False,
    ) -> "Vocabulary":
        """Builds a vocabulary in the original code's order: by descending count.

        Args:
          counts: of each symbol, in order of first occurrence, which breaks ties.
          specials: symbols that come first, regardless of count.
          min_count: rarer symbols are left out.
          max_size: maximum number of symbols, specials and "<unk>" included; None is unlimited.
          unknown: whether to append "<unk>" if the text contains neither it nor "<UNK>".
        """
        first = set(specials)
        seen = [s for s, count in counts.items() if count >= min_count and s not in first]
        ranked = [*specials, *sorted(seen, key=counts.__getitem__, reverse=True)]
        symbols = ranked[:max_size]
        if unknown and not set(UNKNOWN) & set(symbols):
            symbols = [*ranked[: None if max_size is None else max_size - 1], UNKNOWN[0]]
        if len(symbols) < len(specials) + unknown:
            names = " and ".join([*specials, UNKNOWN[0]])
            raise ValueError(f"vocab_size must leave room for {names}, got {max_size}")
        return cls(symbols)

    def extended(self, *names: str) -> "Vocabulary":
        """Returns this vocabulary with missing names appended."""
        return Vocabulary([*self.symbols, *(name for name in names if name not in self.ids)])

    def to_text(self) -> str:
        """Returns the contents of `vocab.txt`."""
        plain = str.isalnum  # fast path: most words need no escapes
        lines = [s if plain(s) else s.translate(_ESCAPE_TABLE) for s in self.symbols]
        return "\n".join([*lines, ""])

    def save(self, path: str) -> None:
        """Writes `vocab.txt`."""
        files.write_bytes(path, self.to_text().encode("utf-8"))

    @classmethod
    def load(cls, path: str) -> "Vocabulary":
        """Loads the file of `save`.

        Raises:
          ValueError: a line is blank, repeated or malformed; names the file and the line.
        """
        lines = [line.removesuffix("\r") for line in _lines(files.read_text(path))]
        symbols = [unescaped(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
        return cls(_distinct(symbols, path))

    @classmethod
    def from_list(
        cls, path: str, *, skip_repeats: bool = False, white_space: str = "unicode"
    ) -> "Vocabulary":
        """Loads a list of words from elsewhere.

        The first field of each line is a word, verbatim; a count, or anything else, may follow
        after white space and is ignored. The original code's `1b_word_vocab.txt` is such a list.

        Args:
          path: a UTF-8 file; a byte-order mark at its start is dropped.
          skip_repeats: whether to skip repeated words, as the original code does. Ids are then no
            longer line numbers.
          white_space: the separator, a name in `text.WHITE_SPACES`.

        Raises:
          ValueError: a line is blank or repeated; names the file and the line.
        """
        lines = _lines(files.read_text(path).removeprefix("\ufeff"))
        symbols = [next(iter(text.WORDS[white_space](line)), "") for line in lines]
        return cls(_distinct(symbols, path, skip_repeats))


def _lines(content: str) -> list[str]:
    lines = content.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _distinct(symbols: Sequence[str], path: str, skip_repeats: bool = False) -> Iterable[str]:
    """Returns the distinct symbols; raises for an empty file, a blank line or a repeated symbol."""
    if not symbols:
        raise ValueError(f"{path} must hold a symbol per line, got an empty file")
    first: dict[str, int] = {}
    for number, symbol in enumerate(symbols, 1):
        if not symbol:
            raise ValueError(f"{path}:{number} must hold a symbol, got a blank line")
        if first.setdefault(symbol, number) != number and not skip_repeats:
            raise ValueError(
                f"{path}:{number} must hold a new symbol, "
                f"got {symbol!r} of line {first[symbol]} again"
            )
    return first


def unescaped(line: str, position: str) -> str:
    """Replaces escapes by their characters; errors name `position`."""

    def symbol(escape: re.Match[str]) -> str:
        if escape[1] not in _UNESCAPES:
            choices = " ".join(_ESCAPES.values())
            raise ValueError(f"{position} must escape with one of {choices}, got {escape[0]!r}")
        return _UNESCAPES[escape[1]]

    return re.sub(r"\\(.?)", symbol, line)
