"""Word tokenizer: words between white space."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from txl_tf.data import fast_word_split, text, vocabulary
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
        if not symbol.isalnum() and fast_word_split.LISTED[self.white_space](symbol) != [symbol]:
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
        words = fast_word_split.split(content, self.white_space)
        return dict(zip(words.symbols, words.counts.tolist(), strict=True))

    def _encoding(self, content: str, *, starts_line: bool, complete: bool) -> tokenizer.Encoding:
        content = self.ended(content, starts_line, complete)
        words = fast_word_split.split(self._marked(content, starts_line), self.white_space)
        ids = np.array([self.vocabulary.ids.get(symbol, -1) for symbol in words.symbols], np.int32)
        unknown = ids < 0
        if self.unknown == "error" and unknown.any():
            raise self.refusal(words.symbols[int(np.argmax(unknown))])
        ids[unknown] = -1 if self.unknown_id is None else self.unknown_id
        is_word = np.array([symbol not in self.marks for symbol in words.symbols], bool)
        between = self._white_space_between(content, is_word[words.indices], complete)
        sizes = np.array([[text.utf8_size(s), len(s)] for s in words.symbols], np.int64)
        size, characters = (words.counts * is_word) @ sizes.reshape(-1, 2) + between
        return tokenizer.Encoding(
            ids[words.indices], int(size), int(characters), int(words.counts @ unknown)
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
