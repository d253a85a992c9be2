"""The tokenizers, by name, and reading one back."""

import json

from txl_tf.data import files
from txl_tf.data.tokenizers.byte import ByteTokenizer
from txl_tf.data.tokenizers.char import CharTokenizer
from txl_tf.data.tokenizers.sentencepiece import SentencePieceTokenizer
from txl_tf.data.tokenizers.tokenizer import FILE_NAME, Encoding, Learner, Tokenizer
from txl_tf.data.tokenizers.word import WordTokenizer

__all__ = [
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
    "byte": ByteTokenizer,
    "char": CharTokenizer,
    "word": WordTokenizer,
    "sentencepiece": SentencePieceTokenizer,
}


def kind(name: str) -> type[Tokenizer]:
    """The tokenizer class of this name."""
    if name not in TOKENIZERS:
        raise ValueError(f"tokenizer must be one of {', '.join(TOKENIZERS)}, got {name!r}")
    return TOKENIZERS[name]


def load(directory: str) -> Tokenizer:
    """Reads what `Tokenizer.save` wrote: the tokenizer of a data_dir or a model_dir.

    Raises:
      ValueError: it is not there or not in order; names the file.
    """
    directory = str(directory).rstrip("/")
    path = f"{directory}/{FILE_NAME}"
    if not files.exists(path):
        raise ValueError(f"{directory} must hold {FILE_NAME}, got none")
    try:
        tree = json.loads(files.read_text(path))
        return kind(tree["kind"]).load(directory, tree["options"])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} must hold the kind and options of a tokenizer, got {error!r}"
        ) from error
