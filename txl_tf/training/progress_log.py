"""What a run tells while it trains: a line of the log per period, and its numbers to keep."""

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

_LONGEST_SILENCE = 60.0  # seconds
_COUNTS = {"skipped": "skipped_steps", "without_targets": "steps_without_targets"}


class Record(Protocol):
    """Keeps numbers of a split at a step: `Summaries`, `MetricsFile`."""

    def write(self, split: str, step: int, values: Mapping[str, Any], /) -> None:
        """Adds the values, by name."""


class ProgressLog:
    """Takes note of steps without waiting for them, until it is to tell.

    The first line is of the first step and says how long that took: it compiles. Later ones have
    the rate and the time left; what happens in `paused` does not count.

    Args:
      config: of the run: how long it is, and how many skipped steps in a row end it.
      unit: of the tokenizer: a loss is given in bits for each, or as perplexity where there is none
        or bits are not known.
      size: of the training text.
      records: where the numbers go.
    """

    def __init__(
        self, config: TrainConfig, unit: str | None, size: TextSize, records: Sequence[Record]
    ) -> None:
        self._train_steps = config.train_steps
        self._skips = SkippedSteps(config.train_steps, config.max_skipped_steps)
        self._unit = unit
        self._size = size
        self._records = records
        self._noted: list[tuple[int, Metrics]] = []
        self._compiled = False
        self._begin()

    def _begin(self) -> None:
        self._nats = self._tokens = self._seconds = 0.0
        self._steps = 0
        self._since = time.monotonic()

    def go_on(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Counts steps that changed nothing on from the lines of a metrics.jsonl."""
        for attribute, name in _COUNTS.items():
            count = max((line.get(name, 0) for line in lines), default=0)
            setattr(self._skips, attribute, count)

    def note(self, step: int, metrics: Metrics) -> None:
        """Takes note of a step that has been started; does not wait for its end.

        Metrics with an axis are of several steps, of which this is the first.
        """
        self._noted.append((step, metrics))

    def is_due(self, step: int, log_every: int) -> bool:
        """Whether to tell: after the first step, each `log_every`, and a minute of silence."""
        silent = time.monotonic() - self._since + self._seconds > _LONGEST_SILENCE
        return not self._compiled or step % log_every == 0 or silent

    def tell(self, step: int) -> float:
        """Logs the steps since the last time; returns their mean loss in nats.

        That is NaN where all of them were skipped.

        Raises:
          NonFiniteError: a step went wrong; names the first.
        """
        self._settle()
        nats = self._nats / self._tokens if self._tokens else math.nan  # all were skipped
        values = self._measures(nats, bits(nats, self._size))
        values |= {"lr": self._last.learning_rate, "gradient_norm": self._last.gradient_norm}
        if self._last.expert_entropy >= 0:
            values |= {"dropped": self._last.dropped, "expert_entropy": self._last.expert_entropy}
        counts = {name: getattr(self._skips, attribute) for attribute, name in _COUNTS.items()}
        values |= {name: count for name, count in counts.items() if count}
        kept: dict[str, float] = {"steps": self._steps, "skipped_steps": self._skips.skipped}
        if self._compiled:
            left = (self._train_steps - step) * self._seconds / self._steps
            rates = {"tokens_per_s": self._tokens / self._seconds}
            logging.info("step=%d %s seconds_left=%.0f", step, _line(values | rates), left)
            kept |= rates
        else:
            logging.info("step=%d %s first_step_s=%.1f", step, _line(values), self._seconds)
            kept["first_step_s"] = self._seconds
        self._write("train", step, values | kept | memory_use())
        self._compiled = True
        self._begin()
        return nats

    def tell_validation(self, step: int, valid: Evaluation) -> None:
        """Logs a validation."""
        values = self._measures(valid.nats_per_token, valid)
        logging.info("step=%d valid: %s scored=%d", step, _line(values), valid.scored)
        self._write("valid", step, values | {"scored": valid.scored})

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Waits for all steps begun and checks them; the clock stands until the end.

        Raises:
          NonFiniteError: a step went wrong; names the first.
        """
        self._settle()
        yield
        self._since = time.monotonic()

    def _write(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        for record in self._records:
            record.write(split, step, values)

    def _settle(self) -> None:
        for first, noted in self._noted:
            by_step = np.stack([np.ravel(value) for value in noted], axis=1)  # waits for the steps
            for step, values in enumerate(by_step.tolist(), start=first):
                metrics = Metrics(*values)
                self._last = metrics
                self._skips.note(step, metrics)
                if not metrics.skipped:
                    self._nats += metrics.loss * metrics.tokens
                    self._tokens += metrics.tokens
                self._steps += 1
        self._noted.clear()
        now = time.monotonic()
        self._seconds += now - self._since
        self._since = now

    def _measures(self, nats: float, found: Bits | Evaluation) -> dict[str, float]:
        """A loss per token as it is, and as people know it for this kind of text."""
        name = f"bits_per_{self._unit}"
        bits_per_unit = getattr(found, name, None)
        if bits_per_unit is None:
            return {"loss": nats, "perplexity": perplexity(nats)}
        return {"loss": nats, name: bits_per_unit}


def _line(values: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in values.items())


def memory_use() -> dict[str, int]:
    """`memory_bytes` resident in RAM; where there are GPUs, the most of all they had to hold."""
    found = {"memory_bytes": _resident()}
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        peaks = (tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus)
        found["gpu_memory_bytes"] = sum(peaks)
    return found


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux: the most it ever took
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
