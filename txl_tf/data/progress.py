"""How far a pass over text is, logged every few seconds."""

import time

from absl import logging

_EVERY_SECONDS = 5.0


class Progress:
    """Logs the bytes done, their rate and the time left, if the work takes long enough.

    Attributes:
      done: bytes so far.
    """

    def __init__(self, name: str, total: int, every: float = _EVERY_SECONDS):
        self.name = name
        self.total = total
        self.every = every
        self.done = 0
        self._start = self._logged = time.monotonic()

    def reach(self, done: int) -> None:
        """Says that so many bytes are done."""
        self.done = done
        now = time.monotonic()
        if now - self._logged >= self.every:
            self._logged = now
            rate = done / (now - self._start)
            left = max(self.total - done, 0) / max(rate, 1.0)
            logging.info(
                "pass=%s mb=%.1f of_mb=%.1f mb_per_s=%.1f seconds_left=%.0f",
                *(self.name, done / 1e6, self.total / 1e6, rate / 1e6, left),
            )
