"""Text size of tokens: what converts nats per token into bits per byte."""

from typing import NamedTuple

MOST_UNKNOWN = 0.01  # share of unknown tokens above which there is a warning


class TextSize(NamedTuple):
    """Size of a text, in tokens and as the text that they decode to.

    Text is counted as normalised by its tokenizer (lower case, dropped line ends, single spaces
    between words, a final line end): text removed by normalisation costs no tokens.

    Attributes:
      tokens: number of tokens.
      bytes: bytes of the text in UTF-8; 0 if unknown.
      characters: its Unicode code points; 0 if unknown.
      unknown: number of tokens for symbols outside the vocabulary, whose text is lost.
    """

    tokens: int = 0
    bytes: int = 0
    characters: int = 0
    unknown: int = 0

    def plus(self, other: "TextSize") -> "TextSize":
        """Returns the size of both texts together."""
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
            f"({self.unknown / self.tokens:.1%}) are symbols outside the vocabulary, whose cost "
            "the loss leaves out; use a larger vocabulary or another tokenizer"
        ]
