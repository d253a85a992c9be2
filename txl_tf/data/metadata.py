"""Metadata of a prepared data set, `metadata.json`: checked values, to and from JSON."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from txl_tf.configs import validation
from txl_tf.data import files
from txl_tf.data.text_size import TextSize

FORMAT_VERSION = 1
FILE_NAME = "metadata.json"
_CHECKSUM = "checksum"
RUN_TOKENS = 8192  # per Example: 40 kB per row in the reader, at little overhead


def shard_name(split: str, index: int, count: int) -> str:
    """Returns the file name of a shard, as in train-00003-of-00064.tfrecord."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A source text of a split."""

    name: str
    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitMetadata:
    """One split: a token stream, cut into shards.

    Attributes:
      shards: number of tokens of each shard, in stream order.
      tokens: number of tokens of the stream, the sum of `shards`.
      run_tokens: number of tokens of each Example except the last of a shard.
      streams: number of tokens of each stream that was concatenated. One, except for sentences
        shuffled file by file; used by layout "reference" only.
      unknown, bytes, characters: see `TextSize`.
      documents: number of documents.
      sources: the source texts, in order.
    """

    shards: tuple[int, ...]
    tokens: int
    run_tokens: int = RUN_TOKENS
    streams: tuple[int, ...] = ()
    unknown: int = 0
    bytes: int = 0
    characters: int = 0
    documents: int = 0
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "streams", self.streams or (self.tokens,))
        validation.check_types(self)
        validation.check_at_least(self, 1, "tokens", "run_tokens")
        validation.check_at_least(self, 0, "unknown", "bytes", "characters", "documents")
        validation.check(
            self.unknown <= self.tokens, "unknown", f"be at most {self.tokens}", self.unknown
        )
        for name in ("shards", "streams"):
            parts = getattr(self, name)
            validation.check(all(part >= 0 for part in parts), name, "not be negative", parts)
            validation.check(
                sum(parts) == self.tokens, name, f"add up to tokens {self.tokens}", parts
            )

    @property
    def size(self) -> TextSize:
        """Counts of the text."""
        return TextSize(self.tokens, self.bytes, self.characters, self.unknown)

    def files(self, split: str) -> tuple[str, ...]:
        """Returns the file names of the shards, in stream order."""
        count = len(self.shards)
        return tuple(shard_name(split, index, count) for index in range(count))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metadata:
    """A prepared data set.

    Attributes:
      tokenizer: its `kind` and its `options`.
      vocab_size: number of token ids, V; ids are below it.
      vocab_checksum: the tokenizer's checksum, over kind, options and vocabulary.
      splits: by name, for example "train".
      format_version: of the files; others cannot be read.
    """

    tokenizer: Mapping[str, Any]
    vocab_size: int
    vocab_checksum: str
    splits: Mapping[str, SplitMetadata]
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        validation.check_at_least(self, 1, "vocab_size")
        kind = self.tokenizer.get("kind")
        validation.check(isinstance(kind, str), "tokenizer", "have a kind", kind)

    def split(self, name: str) -> SplitMetadata:
        """Returns the split of this name."""
        if name not in self.splits:
            raise ValueError(f"unknown split {name!r}; choose from {', '.join(self.splits)}")
        return self.splits[name]

    def check_vocabulary(self, vocab_size: int, checksum: str | None = None) -> None:
        """Raises if a model or tokenizer has another vocabulary than the data.

        Raises:
          ValueError: the size or the given checksum differs; the message has both.
        """
        if vocab_size != self.vocab_size:
            raise ValueError(
                f"vocab_size must be the data's {self.vocab_size}, got {vocab_size} (the model's)"
            )
        if checksum is not None and checksum != self.vocab_checksum:
            raise ValueError(
                f"vocabulary must be the data's (checksum {self.vocab_checksum[:12]}), "
                f"got another of {vocab_size} symbols (checksum {checksum[:12]})"
            )

    def to_json(self) -> str:
        """Returns indented JSON of all fields, with a checksum over them."""
        tree = dataclasses.asdict(self)
        tree |= {_CHECKSUM: _checksum(tree)}
        return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Metadata":
        """Parses the text of `to_json`; the checksum may be missing, as in older files.

        Raises:
          ValueError: the text is not a JSON object of this form, has another format version, or
            fails its checksum.
        """
        tree = validation.parse_json(text, "metadata")
        validation.check(isinstance(tree, dict), "metadata", "be a JSON object", tree)
        version = tree.get("format_version")
        if version != FORMAT_VERSION or type(version) is not int:
            raise ValueError(
                f"format_version must be {FORMAT_VERSION}, got {validation.shown(version)}; "
                "prepare the data again"
            )
        checksum = tree.pop(_CHECKSUM, None)
        loaded = validation.from_dict(cls, tree, "metadata")
        if checksum not in (None, _checksum(tree)):
            raise ValueError(
                f"{_CHECKSUM} must match the other fields, {_checksum(tree)[:12]}, got "
                f"{validation.shown(checksum)[:14]}: a field was changed after it was written; "
                "prepare the data again"
            )
        return loaded

    @classmethod
    def load(cls, data_dir: str) -> "Metadata":
        """Reads the `metadata.json` of a folder.

        Raises:
          ValueError: the file is missing or malformed; names the file.
        """
        path = f"{str(data_dir).rstrip('/')}/{FILE_NAME}"
        if not files.exists(path):
            raise ValueError(
                f"data_dir must hold {FILE_NAME} of prepare_data, got {str(data_dir)!r}"
            )
        return files.read_json(path, cls.from_json)


def _checksum(tree: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the values of a JSON object, regardless of key order and layout."""
    plain = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode("utf-8")).hexdigest()
