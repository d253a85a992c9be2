"""Base classes of tokenizers: text to ids and back, saved as plain files."""

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
    """The tokens of a piece, [n] int32, and the size of their text."""

    ids: np.ndarray
    bytes: int
    characters: int
    unknown: int

    @property
    def size(self) -> TextSize:
        """The size of the text."""
        return TextSize(len(self.ids), self.bytes, self.characters, self.unknown)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer(abc.ABC):
    """Base class of tokenizers, which encode alike in training, scoring, generation and serving.

    A tokenizer is an immutable value. Its fields are its options, except `vocabulary_field`.

    With `complete=True`, as for a whole file, a last line without line end is ended and marked like
    others. With `complete=False`, as for a prompt, it stays open.

    Attributes:
      kind: the name in `TOKENIZERS`.
      UNIT: the unit of text that each token is, "byte" or "character", for losses per unit; None if
        tokens vary in length.
      ADDED: options added later, with the values that mean their absence; not saved with these, so
        that files and checksums stay the same.
    """

    kind: ClassVar[str]
    UNIT: ClassVar[str | None] = None
    ADDED: ClassVar[Mapping[str, Any]] = {}
    vocabulary_field: ClassVar[str | None] = None
    vocabulary_file: ClassVar[str | None] = None  # beside tokenizer.json
    fits_classifiers: ClassVar[bool] = True  # whether a classifier's few texts suffice to learn it
    can_grow: ClassVar[bool] = False  # whether new symbols keep the ids of old text

    @classmethod
    def option_names(cls) -> list[str]:
        """Returns the names of the options of this kind."""
        return [f.name for f in dataclasses.fields(cls) if f.name != cls.vocabulary_field]

    @classmethod
    @abc.abstractmethod
    def start(
        cls, *, vocab_size: int | None, min_count: int, **options: Any
    ) -> Union["Tokenizer", "Learner"]:
        """Returns a learner that builds a tokenizer, or the tokenizer if it has nothing to learn.

        Args:
          vocab_size: maximum number of symbols; None is unlimited, or an error if one is required.
          min_count: rarer symbols are left out.
          **options: of this kind.
        """

    @classmethod
    def from_list(cls, path: str, *, skip_repeats: bool, **options: Any) -> Self:
        """Returns a tokenizer with the vocabulary of a user's file."""
        del path, skip_repeats, options
        raise ValueError(
            f"vocab must be left out for tokenizer {cls.kind}, which has no vocabulary"
        )

    def extension(self, *, vocab_size: int | None, min_count: int) -> Union["Tokenizer", "Learner"]:
        """Returns a learner that appends the symbols of text that this tokenizer lacks.

        Args:
          vocab_size: maximum number of symbols, old ones included; None is unlimited.
          min_count: rarer new symbols are left out.

        Returns:
          The learner; the tokenizer itself if it encodes all text already.
        """
        if vocab_size not in (None, self.vocab_size) or min_count:
            raise ValueError(
                "vocab_size and min_count must be left out with extend_vocab for tokenizer "
                f"{self.kind}, which encodes all text, got {vocab_size} and {min_count}"
            )
        return self

    @property
    def options(self) -> dict[str, Any]:
        """All settings that determine ids, except the vocabulary."""
        return {name: getattr(self, name) for name in self.option_names()}

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, V."""

    @property
    def end_id(self) -> int | None:
        """The id that ends a line, if line ends have their own id."""
        return None

    @property
    def unknown_id(self) -> int | None:
        """The id of symbols outside the vocabulary; None if it has none."""
        return None

    @abc.abstractmethod
    def encode(
        self, content: str, *, starts_line: bool = True, complete: bool = True
    ) -> np.ndarray:
        """Returns the ids of a text, [n] int32.

        Args:
          content: the text.
          starts_line: whether a line begins here.
          complete: whether the text ends here.

        Raises:
          ValueError: a symbol is outside the vocabulary, and `unknown` is "error".
        """

    @abc.abstractmethod
    def encode_piece(self, piece: text.Piece, invalid_utf8: str = "error") -> Encoding:
        """Encodes a piece of a file; errors name the file."""

    def encode_bytes(
        self, data: bytes, *, starts_line: bool = True, complete: bool = True
    ) -> np.ndarray:
        """Encodes the bytes of a text file; tokenizers of text drop a byte-order mark."""
        return self.encode_piece(text.Piece(data, "text", 0, starts_line, False, complete)).ids

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Returns the UTF-8 text of ids; for byte ids exactly these bytes, text or not."""
        return self.decode(ids).encode("utf-8", "surrogatepass")

    @abc.abstractmethod
    def symbol(self, token_id: int) -> str:
        """Returns the symbol of an id, for display."""

    @property
    def symbols(self) -> Sequence[str]:
        """The symbols of all ids, for comparison."""
        return [self.symbol(token_id) for token_id in range(self.vocab_size)]

    def checked(self, ids: Iterable[int]) -> list[int]:
        """Returns `ids` as a list.

        Raises:
          ValueError: an id is outside the vocabulary.
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
        """Writes `tokenizer.json` and the vocabulary, for `tokenizers.load`."""
        for name, data in self._vocabulary_files().items():
            files.write_bytes(f"{directory}/{name}", data)
        described = self._described | {"checksum": self.checksum}
        files.write_bytes(f"{directory}/{FILE_NAME}", _json(described).encode("utf-8"))

    @classmethod
    def read_vocabulary(cls, directory: str) -> dict[str, Any]:
        """Returns the fields that `save` wrote to separate files; use `tokenizers.load`.

        Raises:
          ValueError: a file is malformed; names it.
        """
        del directory
        return {}

    @property
    def _described(self) -> dict[str, Any]:
        saved = {k: v for k, v in self.options.items() if k not in self.ADDED or v != self.ADDED[k]}
        return {"kind": self.kind, "options": saved}

    def _vocabulary_files(self) -> Mapping[str, bytes]:
        """Returns the contents of each vocabulary file, by name."""
        return {}


def _json(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, indent=2) + "\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTokenizer(Tokenizer):
    """Base class of tokenizers of characters, which decode bytes first."""

    def encode(
        self, content: str, *, starts_line: bool = True, complete: bool = True
    ) -> np.ndarray:
        content = self.normalise(content, starts_line=starts_line, complete=complete)
        return self._encoding(content, starts_line=starts_line, complete=complete).ids

    def encode_piece(self, piece: text.Piece, invalid_utf8: str = "error") -> Encoding:
        decoded = text.decode(piece, invalid_utf8)
        content = self.normalise(decoded, starts_line=piece.starts_line, complete=piece.complete)
        try:
            encoding = self._encoding(
                content, starts_line=piece.starts_line, complete=piece.complete
            )
        except ValueError as error:
            raise ValueError(f"{piece.name}: {error}") from error
        if invalid_utf8 == "error":
            return encoding
        replaced = text.utf8_size(decoded) - text.size(piece)  # U+FFFD counts as what it replaces
        return encoding._replace(bytes=encoding.bytes - replaced)

    def read(self, piece: text.Piece, invalid_utf8: str = "error") -> str:
        """Returns the normalised text of a piece."""
        content = text.decode(piece, invalid_utf8)
        return self.normalise(content, starts_line=piece.starts_line, complete=piece.complete)

    def normalise(self, content: str, *, starts_line: bool, complete: bool) -> str:
        """Returns the text normalised by the options, for example in lower case."""
        del starts_line, complete
        return content

    @abc.abstractmethod
    def _encoding(self, content: str, *, starts_line: bool, complete: bool) -> Encoding:
        """Returns the tokens of normalised text, with the size of the text they decode to."""


class Learner(abc.ABC):
    """Builds a tokenizer in one pass: workers observe, one process merges in order."""

    @abc.abstractmethod
    def observe(self, piece: text.Piece, invalid_utf8: str = "error") -> Any:
        """Returns the statistics of a piece, picklable. Does not change the learner."""

    @abc.abstractmethod
    def add(self, observation: Any) -> None:
        """Merges the observation of the next piece."""

    @abc.abstractmethod
    def finish(self) -> Tokenizer:
        """Returns the tokenizer.

        Raises:
          ValueError: the text does not suffice for one.
        """

    def warnings(self) -> list[str]:
        """Returns warnings about the text."""
        return []
