"""Training log: one line and one record per interval."""

import contextlib
import math
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from txl_tf.configs.run import TrainConfig
from txl_tf.data.text_size import TextSize
from txl_tf.inference.evaluation import Evaluation
from txl_tf.inference.metrics import Bits, bits, perplexity
from txl_tf.training.skips import SkippedSteps
from txl_tf.training.step import Metrics

_MAX_INTERVAL = 60.0  # seconds
_COUNTS = {"skipped": "skipped_steps", "without_targets": "steps_without_targets"}


class Record(Protocol):
    """A metric writer: `Summaries` or `MetricsFile`."""

    def write(self, split: str, step: int, values: Mapping[str, Any], /) -> None:
        """Writes the values of a split at a step, by name."""


class ProgressLog:
    """Collects metrics of steps without waiting for them, until the next log line.

    The first line is of the first step and gives its duration, compilation included. Later ones
    have the rate and the time left; time inside `paused` does not count.

    Args:
      config: of the run; its length, and the skipped steps in a row that end it.
      unit: of the tokenizer; the loss is also given in bits per unit, or as perplexity without a
        unit or without known sizes.
      size: of the training text.
      records: metric writers.
    """

    def __init__(
        self, config: TrainConfig, unit: str | None, size: TextSize, records: Sequence[Record]
    ) -> None:
        self._train_steps = config.train_steps
        self._skips = SkippedSteps(config.train_steps, config.max_skipped_steps)
        self._unit = unit
        self._size = size
        self._records = records
        self._pending: list[tuple[int, Metrics]] = []
        self._compiled = False
        self._begin()

    def _begin(self) -> None:
        self._nats = self._tokens = self._seconds = 0.0
        self._steps = 0
        self._since = time.monotonic()

    def resume(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Continues the counts of skipped steps from the lines of a metrics.jsonl."""
        for attribute, name in _COUNTS.items():
            count = max((line.get(name, 0) for line in lines), default=0)
            setattr(self._skips, attribute, count)

    def note(self, step: int, metrics: Metrics) -> None:
        """Queues the metrics of a step that was started; does not wait for its end.

        Metrics with an axis are those of several steps, of which `step` is the first.
        """
        self._pending.append((step, metrics))

    def is_due(self, step: int, log_every: int) -> bool:
        """Whether to log: after the first step, every `log_every`, and after a minute."""
        overdue = time.monotonic() - self._since + self._seconds > _MAX_INTERVAL
        return not self._compiled or step % log_every == 0 or overdue

    def log_interval(self, step: int) -> float:
        """Logs the steps since the last line; returns their mean loss in nats (NaN: all skipped).

        Raises:
          NonFiniteError: too many steps were skipped; names the last.
        """
        self._collect()
        nats = self._nats / self._tokens if self._tokens else math.nan  # all were skipped
        values = self._measures(nats, bits(nats, self._size))
        values |= {"lr": self._last.learning_rate, "gradient_norm": self._last.gradient_norm}
        if self._last.expert_entropy >= 0:
            values |= {"dropped": self._last.dropped, "expert_entropy": self._last.expert_entropy}
        counts = {name: getattr(self._skips, attribute) for attribute, name in _COUNTS.items()}
        values |= {name: count for name, count in counts.items() if count}
        record: dict[str, float] = {"steps": self._steps, "skipped_steps": self._skips.skipped}
        if self._compiled:
            left = (self._train_steps - step) * self._seconds / self._steps
            rates = {"tokens_per_s": self._tokens / self._seconds}
            logging.info("step=%d %s seconds_left=%.0f", step, _line(values | rates), left)
            record |= rates
        else:
            logging.info("step=%d %s first_step_s=%.1f", step, _line(values), self._seconds)
            record["first_step_s"] = self._seconds
        self._write("train", step, values | record | memory_use())
        self._compiled = True
        self._begin()
        return nats

    def log_validation(self, step: int, valid: Evaluation) -> None:
        """Logs and records a validation."""
        values = self._measures(valid.nats_per_token, valid)
        logging.info("step=%d valid: %s scored=%d", step, _line(values), valid.scored)
        self._write("valid", step, values | {"scored": valid.scored})

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Waits for all steps started and checks them; the clock stops inside the context.

        Raises:
          NonFiniteError: too many steps were skipped; names the last.
        """
        self._collect()
        yield
        self._since = time.monotonic()

    def _write(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        for writer in self._records:
            writer.write(split, step, values)

    def _collect(self) -> None:
        for first, metrics in self._pending:
            by_step = np.stack([np.ravel(value) for value in metrics], axis=1)  # waits for results
            for step, values in enumerate(by_step.tolist(), start=first):
                step_metrics = Metrics(*values)
                self._last = step_metrics
                self._skips.note(step, step_metrics)
                if not step_metrics.skipped:
                    self._nats += step_metrics.loss * step_metrics.tokens
                    self._tokens += step_metrics.tokens
                self._steps += 1
        self._pending.clear()
        now = time.monotonic()
        self._seconds += now - self._since
        self._since = now

    def _measures(self, nats: float, sizes: Bits | Evaluation) -> dict[str, float]:
        """Returns the loss in nats, with bits per unit or perplexity, as is usual for the unit."""
        name = f"bits_per_{self._unit}"
        bits_per_unit = getattr(sizes, name, None)
        if bits_per_unit is None:
            return {"loss": nats, "perplexity": perplexity(nats)}
        return {"loss": nats, name: bits_per_unit}


def _line(values: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in values.items())


def memory_use() -> dict[str, int]:
    """Returns `memory_bytes` resident in RAM and, with GPUs, the sum of their peaks."""
    memory = {"memory_bytes": _resident()}
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        peaks = (tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus)
        memory["gpu_memory_bytes"] = sum(peaks)
    return memory


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the peak instead
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
