"""Word tokenizer: words between white space."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from txl_tf.data import text, vocabulary
from txl_tf.data.tokenizers import counted, tokenizer

_ODD_SHARE = 0.5  # of distinct words among all words
_ODD_LEAST = 20  # words, below which the share is meaningless


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordTokenizer(counted.CountedTokenizer):
    """Word tokens: text between white space, as in the original code.

    A word "<eos>", "<S>" or "<unk>" in the text is that symbol: there is no escape, as the
    published corpora contain "<unk>" as a word. "x<eos>y" is an ordinary word.

    Attributes:
      end_of_line: "eos", "<eos>" after each line; "boundary", "<S>" at both ends of each line, as
        for lm1b; "none".
      white_space: "unicode", as in `str.split`, and the original code under Python 3; "ascii", as
        in `bytes.split`, and under Python 2, which counted the published vocabularies: they contain
        words with no-break spaces. Also defines blank lines.
    """

    kind: ClassVar[str] = "word"
    MARKS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "eos": (counted.END_OF_LINE,),
        "boundary": (counted.BOUNDARY,),
        "none": (),
    }
    ADDED: ClassVar[Mapping[str, Any]] = {"white_space": "unicode"}

    end_of_line: str = "eos"
    white_space: str = "unicode"

    def _choices(self) -> dict[str, Iterable[str]]:
        return super()._choices() | {"white_space": text.WHITE_SPACES}

    @property
    def spaces(self) -> str:
        return text.WHITE_SPACES[self.white_space]

    def check_symbol(self, symbol: str) -> None:
        if not symbol.isalnum() and text.WORDS[self.white_space](symbol) != [symbol]:
            raise ValueError(
                f"vocabulary must hold words without white space, got {symbol!r} "
                f"for white_space {self.white_space!r}"
            )

    @staticmethod
    def oddities(types: int, tokens: int) -> list[str]:
        if tokens < _ODD_LEAST or types <= _ODD_SHARE * tokens:
            return []
        return [
            f"{types} of {tokens} words are distinct: is this text without spaces between words? "
            "a tokenizer of characters, bytes or subwords may suit it better"
        ]

    def _read_list(self, path: str, skip_repeats: bool) -> vocabulary.Vocabulary:
        return vocabulary.Vocabulary.from_list(
            path, skip_repeats=skip_repeats, white_space=self.white_space
        )

    def count(self, content: str) -> dict[str, int]:
        return collections.Counter(text.WORDS[self.white_space](content))

    def _encoding(self, content: str, *, starts_line: bool, complete: bool) -> tokenizer.Encoding:
        content = self.ended(content, starts_line, complete)
        words = text.WORDS[self.white_space](self._marked(content, starts_line))
        known = self.vocabulary.ids
        ids = np.fromiter(map(known.get, words, itertools.repeat(-1)), np.int32, len(words))
        unknown = ids < 0
        if self.unknown == "error" and unknown.any():
            raise self.refusal(words[int(np.argmax(unknown))])
        is_word = np.isin(ids, [known[mark] for mark in self.marks], invert=True)
        ids[unknown] = -1 if self.unknown_id is None else self.unknown_id
        decoded = "".join(itertools.compress(words, is_word.tolist()))
        between = self._white_space_between(content, is_word, complete)
        return tokenizer.Encoding(
            ids,
            text.utf8_size(decoded) + between,
            len(decoded) + between,
            int(np.count_nonzero(unknown)),
        )

    def _white_space_between(self, content: str, is_word: np.ndarray, complete: bool) -> int:
        """Returns the number of line ends and of spaces between words in the decoded text.

        Args:
          content: the text, its last line ended.
          is_word: [n], whether each token is a word, not a mark.
          complete: whether no word follows.
        """
        is_open = not complete and bool(is_word[-1:].any())
        spaces = int(np.count_nonzero(is_word[1:] & is_word[:-1])) + is_open
        return spaces + (content.count("\n") if self.marks else 0)

    def _marked(self, content: str, starts_line: bool) -> str:
        """Returns `content` with marks as separate words."""
        if self.end_of_line == "eos":
            return content.replace("\n", f" {counted.END_OF_LINE} ")
        if self.end_of_line == "boundary":
            begin, end = f"{counted.BOUNDARY} ", f" {counted.BOUNDARY}\n"
            is_open = not content.endswith("\n")
            content = content.replace("\n", end + begin)
            content = content if is_open else content.removesuffix(begin)
            return begin + content if starts_line and content else content
        return content

    def decode(self, ids: Iterable[int]) -> str:
        """Returns words joined by single spaces, with line ends where they are marked."""
        lines: list[list[str]] = [[]]
        begun = False  # whether an opening <S> came before
        for index in self.checked(ids):
            symbol = self.vocabulary.symbols[index]
            opens = symbol == counted.BOUNDARY and not begun and not lines[-1]
            if symbol not in self.marks:
                lines[-1].append(symbol)
            elif not opens:
                lines.append([])
            begun = opens if symbol in self.marks else begun
        return "\n".join(map(" ".join, lines))
