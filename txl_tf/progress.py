"""How far a long job is: a line of the log every few seconds, with rate and time left."""

import threading
import time
from typing import Any, NamedTuple, Self

from absl import logging

_EVERY_SECONDS = 10.0

_open: list["Progress"] = []  # innermost last


class _Reached(NamedTuple):
    time: float
    done: float
    share: float | None
    values: dict[str, Any]


class Progress:
    """Logs how far a job is, from a thread of its own; a job that ends before logs nothing.

        with Progress("score", "tokens", total=9000) as progress:
            for done in ...:
                progress.reach(done)

    A line is `job=score tokens=5120 of_tokens=9000 tokens_per_s=512 seconds_left=8`, and
    `job=score seconds=10` while nothing is counted. Rate and time left are those since the first
    `reach`: what comes before it, as compiling does, tells nothing of the rest. Of jobs within
    jobs the innermost is told of.

    Args:
      job: what is done.
      unit: what is counted.
      total: how much there is; None where it is not known.
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
        self._first: _Reached | None = None
        self._last: _Reached | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)

    def __enter__(self) -> Self:
        _open.append(self)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        _open.remove(self)
        self._end.set()
        self._thread.join()

    def reach(self, done: float, share: float | None = None, **values: Any) -> None:
        """Says how much is done; costs next to nothing.

        Args:
          done: of the units.
          share: the part of all work that they are, where `total` is not given; None: not known.
          **values: what else a line is to have.
        """
        if share is None and self._total:
            share = done / self._total
        self._last = _Reached(time.monotonic(), done, share, values)
        self._first = self._first or self._last

    def line(self) -> str:
        """Returns the text of a log line for now."""
        told: dict[str, Any] = {"job": self._job}
        first, last = self._first, self._last
        if first is None or last is None:
            told["seconds"] = round(time.monotonic() - self._start)
        else:
            told[self._unit] = last.done
            if self._total is not None:
                told[f"of_{self._unit}"] = self._total
            seconds = last.time - first.time
            if seconds > 0:
                told[f"{self._unit}_per_s"] = (last.done - first.done) / seconds
            told |= last.values
            if seconds > 0 and last.share is not None and last.share > (first.share or 0.0):
                left = (1.0 - last.share) * seconds / (last.share - (first.share or 0.0))
                told["seconds_left"] = max(round(left - (time.monotonic() - last.time)), 0)
        return " ".join(f"{name}={_text(value)}" for name, value in told.items())

    def _tell(self) -> None:
        while not self._end.wait(self._every):
            if _open and _open[-1] is self:
                logging.info("%s", self.line())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
