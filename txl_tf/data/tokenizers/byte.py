"""Byte tokenizer: 256 ids, lossless."""

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np

from txl_tf.data import text
from txl_tf.data.tokenizers import tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteTokenizer(tokenizer.Tokenizer):
    """Byte tokens: the id of a byte is its value. Any file is valid input, UTF-8 or not.

    >>> tokenizer = txl_tf.TOKENIZERS["byte"]()
    >>> tokenizer.encode("süß").tolist()
    [115, 195, 188, 195, 159]
    >>> tokenizer.decode([115, 195, 188, 195, 159])
    'süß'

    Attributes:
      drop_newlines: whether to drop newline bytes, as in the original code's enwik8.
    """

    kind: ClassVar[str] = "byte"
    UNIT: ClassVar[str | None] = "byte"

    drop_newlines: bool = False

    @classmethod
    def start(cls, *, vocab_size: int | None, min_count: int, **options: Any) -> Self:
        if vocab_size not in (None, 256) or min_count > 0:
            raise ValueError(
                "vocab_size and min_count must be left out for tokenizer byte, which always has "
                f"256 ids, got {vocab_size} and {min_count}"
            )
        return cls(**options)

    @property
    def vocab_size(self) -> int:
        return 256

    def encode(
        self, content: str, *, starts_line: bool = True, complete: bool = True
    ) -> np.ndarray:
        data = content.encode("utf-8", "surrogatepass")
        return self.encode_bytes(data, starts_line=starts_line, complete=complete)

    def encode_piece(self, piece: text.Piece, invalid_utf8: str = "error") -> tokenizer.Encoding:
        del invalid_utf8  # bytes are not decoded
        data = piece.data.replace(b"\n", b"") if self.drop_newlines else piece.data
        values = np.frombuffer(data, np.uint8)
        characters = np.count_nonzero(values & 0xC0 != 0x80)  # without continuation bytes
        return tokenizer.Encoding(values.astype(np.int32), len(data), int(characters), 0)

    def decode(self, ids: Iterable[int]) -> str:
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return bytes(self.checked(ids))

    def symbol(self, token_id: int) -> str:
        """Returns the character of an ASCII byte, else its value, as in "<0xE9>"."""
        (value,) = self.checked([token_id])
        return chr(value) if value < 128 else f"<0x{value:02X}>"
