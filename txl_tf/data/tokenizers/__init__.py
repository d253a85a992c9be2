"""The tokenizers, by name, and reading one back."""

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
# All files that any of them saves.
FILES = (FILE_NAME, *dict.fromkeys(filter(None, (t.vocabulary_file for t in TOKENIZERS.values()))))


def kind(name: str) -> type[Tokenizer]:
    """The tokenizer class of this name."""
    if name not in TOKENIZERS:
        raise ValueError(f"tokenizer must be one of {', '.join(TOKENIZERS)}, got {name!r}")
    return TOKENIZERS[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """The contents of `tokenizer.json`; the vocabulary stands beside it.

    Attributes:
      kind: a name in `TOKENIZERS`.
      options: of that class.
      checksum: `Tokenizer.checksum`; None in files that were written before it was kept.
    """

    kind: str
    options: Mapping[str, Any]
    checksum: str | None = None

    def __post_init__(self) -> None:
        validation.check_choice(self, "kind", tuple(TOKENIZERS))

    @classmethod
    def from_json(cls, content: str) -> "Description":
        """Reads the text of the file.

        Raises:
          ValueError: it is no JSON object of this form.
        """
        return validation.from_dict(cls, validation.parse_json(content, "tokenizer"), "tokenizer")


def load(directory: str) -> Tokenizer:
    """Reads what `Tokenizer.save` wrote: the tokenizer of a data_dir or a model_dir.

    Raises:
      ValueError: it is not there or not in order; names the file.
    """
    directory = str(directory).rstrip("/")
    path = f"{directory}/{FILE_NAME}"
    if not files.exists(path):
        raise ValueError(f"{directory} must hold {FILE_NAME}, got none")
    described = files.read_json(path, Description.from_json)
    tokenizer_class = kind(described.kind)
    vocabulary = tokenizer_class.read_vocabulary(directory)
    try:
        found = validation.from_dict(tokenizer_class, described.options, "options", **vocabulary)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if described.checksum not in (None, found.checksum):
        raise ValueError(
            f"{path}: checksum must be that of options and vocabulary, {found.checksum[:12]}, got "
            f"{described.checksum[:12]}: one of them was changed after they were written"
        )
    return found
