"""The amount of text that tokens stand for: what turns nats into bits per byte."""

from typing import NamedTuple

MOST_UNKNOWN = 0.01  # share of unknown tokens above which a warning is due


class TextSize(NamedTuple):
    """The size of a text, in tokens and as the text that they give back.

    Text is counted as its tokenizer normalises it (lower case, dropped line ends, single spaces
    between words, a last line that is ended): what normalisation takes away costs no token.

    Attributes:
      tokens: number of tokens.
      bytes: bytes of the text in UTF-8; 0 where they are not known.
      characters: its Unicode code points; 0 where they are not known.
      unknown: tokens in place of a symbol outside the vocabulary, whose text they do not give back.
    """

    tokens: int = 0
    bytes: int = 0
    characters: int = 0
    unknown: int = 0

    def plus(self, other: "TextSize") -> "TextSize":
        """The size of both texts together."""
        return TextSize(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def is_mostly_known(self) -> bool:
        """Whether the share of unknown tokens is at most `MOST_UNKNOWN`."""
        return self.unknown <= MOST_UNKNOWN * self.tokens

    def warnings(self, name: str) -> list[str]:
        """Warnings about the text called `name`."""
        if self.is_mostly_known:
            return []
        return [
            f"{name}: {self.unknown} of {self.tokens} tokens "
            f"({self.unknown / self.tokens:.1%}) stand for symbols outside the vocabulary, so that "
            "a loss leaves out what these cost; a larger vocabulary or another tokenizer has fewer"
        ]
