"""What `metadata.json` says of a prepared data set: plain values, checked, to and from JSON."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from txl_tf.data import files
from txl_tf.data.text_size import TextSize

FORMAT_VERSION = 1
FILE_NAME = "metadata.json"
RUN_TOKENS = 8192  # of one Example: 40 kB a row in the reader, and reading costs next to nothing


def shard_name(split: str, index: int, count: int) -> str:
    """The file name of shard `index` of `count`, as in train-00003-of-00064.tfrecord."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A text file that a split was made from."""

    name: str
    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitMetadata:
    """One split: a stream of tokens, cut into shards.

    Attributes:
      shards: tokens of each shard, in stream order.
      tokens: tokens of the stream, the sum of `shards`.
      run_tokens: tokens of each Example but the last of a shard.
      streams: tokens of each of the streams that the split is made of, one after another. One, but
        for sentences that were shuffled file by file; only layout "reference" looks at them.
      unknown, bytes, characters: see `TextSize`.
      documents: documents in the stream.
      sources: the text files, in order.
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
        object.__setattr__(self, "shards", tuple(self.shards))
        object.__setattr__(self, "sources", tuple(self.sources))
        object.__setattr__(self, "streams", tuple(self.streams) or (self.tokens,))
        for field in ("shards", "streams"):
            if sum(getattr(self, field)) != self.tokens:
                raise ValueError(
                    f"{field} must add up to tokens {self.tokens}, got {getattr(self, field)}"
                )
        if self.run_tokens < 1:
            raise ValueError(f"run_tokens must be at least 1, got {self.run_tokens}")

    @property
    def size(self) -> TextSize:
        """The amount of text."""
        return TextSize(self.tokens, self.bytes, self.characters, self.unknown)

    def files(self, split: str) -> tuple[str, ...]:
        """The names of the shards, in stream order."""
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
      format_version: of the files; another one is refused.
    """

    tokenizer: Mapping[str, Any]
    vocab_size: int
    vocab_checksum: str
    splits: Mapping[str, SplitMetadata]
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if self.format_version != FORMAT_VERSION:
            raise ValueError(
                f"format_version must be {FORMAT_VERSION}, got {self.format_version}; "
                "prepare the data anew"
            )
        if self.vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {self.vocab_size}")

    def split(self, name: str) -> SplitMetadata:
        """The split of this name."""
        if name not in self.splits:
            raise ValueError(f"unknown split {name!r}; choose from {', '.join(self.splits)}")
        return self.splits[name]

    def check_vocabulary(self, vocab_size: int, checksum: str | None = None) -> None:
        """Refuses a model (or tokenizer) that was made for another vocabulary than the data.

        Raises:
          ValueError: the size, or the checksum where given, is another; the message has both.
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
        """Indented JSON with every field."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Metadata":
        """Reads `to_json`'s text.

        Raises:
          ValueError: the text is no JSON object of this form, or of another format version.
        """
        try:
            tree = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"must be JSON, got {error}") from error
        if isinstance(tree, dict) and "format_version" not in tree:
            raise ValueError("format_version must be given, got none")
        splits = tree.pop("splits", None) if isinstance(tree, dict) else None
        metadata = _build(cls, tree, splits={})
        if not isinstance(splits, dict):
            raise ValueError(f"splits must be a JSON object, got {splits!r}")
        return dataclasses.replace(metadata, splits={k: _split(v) for k, v in splits.items()})

    @classmethod
    def load(cls, data_dir: str) -> "Metadata":
        """Reads the `metadata.json` of a folder.

        Raises:
          ValueError: it is not there, or is not of this form; the message names the file.
        """
        path = f"{str(data_dir).rstrip('/')}/{FILE_NAME}"
        if not files.exists(path):
            raise ValueError(
                f"data_dir must hold {FILE_NAME}, as prepare_data writes it, got {str(data_dir)!r}"
            )
        try:
            return cls.from_json(files.read_text(path))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _split(tree: Any) -> SplitMetadata:
    sources = tree.pop("sources", []) if isinstance(tree, dict) else []
    return _build(SplitMetadata, tree, sources=tuple(_build(Source, s) for s in sources))


def _build(kind: Any, tree: Any, **parts: Any) -> Any:
    """Makes the dataclass `kind` from a JSON object and the `parts` that are built already."""
    if not isinstance(tree, dict):
        raise ValueError(f"{kind.__name__} must be a JSON object, got {tree!r}")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in tree:
        if name not in fields:
            raise ValueError(
                f"{kind.__name__} has no field {name!r}; choose from {', '.join(fields)}"
            )
    for name, field in fields.items():
        if name in tree:
            _check_type(f"{kind.__name__}.{name}", tree[name], field.type)
        elif field.default is dataclasses.MISSING and name not in parts:
            raise ValueError(f"{kind.__name__} must have {name}, got none")
    return kind(**tree, **parts)


def _check_type(name: str, value: Any, kind: Any) -> None:
    if kind in (int, str):
        fits, wanted = type(value) is kind, kind.__name__
    elif kind == tuple[int, ...]:
        wanted = "a list of int"
        fits = isinstance(value, list) and all(type(item) is int for item in value)
    else:
        fits, wanted = isinstance(value, dict), "a JSON object"
    if not fits:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
