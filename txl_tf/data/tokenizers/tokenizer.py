"""What every tokenizer is: text to ids and back, saved as plain files."""

import abc
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, Union

import numpy as np

from txl_tf.data import files, text
from txl_tf.data.text_size import TextSize

FILE_NAME = "tokenizer.json"


class Encoding(NamedTuple):
    """The tokens of a piece, [n] int32, and the amount of text that they stand for."""

    ids: np.ndarray
    bytes: int
    characters: int
    unknown: int

    @property
    def size(self) -> TextSize:
        """The amount of text."""
        return TextSize(len(self.ids), self.bytes, self.characters, self.unknown)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer(abc.ABC):
    """Text to ids and back, the same when preparing, scoring, generating and serving.

    A tokenizer is a value. Its fields are its options, but for `vocabulary_field`.

    Text that does not end in a line end: as the whole of a file its last line counts as ended, so
    its line gets its mark. A prompt is not: with `complete=False` the last line stays open.

    Attributes:
      kind: the name in `TOKENIZERS`.
      UNIT: the unit of text that each token is, "byte" or "character", by which a loss is usually
        given; None where tokens have no fixed length.
      ADDED: options that came later, and the values they had before; not saved where they have
        these, so that files and checksums stay what they were.
    """

    kind: ClassVar[str]
    UNIT: ClassVar[str | None] = None
    ADDED: ClassVar[Mapping[str, Any]] = {}
    vocabulary_field: ClassVar[str | None] = None
    vocabulary_file: ClassVar[str | None] = None  # beside tokenizer.json
    fits_classifiers: ClassVar[bool] = True  # whether the few texts of one suffice to learn it
    can_grow: ClassVar[bool] = False  # whether new symbols leave the ids of old text as they are

    @classmethod
    def option_names(cls) -> list[str]:
        """The options of this kind."""
        return [f.name for f in dataclasses.fields(cls) if f.name != cls.vocabulary_field]

    @classmethod
    @abc.abstractmethod
    def start(
        cls, *, vocab_size: int | None, min_count: int, **options: Any
    ) -> Union["Tokenizer", "Learner"]:
        """What makes a tokenizer from text; the tokenizer itself where there is nothing to learn.

        Args:
          vocab_size: most symbols; None is no limit, or an error where there has to be one.
          min_count: symbols seen less often are left out.
          **options: of this kind.
        """

    @classmethod
    def from_list(cls, path: str, *, skip_repeats: bool, **options: Any) -> Self:
        """A tokenizer with the vocabulary of a user's file."""
        del path, skip_repeats, options
        raise ValueError(
            f"vocab must be left out for tokenizer {cls.kind}, which has no vocabulary"
        )

    def extension(self, *, vocab_size: int | None, min_count: int) -> Union["Tokenizer", "Learner"]:
        """What gives the symbols of text that this lacks the ids after its own.

        Args:
          vocab_size: most symbols in the end, those of this one included; None is no limit.
          min_count: new symbols seen less often are left out.

        Returns:
          A learner; the tokenizer itself where it knows all text as it is.
        """
        if vocab_size not in (None, self.vocab_size) or min_count:
            raise ValueError(
                "vocab_size and min_count must be left out with extend_vocab for tokenizer "
                f"{self.kind}, which knows all text, got {vocab_size} and {min_count}"
            )
        return self

    @property
    def options(self) -> dict[str, Any]:
        """All that decides about ids but the vocabulary."""
        return {name: getattr(self, name) for name in self.option_names()}

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, V."""

    @property
    def end_id(self) -> int | None:
        """The id that ends a line, where line ends have one of their own."""
        return None

    @property
    def unknown_id(self) -> int | None:
        """The id of all that the vocabulary lacks; None where that cannot be."""
        return None

    @abc.abstractmethod
    def encode(
        self, content: str, *, starts_line: bool = True, complete: bool = True
    ) -> np.ndarray:
        """The ids of text, [n] int32.

        Args:
          content: the text.
          starts_line: whether a line begins here.
          complete: whether the text ends here.

        Raises:
          ValueError: a symbol is not in the vocabulary, and `unknown` is "error".
        """

    @abc.abstractmethod
    def encode_piece(self, piece: text.Piece, invalid_utf8: str = "error") -> Encoding:
        """`encode` for a piece of a file; errors name the file."""

    def encode_bytes(
        self, data: bytes, *, starts_line: bool = True, complete: bool = True
    ) -> np.ndarray:
        """`encode` for the contents of a text file; a byte-order mark is dropped from text."""
        return self.encode_piece(text.Piece(data, "text", 0, starts_line, False, complete)).ids

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The UTF-8 text of ids; of byte ids exactly these bytes, be they text or not."""
        return self.decode(ids).encode("utf-8", "surrogatepass")

    @abc.abstractmethod
    def symbol(self, token_id: int) -> str:
        """The symbol of an id, to show."""

    @property
    def symbols(self) -> Sequence[str]:
        """The symbols of all ids, to compare."""
        return [self.symbol(token_id) for token_id in range(self.vocab_size)]

    def checked(self, ids: Iterable[int]) -> list[int]:
        """`ids` as a list.

        Raises:
          ValueError: one is not in the vocabulary.
        """
        listed = np.asarray(ids).reshape(-1).tolist()
        wrong = next((i for i in listed if not 0 <= i < self.vocab_size), None)
        if wrong is not None:
            size = self.vocab_size
            raise ValueError(f"ids must lie in 0..{size - 1} (vocabulary of {size}), got {wrong}")
        return listed

    @property
    def checksum(self) -> str:
        """SHA-256 over kind, options and vocabulary."""
        digest = hashlib.sha256(_json(self._described).encode("utf-8"))
        for name, data in sorted(self._vocabulary_files().items()):
            digest.update(f"{name} {len(data)}\n".encode())
            digest.update(data)
        return digest.hexdigest()

    def save(self, directory: str) -> None:
        """Writes `tokenizer.json` and the vocabulary; `tokenizers.load` reads them."""
        for name, data in self._vocabulary_files().items():
            files.write_bytes(f"{directory}/{name}", data)
        described = self._described | {"checksum": self.checksum}
        files.write_bytes(f"{directory}/{FILE_NAME}", _json(described).encode("utf-8"))

    @classmethod
    def read_vocabulary(cls, directory: str) -> dict[str, Any]:
        """The fields that `save` wrote to files of their own; use `tokenizers.load`.

        Raises:
          ValueError: a file is not in order; names it.
        """
        del directory
        return {}

    @property
    def _described(self) -> dict[str, Any]:
        saved = {k: v for k, v in self.options.items() if k not in self.ADDED or v != self.ADDED[k]}
        return {"kind": self.kind, "options": saved}

    def _vocabulary_files(self) -> Mapping[str, bytes]:
        """File name -> contents."""
        return {}


def _json(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, indent=2) + "\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTokenizer(Tokenizer):
    """A tokenizer of characters, where bytes have to be decoded first."""

    def encode(
        self, content: str, *, starts_line: bool = True, complete: bool = True
    ) -> np.ndarray:
        content = self.normalise(content, starts_line=starts_line, complete=complete)
        return self._encoding(content, starts_line=starts_line, complete=complete).ids

    def encode_piece(self, piece: text.Piece, invalid_utf8: str = "error") -> Encoding:
        decoded = text.decode(piece, invalid_utf8)
        content = self.normalise(decoded, starts_line=piece.starts_line, complete=piece.complete)
        try:
            found = self._encoding(content, starts_line=piece.starts_line, complete=piece.complete)
        except ValueError as error:
            raise ValueError(f"{piece.name}: {error}") from error
        if invalid_utf8 == "error":
            return found
        replaced = text.utf8_size(decoded) - text.size(piece)  # U+FFFD counts as what it replaces
        return found._replace(bytes=found.bytes - replaced)

    def read(self, piece: text.Piece, invalid_utf8: str = "error") -> str:
        """The normalised text of a piece."""
        content = text.decode(piece, invalid_utf8)
        return self.normalise(content, starts_line=piece.starts_line, complete=piece.complete)

    def normalise(self, content: str, *, starts_line: bool, complete: bool) -> str:
        """What is left of text under the options, for example in lower case."""
        del starts_line, complete
        return content

    @abc.abstractmethod
    def _encoding(self, content: str, *, starts_line: bool, complete: bool) -> Encoding:
        """The tokens of normalised text, and the amount of text that they give back."""


class Learner(abc.ABC):
    """Makes a tokenizer from text in one pass: workers observe, one place adds up in order."""

    @abc.abstractmethod
    def observe(self, piece: text.Piece, invalid_utf8: str = "error") -> Any:
        """What is to be learnt from a piece. Changes nothing; goes from process to process."""

    @abc.abstractmethod
    def add(self, observation: Any) -> None:
        """Takes in the observation of the next piece."""

    @abc.abstractmethod
    def finish(self) -> Tokenizer:
        """The tokenizer.

        Raises:
          ValueError: the text does not give one.
        """

    def warnings(self) -> list[str]:
        """What is odd about the text."""
        return []
