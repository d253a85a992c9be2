"""Options of `prepare`: checked on construction, and recorded with the result."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from txl_tf.data import documents, files, text, tokenizers

VOCAB_FROM = ("train", "all")
VOCAB_REPEATS = ("error", "skip")
_FILES_WITH_ESCAPES = "vocab.txt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Options of converting text to tokens.

    >>> recipe = txl_tf.Recipe(tokenizer="word", options={"end_of_line": "eos"}, min_count=2)

    Attributes:
      tokenizer: a name in `tokenizers.TOKENIZERS`; None is the tokenizer of `vocab`, else "byte".
      options: of the tokenizer, see its class.
      vocab_size: maximum number of symbols, special ones included; None is unlimited.
      min_count: rarer symbols are unknown.
      vocab: an existing vocabulary: a data_dir or model_dir, whose tokenizer is used with all its
        options; a list of words or characters; or a SentencePiece model.
      extend_vocab: a data_dir or model_dir, whose tokenizer is used with all its options and ids;
        further symbols of the text are appended. `vocab_size` counts both, `min_count` applies to
        the new ones.
      vocab_repeats: whether a repeated line in a list of words is an "error", or to "skip", as in
        the original code.
      vocab_from: the splits whose symbols are counted, "train" or "all".
      document_boundary: a name in `documents.BOUNDARIES`.
      invalid_utf8: whether bytes that are not UTF-8 are an "error", or to "replace" by U+FFFD.
      shuffle_sentences: number of copies of each file in the train split, with lines reshuffled in
        each; 0 is one, in order. Equals the original TensorFlow code's treatment of lm1b, and holds
        a file's tokens in memory.
    """

    tokenizer: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    vocab_size: int | None = None
    min_count: int = 0
    vocab: str | None = None
    extend_vocab: str | None = None
    vocab_repeats: str = "error"
    vocab_from: str = "train"
    document_boundary: str = "file"
    invalid_utf8: str = "error"
    shuffle_sentences: int = 0

    def __post_init__(self) -> None:
        choices = {
            "vocab_from": VOCAB_FROM,
            "vocab_repeats": VOCAB_REPEATS,
            "document_boundary": tuple(documents.BOUNDARIES),
            "invalid_utf8": text.INVALID_UTF8,
        }
        for name, allowed in choices.items():
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        for name, minimum in (("vocab_size", 1), ("min_count", 0), ("shuffle_sentences", 0)):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"{name} must be at least {minimum}, got {value}")
        if self.shuffle_sentences and self.document_boundary == "blank_line":
            raise ValueError(
                "document_boundary must be file, line or none with shuffle_sentences, "
                "got blank_line"
            )
        if self.vocab is not None and self.extend_vocab is not None:
            raise ValueError(
                f"vocab must be left out with extend_vocab, got {self.vocab!r} and "
                f"{self.extend_vocab!r}"
            )
        if self.vocab is not None and (self.vocab_size is not None or self.min_count):
            raise ValueError(
                f"vocab_size and min_count must be left out with vocab, got {self.vocab_size} "
                f"and {self.min_count}"
            )

    def start(self) -> tokenizers.Tokenizer | tokenizers.Learner:
        """Returns the tokenizer, or the learner that builds it from text.

        Raises:
          ValueError: the options do not fit each other.
        """
        if self.vocab is not None and not files.exists(self.vocab):
            raise ValueError(
                f"vocab must be a file or a folder, got {self.vocab!r}, which does not exist"
            )
        if self.extend_vocab is not None:
            base = self._existing(self.extend_vocab)
            return base.extension(vocab_size=self.vocab_size, min_count=self.min_count)
        folder = self._vocab_folder()
        if folder is not None:
            return self._existing(folder)
        kind = tokenizers.kind(self.tokenizer or "byte")
        for name in self.options:
            if name not in kind.option_names():
                known = ", ".join(kind.option_names()) or "no options"
                raise ValueError(
                    f"{name} must be left out for tokenizer {kind.kind}, which takes {known}"
                )
        if self.vocab is not None:
            skip = self.vocab_repeats == "skip"
            return kind.from_list(self.vocab, skip_repeats=skip, **self.options)
        return kind.start(vocab_size=self.vocab_size, min_count=self.min_count, **self.options)

    def _vocab_folder(self) -> str | None:
        """Returns the folder of a whole tokenizer, also if `vocab` is the vocab.txt in it."""
        if self.vocab is None:
            return None
        if files.is_folder(self.vocab):
            return self.vocab
        folder, _, name = self.vocab.rpartition("/")
        is_escaped = name == _FILES_WITH_ESCAPES and files.exists(
            f"{folder or '.'}/{tokenizers.FILE_NAME}"
        )
        return (folder or ".") if is_escaped else None

    def _existing(self, folder: str) -> tokenizers.Tokenizer:
        found = tokenizers.load(folder)
        if self.tokenizer not in (None, found.kind):
            raise ValueError(
                f"tokenizer must be {found.kind} as in {folder}, got {self.tokenizer!r}"
            )
        for name, value in self.options.items():
            if found.options.get(name) != value:
                raise ValueError(
                    f"{name} must be {found.options.get(name)!r} as in {folder}, got {value!r}"
                )
        return found

    def record(self, start: tokenizers.Tokenizer | tokenizers.Learner) -> dict[str, Any]:
        """Returns all that determines the result except the text, as JSON values."""
        values = dataclasses.asdict(self)
        if self.extend_vocab is not None:
            return values | {"extend_vocab": tokenizers.load(self.extend_vocab).checksum}
        del values["extend_vocab"]
        if isinstance(start, tokenizers.Tokenizer):
            values |= {"vocab": start.checksum}
        return values
