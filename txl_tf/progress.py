"""Progress of long jobs: a log line every few seconds, with rate and time left."""

import threading
import time
from typing import Any, NamedTuple, Self

from absl import logging

_EVERY_SECONDS = 10.0

_open: list["Progress"] = []  # innermost last


class _Report(NamedTuple):
    time: float
    done: float
    fraction: float | None
    values: dict[str, Any]


class Progress:
    """Logs the progress of a job from a thread; a job shorter than `every` logs nothing.

        with Progress("score", "tokens", total=9000) as progress:
            for done in ...:
                progress.reach(done)

    A line is `job=score tokens=5120 of_tokens=9000 tokens_per_s=512 seconds_left=8`, and
    `job=score seconds=10` before the first `reach`. Rate and time left are measured from there, as
    earlier work such as compilation is not representative. Of nested jobs only the innermost logs.

    Args:
      job: name of the job.
      unit: unit of progress.
      total: number of units; None if unknown.
      every: seconds between two lines.
    """

    def __init__(
        self,
        job: str,
        unit: str = "steps",
        total: float | None = None,
        every: float = _EVERY_SECONDS,
    ) -> None:
        self._job, self._unit, self._total, self._every = job, unit, total, every
        self._start = time.monotonic()
        self._first: _Report | None = None
        self._last: _Report | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._log, name="progress", daemon=True)

    def __enter__(self) -> Self:
        _open.append(self)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        _open.remove(self)
        self._end.set()
        self._thread.join()

    def reach(self, done: float, fraction: float | None = None, **values: Any) -> None:
        """Records progress; nearly free.

        Args:
          done: number of units done.
          fraction: fraction of all work, if `total` is not given; None is unknown.
          **values: further values of the log line.
        """
        if fraction is None and self._total:
            fraction = done / self._total
        self._last = _Report(time.monotonic(), done, fraction, values)
        self._first = self._first or self._last

    def line(self) -> str:
        """Returns the current log line."""
        values: dict[str, Any] = {"job": self._job}
        first, last = self._first, self._last
        if first is None or last is None:
            values["seconds"] = round(time.monotonic() - self._start)
        else:
            values[self._unit] = last.done
            if self._total is not None:
                values[f"of_{self._unit}"] = self._total
            seconds = last.time - first.time
            if seconds > 0:
                values[f"{self._unit}_per_s"] = (last.done - first.done) / seconds
            values |= last.values
            begun = first.fraction or 0.0
            if seconds > 0 and last.fraction is not None and last.fraction > begun:
                left = (1.0 - last.fraction) * seconds / (last.fraction - begun)
                values["seconds_left"] = max(round(left - (time.monotonic() - last.time)), 0)
        return " ".join(f"{name}={_text(value)}" for name, value in values.items())

    def _log(self) -> None:
        while not self._end.wait(self._every):
            if _open and _open[-1] is self:
                logging.info("%s", self.line())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
