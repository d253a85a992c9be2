"""Tokenizers by name, and loading of saved ones."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from txl_tf.configs import validation
from txl_tf.data import files
from txl_tf.data.tokenizers.byte import ByteTokenizer
from txl_tf.data.tokenizers.char import CharTokenizer
from txl_tf.data.tokenizers.sentencepiece import SentencePieceTokenizer
from txl_tf.data.tokenizers.tokenizer import FILE_NAME, Encoding, Learner, Tokenizer
from txl_tf.data.tokenizers.word import WordTokenizer

__all__ = [
    "FILES",
    "FILE_NAME",
    "TOKENIZERS",
    "ByteTokenizer",
    "CharTokenizer",
    "Encoding",
    "Learner",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "kind",
    "load",
]

TOKENIZERS: dict[str, type[Tokenizer]] = {
    tokenizer.kind: tokenizer
    for tokenizer in (ByteTokenizer, CharTokenizer, WordTokenizer, SentencePieceTokenizer)
}
# All files that tokenizers save.
FILES = (FILE_NAME, *dict.fromkeys(filter(None, (t.vocabulary_file for t in TOKENIZERS.values()))))


def kind(name: str) -> type[Tokenizer]:
    """Returns the tokenizer class of this name."""
    if name not in TOKENIZERS:
        raise ValueError(f"tokenizer must be one of {', '.join(TOKENIZERS)}, got {name!r}")
    return TOKENIZERS[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """Contents of `tokenizer.json`; the vocabulary is in a separate file.

    Attributes:
      kind: a name in `TOKENIZERS`.
      options: of that class.
      checksum: `Tokenizer.checksum`; None in files from before it was saved.
    """

    kind: str
    options: Mapping[str, Any]
    checksum: str | None = None

    def __post_init__(self) -> None:
        validation.check_choice(self, "kind", tuple(TOKENIZERS))

    @classmethod
    def from_json(cls, content: str) -> "Description":
        """Parses the text of the file.

        Raises:
          ValueError: the text is not a JSON object of this form.
        """
        return validation.from_dict(cls, validation.parse_json(content, "tokenizer"), "tokenizer")


def load(directory: str) -> Tokenizer:
    """Loads the tokenizer of a data_dir or a model_dir.

    >>> tokenizer = txl_tf.load_tokenizer("data")
    >>> tokenizer.decode(tokenizer.encode("Once upon a time"))
    'Once upon a time'

    Raises:
      ValueError: a file is missing or malformed; names it.
    """
    directory = str(directory).rstrip("/")
    path = f"{directory}/{FILE_NAME}"
    if not files.exists(path):
        raise ValueError(f"{directory} must hold {FILE_NAME}, got none")
    described = files.read_json(path, Description.from_json)
    tokenizer_class = kind(described.kind)
    vocabulary = tokenizer_class.read_vocabulary(directory)
    try:
        loaded = validation.from_dict(tokenizer_class, described.options, "options", **vocabulary)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if described.checksum not in (None, loaded.checksum):
        raise ValueError(
            f"{path}: checksum must match options and vocabulary, {loaded.checksum[:12]}, got "
            f"{described.checksum[:12]}: one of them was changed after it was written"
        )
    return loaded
