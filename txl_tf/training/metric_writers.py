"""The numbers of a run as a file of JSON lines, for whatever reads such files."""

import json
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from txl_tf.configs import validation
from txl_tf.data import files, outputs
from txl_tf.inference.metrics import plain

FILE_NAME = "metrics.jsonl"


class MetricsFile:
    """Appends one JSON object a line to model_dir/metrics.jsonl, with its step and its split.

    {"step": 200, "split": "train", "steps": 100, "nats": 1.93, ...}
    {"step": 200, "split": "valid", "nats": 1.98, ...}

    A run that goes on from a checkpoint calls `keep_until` first, so that no step is told twice.
    Numbers come back as they were; infinity and NaN, which JSON does not know, are null.
    """

    def __init__(self, model_dir: str) -> None:
        self._path = os.path.join(model_dir, FILE_NAME)

    def write(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Appends a line."""
        line = json.dumps(plain({"step": step, "split": split, **values}), allow_nan=False)
        with files.open_bytes(self._path, "ab") as file:
            file.write(f"{line}\n".encode())

    def keep_until(self, step: int) -> list[dict[str, Any]]:
        """Drops what comes after `step`, and lines that are not whole or of another form.

        Returns what stays.
        """
        if not files.exists(self._path):
            return []
        lines = files.read_bytes(self._path).splitlines(keepends=True)
        kept = []
        for line in lines:
            found = _read(line)
            if found is not None and found["step"] <= step:
                kept.append((line, found))
        if len(kept) < len(lines):
            outputs.write(self._path, b"".join(line for line, _ in kept))
            logging.info("%s: dropped %d lines", self._path, len(lines) - len(kept))
        return [found for _, found in kept]


def _read(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None where it is not whole: its writer was killed."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = validation.parse_json(line.decode("utf-8"), FILE_NAME)
    except ValueError:  # no JSON, or no UTF-8
        return None
    return found if isinstance(found, dict) and _is_ours(**found) else None


def _is_ours(step: Any = None, split: Any = None, **values: Any) -> bool:
    numbers = all(value is None or type(value) in (int, float) for value in values.values())
    return type(step) is int and isinstance(split, str) and numbers
