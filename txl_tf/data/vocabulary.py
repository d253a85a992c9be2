r"""Symbols and their ids: counted, saved as plain text, read back.

`vocab.txt` has one symbol a line and its id is the number of lines before it. Five characters are
written as escapes, so that a symbol may hold any character and no line is blank:

    newline \n    carriage return \r    tab \t    space \s    backslash \\

A user's own list is simpler, see `Vocabulary.from_list`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from txl_tf.data import fast_word_split, files

UNKNOWN = ("<unk>", "<UNK>")  # the first that a vocabulary holds stands for what it lacks
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": "\\s"}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_UNESCAPES = {escape[1]: symbol for symbol, escape in _ESCAPES.items()}


class Vocabulary:
    """Distinct symbols in the order of their ids.

    Attributes:
      symbols: by id.
      ids: of each symbol.
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
        """Orders counted symbols as the original code does: by falling count.

        Args:
          counts: of each symbol, in the order of first sight, which decides between equal counts.
          specials: symbols that come first, whatever their count.
          min_count: symbols seen less often are left out.
          max_size: most symbols, specials and "<unk>" included; None is no limit.
          unknown: whether "<unk>" comes last if the text does not hold it (or "<UNK>").
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
        """This vocabulary with the names that it lacks at its end."""
        return Vocabulary([*self.symbols, *(name for name in names if name not in self.ids)])

    def to_text(self) -> str:
        """The contents of `vocab.txt`."""
        plain = str.isalnum  # most words, for which this is faster than to translate nothing
        lines = [s if plain(s) else s.translate(_ESCAPE_TABLE) for s in self.symbols]
        return "\n".join([*lines, ""])

    def save(self, path: str) -> None:
        """Writes `vocab.txt`."""
        files.write_bytes(path, self.to_text().encode("utf-8"))

    @classmethod
    def load(cls, path: str) -> "Vocabulary":
        """Reads what `save` wrote.

        Raises:
          ValueError: a line is blank, repeated or no symbol; names the file and the line.
        """
        lines = [line.removesuffix("\r") for line in _lines(files.read_text(path))]
        symbols = [unescaped(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
        return cls(_distinct(symbols, path))

    @classmethod
    def from_list(
        cls, path: str, *, skip_repeats: bool = False, white_space: str = "unicode"
    ) -> "Vocabulary":
        """Reads a list of words from elsewhere.

        The first field of each line is a word, taken as it stands; after white space may follow a
        count, or anything else, which is not read. So is the original code's `1b_word_vocab.txt`.

        Args:
          path: a UTF-8 file; a byte-order mark at its start is dropped.
          skip_repeats: whether a repeated word is passed over, as the original code does it. Ids
            are then no longer line numbers.
          white_space: what may follow a word, a name in `text.WHITE_SPACES`.

        Raises:
          ValueError: a line is blank or repeated; names the file and the line.
        """
        lines = _lines(files.read_text(path).removeprefix("\ufeff"))
        symbols = [next(iter(fast_word_split.LISTED[white_space](line)), "") for line in lines]
        return cls(_distinct(symbols, path, skip_repeats))


def _lines(content: str) -> list[str]:
    lines = content.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _distinct(symbols: Sequence[str], path: str, skip_repeats: bool = False) -> Iterable[str]:
    """Refuses a vocabulary file that has no symbols, a blank line or a repeated symbol."""
    if not symbols:
        raise ValueError(f"{path} must hold a symbol a line, got an empty file")
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


def unescaped(line: str, place: str) -> str:
    """Turns escapes into what they stand for; `place` is for the message of a wrong one."""

    def symbol(escape: re.Match[str]) -> str:
        if escape[1] not in _UNESCAPES:
            choices = " ".join(_ESCAPES.values())
            raise ValueError(f"{place} must escape with one of {choices}, got {escape[0]!r}")
        return _UNESCAPES[escape[1]]

    return re.sub(r"\\(.?)", symbol, line)
