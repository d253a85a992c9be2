"""The text and the settings of validation of a run, kept in its folder as data.json.

    {"train": {"since": 0, "tokens": 200, "documents": 1, "streams": [200], "sources": [...], ...},
     "valid": {..., "settings": {"eval.batch_size": 10, ...}}}

The position in the training text counts steps from `since` on, and so do the best validation and
the patience of an early stop: another text may begin there.
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
    """A split as a run reads it.

    Attributes:
      tokens, documents, streams: as in `SplitMetadata`.
      sources, checksums: names and SHA-256 of the text files, in order.
      settings: of a validation, by their names in the config.
      since: the step after which it is read from its start; None is not decided yet.
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
                f"checksums must be as many as the {len(self.sources)} sources, "
                f"got {len(self.checksums)}"
            )

    def changes(self, other: "SplitRecord") -> Iterator[tuple[str, Any, Any]]:
        """Yields the name, the value here and the value there of what differs.

        A text file may be called otherwise: its content counts.
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
    """All that a run reads; `valid` is None where it never validates."""

    train: SplitRecord
    valid: SplitRecord | None

    @property
    def valid_since(self) -> int:
        """The step after which validations are comparable with those to come."""
        return 0 if self.valid is None else self.valid.since or 0

    def at(self, step: int) -> "DataRecord":
        """Returns the record of a run that is at `step`, where what is new begins.

        A run may have fallen back to an earlier step than that where its text began: the text
        begins there then. A validation does not: the best that is kept may be of the one before.
        """
        since = step if self.train.since is None else min(self.train.since, step)
        train, valid = dataclasses.replace(self.train, since=since), self.valid
        if valid is not None and valid.since is None:
            valid = dataclasses.replace(valid, since=step)
        return DataRecord(train=train, valid=valid)


def of_run(config: Config, data: RunData) -> DataRecord:
    """The record of a new run."""
    valid = None if data.valid is None else _of_split(data.valid, _settings(config))
    return DataRecord(train=_of_split(data.train, {}), valid=valid)


def check(model_dir: str, wanted: DataRecord, new_data: bool) -> DataRecord:
    """Returns the record to go on with, its parts undecided where they begin anew.

    Nothing is asked of a run that has not saved yet, or for validation not validated, and a run
    that was begun before there were records takes the data at hand for its own.

    Args:
      model_dir: of the run; perhaps not there yet.
      wanted: the data and settings at hand.
      new_data: whether others than those of the run are accepted.

    Raises:
      ValueError: they are others, and not accepted; names the first difference.
    """
    known = read(model_dir) if initialization.has_state(model_dir) else wanted
    if known is None:
        logging.info("%s: none; the data at hand are taken for those of the run", _path(model_dir))
        since = None if new_data else 0
        parts = {name: dataclasses.replace(s, since=since) for name, s in vars(wanted).items() if s}
        return dataclasses.replace(wanted, **parts)
    has_best = bool(model_dirs.checkpoints(os.path.join(model_dir, model_dirs.BEST)))
    train = _goes_on("train", known.train, wanted.train, model_dir, new_data)
    valid = wanted.valid or known.valid
    if known.valid is not None and wanted.valid is not None and has_best:
        valid = _goes_on("valid", known.valid, wanted.valid, model_dir, new_data)
    return DataRecord(train=train, valid=valid)


def write(model_dir: str, record: DataRecord) -> None:
    """Writes the file; it appears whole or not at all."""
    text = json.dumps(dataclasses.asdict(record), indent=2) + "\n"
    outputs.write(_path(model_dir), text.encode())


def read(model_dir: str) -> DataRecord | None:
    """Returns the record of a folder; None where there is none.

    Raises:
      ValueError: it is damaged; names the file and the field.
    """
    path = _path(model_dir)
    if not files.exists(path):
        return None
    try:
        return files.read_json(path, _from_json)
    except ValueError as error:
        raise ValueError(
            f"{error}; without the file the data at hand are taken for those of the run"
        ) from error


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
    """What validations depend on besides the text, as it is after all defaults."""
    found = {f"eval.{name}": value for name, value in dataclasses.asdict(config.eval).items()}
    defaults = {"segment_len": config.train.segment_len}
    for name in ("mem_len", "clamp_len", "attention_span"):
        defaults[name] = getattr(config.model, name)
    for name, value in defaults.items():
        if found[f"eval.{name}"] is None:
            found[f"eval.{name}"] = value
    return found | {"train.eval_batches": config.train.eval_batches}


def _goes_on(
    name: str, known: SplitRecord, wanted: SplitRecord, model_dir: str, new_data: bool
) -> SplitRecord:
    """Returns `wanted` from where `known` is read, or from its start if it is accepted as new."""
    change = next(known.changes(wanted), None)
    if change is None:
        return dataclasses.replace(wanted, since=known.since)
    what, before, after = change
    what = what if what in wanted.settings else f"{what} of split {name!r}"
    if not new_data:
        raise ValueError(
            f"{what} must stay {before} in {model_dir}, got {after}; new_data accepts it and "
            f"starts {_ANEW[name]} anew"
        )
    logging.warning("%s changes from %s to %s: %s start anew", what, before, after, _ANEW[name])
    return dataclasses.replace(wanted, since=None)


_ANEW = {"train": "the position in the text and the memory", "valid": "the best validation"}
