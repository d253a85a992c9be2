"""Metrics of a run: a file of JSON lines, and TensorBoard event files."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from txl_tf.configs import validation
from txl_tf.data import files, outputs, tfrecord
from txl_tf.inference.metrics import plain

FILE_NAME = "metrics.jsonl"


class MetricsFile:
    """Appends one JSON object per line to model_dir/metrics.jsonl, with its step and split.

    {"step": 200, "split": "train", "steps": 100, "loss": 1.93, ...}
    {"step": 200, "split": "valid", "loss": 1.98, ...}

    A resumed run calls `keep_until` first, so that no step is logged twice. Numbers are read back
    exactly; infinity and NaN, which JSON lacks, are null.
    """

    def __init__(self, model_dir: str) -> None:
        self._path = os.path.join(model_dir, FILE_NAME)

    def write(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Appends a line."""
        line = json.dumps(plain({"step": step, "split": split, **values}), allow_nan=False)
        with files.open_bytes(self._path, "ab") as file:
            file.write(f"{line}\n".encode())

    def keep_until(self, step: int) -> list[dict[str, Any]]:
        """Drops lines after `step`, and incomplete or malformed ones.

        Returns the lines kept.
        """
        if not files.exists(self._path):
            return []
        lines = files.read_bytes(self._path).splitlines(keepends=True)
        kept = []
        for line in lines:
            record = _read(line)
            if record is not None and record["step"] <= step:
                kept.append((line, record))
        if len(kept) < len(lines):
            outputs.write(self._path, b"".join(line for line, _ in kept))
            logging.info("%s: dropped %d lines", self._path, len(lines) - len(kept))
        return [record for _, record in kept]


def _read(line: bytes) -> dict[str, Any] | None:
    """Returns the object of a line, or None if it is incomplete: its writer was killed."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = validation.parse_json(line.decode("utf-8"), FILE_NAME)
    except ValueError:  # not JSON, or not UTF-8
        return None
    return record if isinstance(record, dict) and _is_metrics(**record) else None


def _is_metrics(step: Any = None, split: Any = None, **values: Any) -> bool:
    numbers = all(value is None or type(value) in (int, float) for value in values.values())
    return type(step) is int and isinstance(split, str) and numbers


_CONFIG = "config"


class Summaries:
    """Writes scalars and texts under model_dir/tensorboard.

    One folder per curve, so that train and valid overlay. A resumed run adds files to the same
    folders, and calls `begin` first, so that no step is logged twice.
    """

    def __init__(self, model_dir: str) -> None:
        self._folder = os.path.join(model_dir, "tensorboard")
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def begin(self, step: int, config: str) -> None:
        """Drops events after `step`, and writes the config as text at that step."""
        for folder in filter(files.is_folder, _paths(self._folder)):
            with_points = [path for path in _paths(folder) if ".tfevents." in path]
            for path in with_points:
                _keep_until(step, path)
        self.write_text("train", step, _CONFIG, config)

    def write(self, curve: str, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to the chart of each value."""
        with self._writing(curve):
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)

    def write_text(self, curve: str, step: int, name: str, text: str) -> None:
        """Adds a text, indented so that TensorBoard does not render it as Markdown."""
        with self._writing(curve):
            lines = text.splitlines() or [""]
            tf.summary.text(name, "\n".join(f"    {line}" for line in lines), step=step)

    @contextlib.contextmanager
    def _writing(self, curve: str) -> Iterator[None]:
        if curve not in self._writers:
            folder = os.path.join(self._folder, curve)
            self._writers[curve] = tf.summary.create_file_writer(folder)
        with self._writers[curve].as_default():
            yield
        self._writers[curve].flush()


def _paths(folder: str) -> list[str]:
    if not files.is_folder(folder):
        return []
    return [os.path.join(folder, name) for name in files.names(folder)]


def _keep_until(step: int, path: str) -> None:
    """Rewrites an event file without later events, the config of `step` and a truncated end."""
    kept, is_whole = [], True
    try:
        for record in tfrecord.records(path):
            event = tf.compat.v1.Event.FromString(record)
            if event.step < step or event.step == step and not _is_config(event):
                kept.append(record)
            else:
                is_whole = False
    except ValueError:  # its writer was killed
        is_whole = False
    if is_whole:
        return
    outputs.sweep(path)
    with outputs.draft(path) as folder:
        draft = os.path.join(folder, "draft")  # TensorBoard ignores this name
        with tfrecord.RecordWriter(draft) as file:
            for record in kept:
                file.write(record)
        files.rename(draft, path)


def _is_config(event: Any) -> bool:
    return any(value.tag == _CONFIG for value in event.summary.value)
