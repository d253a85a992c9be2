"""Base of tokenizers with a counted vocabulary: `char` and `word`."""

import abc
import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from txl_tf.data import text
from txl_tf.data.tokenizers import tokenizer
from txl_tf.data.vocabulary import UNKNOWN as UNKNOWN_NAMES
from txl_tf.data.vocabulary import Vocabulary

VOCABULARY_FILE = "vocab.txt"
END_OF_LINE = "<eos>"
BOUNDARY = "<S>"
BLANK_LINES = ("keep", "drop")
UNKNOWN = ("unk", "error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedTokenizer(tokenizer.TextTokenizer):
    """Base class of tokenizers with a `Vocabulary`.

    Attributes:
      vocabulary: symbols and ids.
      end_of_line: mark of line ends, a name in `MARKS`.
      lower_case: whether text is lower-cased first.
      blank_lines: whether to "keep" or to "drop" lines of only white space (`spaces`).
      unknown: whether symbols outside the vocabulary become "<unk>" ("unk") or raise ("error").
    """

    vocabulary_field: ClassVar[str | None] = "vocabulary"
    vocabulary_file: ClassVar[str | None] = VOCABULARY_FILE
    can_grow: ClassVar[bool] = True
    MARKS: ClassVar[Mapping[str, tuple[str, ...]]]  # end_of_line -> its symbols; default first

    vocabulary: Vocabulary
    end_of_line: str
    lower_case: bool = False
    blank_lines: str = "keep"
    unknown: str = "unk"

    def __post_init__(self) -> None:
        for name, allowed in self._choices().items():
            if (value := getattr(self, name)) not in allowed:
                names = ", ".join(allowed)
                raise ValueError(
                    f"{name} must be one of {names} for tokenizer {self.kind}, got {value!r}"
                )
        for symbol in self.vocabulary.symbols:
            if symbol not in (END_OF_LINE, BOUNDARY, *UNKNOWN_NAMES):
                self.check_symbol(symbol)
        required = self._required(self.vocabulary)
        missing = [name for name in required if name not in self.vocabulary.ids]
        if missing:
            raise ValueError(f"vocabulary must hold {' and '.join(missing)}, got none")

    def _choices(self) -> dict[str, Iterable[str]]:
        """Returns the allowed values of each option."""
        return {"end_of_line": self.MARKS, "blank_lines": BLANK_LINES, "unknown": UNKNOWN}

    @abc.abstractmethod
    def check_symbol(self, symbol: str) -> None:
        """Raises if text cannot yield this symbol under the options."""

    @abc.abstractmethod
    def count(self, content: str) -> dict[str, int]:
        """Returns the count of each symbol of normalised text, in order of first occurrence."""

    @staticmethod
    def oddities(types: int, tokens: int) -> list[str]:
        """Returns warnings about text with `types` distinct symbols among `tokens`."""
        del types, tokens
        return []

    @classmethod
    def start(cls, *, vocab_size: int | None, min_count: int, **options: Any) -> "CountingLearner":
        return CountingLearner(cls._draft(**options), vocab_size, min_count)

    def extension(self, *, vocab_size: int | None, min_count: int) -> "ExtendingLearner":
        if vocab_size is not None and vocab_size < self.vocab_size:
            raise ValueError(
                f"vocab_size must be at least the {self.vocab_size} of extend_vocab, "
                f"got {vocab_size}"
            )
        return ExtendingLearner(self, vocab_size, min_count)

    @classmethod
    def from_list(cls, path: str, *, skip_repeats: bool, **options: Any) -> Self:
        draft = cls._draft(**options)
        listed = draft._read_list(path, skip_repeats)
        return dataclasses.replace(draft, vocabulary=listed.extended(*draft._required(listed)))

    @abc.abstractmethod
    def _read_list(self, path: str, skip_repeats: bool) -> Vocabulary:
        """Reads a vocabulary from a user's file."""

    @classmethod
    def _draft(cls, **options: Any) -> Self:
        """Returns a tokenizer with the options and the special symbols only."""
        options = {"end_of_line": next(iter(cls.MARKS)), **options}
        marks = cls.MARKS.get(options["end_of_line"], ())
        return cls(vocabulary=Vocabulary([*marks, UNKNOWN_NAMES[0]]), **options)

    @property
    def spaces(self) -> str:
        """All white space, line ends included."""
        return text.WHITE_SPACE

    @property
    def marks(self) -> tuple[str, ...]:
        """The special symbols that replace line ends."""
        return self.MARKS[self.end_of_line]

    def _required(self, symbols: Vocabulary) -> list[str]:
        """Returns the symbols that a vocabulary must hold under the options."""
        lacks_unknown = self.unknown == "unk" and symbols.unknown_id is None
        return [*self.marks, *([UNKNOWN_NAMES[0]] if lacks_unknown else [])]

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    @property
    def symbols(self) -> tuple[str, ...]:
        return self.vocabulary.symbols

    @property
    def end_id(self) -> int | None:
        return self.vocabulary.ids[self.marks[0]] if self.marks else None

    @property
    def unknown_id(self) -> int | None:
        return self.vocabulary.unknown_id

    def symbol(self, token_id: int) -> str:
        (index,) = self.checked([token_id])
        return self.vocabulary.symbols[index]

    def normalise(self, content: str, *, starts_line: bool, complete: bool) -> str:
        if self.lower_case:
            content = content.lower()
        if self.blank_lines == "drop":
            blank = _blank_line(self.spaces, complete)
            first_line = 0 if starts_line else content.find("\n") + 1
            content = content[:first_line] + blank.sub("", content[first_line:])
        return content

    def ended(self, content: str, starts_line: bool, complete: bool) -> str:
        """Returns `content`, with a final line end if lines are marked and it lacks one."""
        is_open = bool(content or not starts_line) and not content.endswith("\n")
        return content + "\n" if self.marks and complete and is_open else content

    def refusal(self, symbol: str) -> ValueError:
        """Returns the error for a symbol outside the vocabulary."""
        return ValueError(
            f"text must hold only symbols of the vocabulary, got {symbol!r}; "
            'unknown "unk" maps it to <unk>'
        )

    @classmethod
    def read_vocabulary(cls, directory: str) -> dict[str, Any]:
        return {"vocabulary": Vocabulary.load(f"{directory}/{VOCABULARY_FILE}")}

    def _vocabulary_files(self) -> Mapping[str, bytes]:
        return {VOCABULARY_FILE: self.vocabulary.to_text().encode("utf-8")}


@functools.cache
def _blank_line(spaces: str, complete: bool) -> re.Pattern[str]:
    within = re.escape(spaces.replace("\n", ""))
    end = r"(?:\n|\Z)" if complete else r"\n"
    return re.compile(f"^[{within}]*{end}", re.MULTILINE)


class CountingLearner(tokenizer.Learner):
    """Counts symbols and ranks them by frequency."""

    def __init__(self, draft: CountedTokenizer, vocab_size: int | None, min_count: int):
        for name, value in (("vocab_size", vocab_size), ("min_count", min_count)):
            if value is not None and value < 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        self.draft = draft
        self.vocab_size = vocab_size
        self.min_count = min_count
        self.counts: dict[str, int] = {}

    def observe(self, piece: text.Piece, invalid_utf8: str = "error") -> dict[str, int]:
        return self.draft.count(self.draft.read(piece, invalid_utf8))

    def add(self, observation: dict[str, int]) -> None:
        known = self.counts.get
        for symbol, count in observation.items():
            self.counts[symbol] = known(symbol, 0) + count

    def finish(self) -> CountedTokenizer:
        symbols = Vocabulary.build(
            self.counts,
            specials=self.draft.marks,
            min_count=self.min_count,
            max_size=self.vocab_size,
            unknown=self.draft.unknown == "unk",
        )
        return dataclasses.replace(self.draft, vocabulary=symbols)

    def warnings(self) -> list[str]:
        return self.draft.oddities(len(self.counts), sum(self.counts.values()))


class ExtendingLearner(CountingLearner):
    """Appends the symbols that a tokenizer lacks to its own, ranked by frequency."""

    def finish(self) -> CountedTokenizer:
        known = self.draft.vocabulary
        has_unknown = known.unknown_id is not None  # "<UNK>" must not be added to "<unk>"
        counts = {s: n for s, n in self.counts.items() if not (has_unknown and s in UNKNOWN_NAMES)}
        symbols = Vocabulary.build(
            counts, specials=known.symbols, min_count=self.min_count, max_size=self.vocab_size
        )
        return dataclasses.replace(self.draft, vocabulary=symbols)
