"""Record of the text and validation settings of a run, kept in its model_dir as data.json.

    {"train": {"since": 0, "tokens": 200, "documents": 1, "streams": [200], "sources": [...], ...},
     "valid": {..., "settings": {"eval.batch_size": 10, ...}}}

The position in the training text counts steps from `since` on, and so do the best validation and
the patience of early stopping: a run may switch to another text there.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.configs import validation
from txl_tf.configs.run import Config
from txl_tf.data import files, outputs
from txl_tf.data.batches import Batches
from txl_tf.training import initialization
from txl_tf.training.run_data import RunData

FILE_NAME = "data.json"
_SHOWN = 12  # digits of a checksum in a message


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitRecord:
    """One split of a run's data.

    Attributes:
      tokens, documents, streams: as in `SplitMetadata`.
      sources, checksums: names and SHA-256 of the text files, in order.
      settings: validation settings, by their names in the config.
      since: the step after which it is read from its start; None until decided.
    """

    tokens: int
    documents: int
    streams: tuple[int, ...]
    sources: tuple[str, ...]
    checksums: tuple[str, ...]
    settings: dict
    since: int | None = 0

    def __post_init__(self) -> None:
        validation.check_types(self)
        if len(self.sources) != len(self.checksums):
            raise ValueError(
                f"checksums must be {len(self.sources)}, one per source, got {len(self.checksums)}"
            )

    def changes(self, other: "SplitRecord") -> Iterator[tuple[str, Any, Any]]:
        """Yields (name, value here, value in `other`) for each difference.

        Names of text files do not count, their content does.
        """
        ours, theirs = (list(zip(s.sources, s.checksums, strict=True)) for s in (self, other))
        for number, (one, another) in enumerate(zip(ours, theirs, strict=False), start=1):
            if one[1] != another[1]:
                before, after = (f"{name} ({sha256[:_SHOWN]})" for name, sha256 in (one, another))
                yield f"source {number}", before, after
        if len(ours) != len(theirs):
            yield "the number of sources", len(ours), len(theirs)
        for name in ("tokens", "documents", "streams"):
            if getattr(self, name) != getattr(other, name):
                yield name, getattr(self, name), getattr(other, name)
        for name in other.settings:
            if self.settings.get(name) != other.settings[name]:
                yield name, self.settings.get(name), other.settings[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataRecord:
    """All data of a run; `valid` is None if it never validates."""

    train: SplitRecord
    valid: SplitRecord | None

    @property
    def valid_since(self) -> int:
        """The step after which validations are comparable with later ones."""
        return 0 if self.valid is None else self.valid.since or 0

    def at(self, step: int) -> "DataRecord":
        """Returns the record of a run at `step`, from which undecided splits are read.

        A run that fell back to a checkpoint before its training text began starts the text there.
        Its
        validation keeps its step: the best kept may be from before.
        """
        since = step if self.train.since is None else min(self.train.since, step)
        train, valid = dataclasses.replace(self.train, since=since), self.valid
        if valid is not None and valid.since is None:
            valid = dataclasses.replace(valid, since=step)
        return DataRecord(train=train, valid=valid)


def of_run(config: Config, data: RunData) -> DataRecord:
    """Returns the record of a new run."""
    valid = None if data.valid is None else _of_split(data.valid, _settings(config))
    return DataRecord(train=_of_split(data.train, {}), valid=valid)


def check(model_dir: str, wanted: DataRecord, new_data: bool) -> DataRecord:
    """Returns the record to resume with; `since` is None in splits that start anew.

    A run without checkpoints is not checked, nor is validation before the first. A run from before
    there were records is taken to have read the current data.

    Args:
      model_dir: of the run; may not exist yet.
      wanted: the current data and settings.
      new_data: whether to accept data other than the run's.

    Raises:
      ValueError: the data differ and `new_data` is false; names the first difference.
    """
    known = read(model_dir) if initialization.has_state(model_dir) else wanted
    if known is None:
        logging.info("%s not found: taking the current data for those of the run", _path(model_dir))
        since = None if new_data else 0
        parts = {name: dataclasses.replace(s, since=since) for name, s in vars(wanted).items() if s}
        return dataclasses.replace(wanted, **parts)
    has_best = bool(model_dirs.checkpoints(os.path.join(model_dir, model_dirs.BEST)))
    train = _continued("train", known.train, wanted.train, model_dir, new_data)
    valid = wanted.valid or known.valid
    if known.valid is not None and wanted.valid is not None and has_best:
        valid = _continued("valid", known.valid, wanted.valid, model_dir, new_data)
    return DataRecord(train=train, valid=valid)


def write(model_dir: str, record: DataRecord) -> None:
    """Writes the record; the file appears complete or not at all."""
    text = json.dumps(dataclasses.asdict(record), indent=2) + "\n"
    outputs.write(_path(model_dir), text.encode())


def read(model_dir: str) -> DataRecord | None:
    """Returns the record of a model_dir, or None if it has none.

    Raises:
      ValueError: the file is damaged; names the file and the field.
    """
    path = _path(model_dir)
    if not files.exists(path):
        return None
    try:
        return files.read_json(path, _from_json)
    except ValueError as error:
        raise ValueError(f"{error}; delete the file to accept the current data") from error


def _from_json(content: str) -> DataRecord:
    return validation.from_dict(DataRecord, validation.parse_json(content, "record"), "record")


def _path(model_dir: str) -> str:
    return os.path.join(model_dir, FILE_NAME)


def _of_split(batches: Batches, settings: Mapping[str, Any]) -> SplitRecord:
    split = batches.split_metadata
    return SplitRecord(
        tokens=split.tokens,
        documents=split.documents,
        streams=split.streams,
        sources=tuple(source.name for source in split.sources),
        checksums=tuple(source.sha256 for source in split.sources),
        settings=dict(settings),
    )


def _settings(config: Config) -> dict[str, Any]:
    """Returns the settings that validations depend on besides the text, with defaults filled in."""
    settings = {f"eval.{name}": value for name, value in dataclasses.asdict(config.eval).items()}
    defaults = {"segment_len": config.train.segment_len}
    for name in ("mem_len", "clamp_len", "attention_span"):
        defaults[name] = getattr(config.model, name)
    for name, value in defaults.items():
        if settings[f"eval.{name}"] is None:
            settings[f"eval.{name}"] = value
    return settings | {"train.eval_batches": config.train.eval_batches}


def _continued(
    name: str, known: SplitRecord, wanted: SplitRecord, model_dir: str, new_data: bool
) -> SplitRecord:
    """Returns `wanted` with the `since` of `known`, or undecided if it is accepted as new."""
    change = next(known.changes(wanted), None)
    if change is None:
        return dataclasses.replace(wanted, since=known.since)
    what, before, after = change
    what = what if what in wanted.settings else f"{what} of split {name!r}"
    if not new_data:
        raise ValueError(
            f"{what} must stay {before} in {model_dir}, got {after}; new_data accepts it and "
            f"resets {_RESET[name]}"
        )
    logging.warning("%s changes from %s to %s: resetting %s", what, before, after, _RESET[name])
    return dataclasses.replace(wanted, since=None)


_RESET = {"train": "the position in the text and the memory", "valid": "the best validation"}
