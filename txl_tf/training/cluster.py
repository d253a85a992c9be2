"""Workers of a run on several machines, from the environment variable TF_CONFIG."""

import dataclasses
import json
import os
from typing import Any

_JOBS = ("chief", "worker")  # in TensorFlow's order of workers
FORM = (
    '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}, '
    'with or without a "chief": ["HOST:PORT"]'
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Addresses of all workers, and the index of this one.

    Attributes:
      addresses: of all workers, the chief first.
      index: of this worker.
    """

    addresses: tuple[str, ...]
    index: int


def from_environment() -> Cluster | None:
    """Returns the cluster of TF_CONFIG, or None if it names no workers.

    Raises:
      ValueError: TF_CONFIG is not of the documented form; names the part.
    """
    text = os.environ.get("TF_CONFIG", "")
    try:
        tree = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise _error("be a JSON object with a cluster", text) from error
    jobs = _object(_object(tree, text).get("cluster", {}), text)
    addresses = {job: _addresses(job, jobs.get(job, [])) for job in _JOBS}
    if len(addresses["chief"]) > 1:
        raise _error("have at most one chief", addresses["chief"])
    workers = tuple(address for job in _JOBS for address in addresses[job])
    if not workers:
        return None
    task = _object(tree.get("task", {}), text)
    kind, index = task.get("type"), str(task.get("index"))
    if kind not in _JOBS or not addresses[kind]:
        jobs_given = " or ".join(job for job in _JOBS if addresses[job])
        raise _error(f"have a task of type {jobs_given}", kind)
    if not index.isdecimal() or int(index) >= len(addresses[kind]):
        raise _error(f"have a task index below the {len(addresses[kind])} of {kind}", index)
    before = len(addresses["chief"]) if kind == "worker" else 0
    return Cluster(workers, before + int(index))


def _object(tree: Any, text: str) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise _error("be a JSON object with a cluster", text)
    return tree


def _addresses(job: str, listed: Any) -> list[str]:
    """Returns the list; raises for a string, which would be split into letters."""
    if not isinstance(listed, list) or not all(isinstance(address, str) for address in listed):
        raise _error(f"have a list of addresses for {job}", listed)
    return listed


def _error(rule: str, value: object) -> ValueError:
    return ValueError(f"TF_CONFIG must {rule}, got {value!r}; its form is {FORM}")
