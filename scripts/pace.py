"""How far a long job is: a line of the log every few seconds, with rate and time left."""

import time

from absl import logging

_SILENCE = 10.0  # seconds between two lines


class Pace:
    """Logs at most every `_SILENCE` seconds, however often it is told. Time runs from its making.

    Args:
      unit: what is counted, for example "tokens".
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._start = self._told = time.monotonic()

    def tell(self, count: int, share: float | None, **values: object) -> None:
        """Logs `count`, its rate, the time left and `values`, if it is time.

        Args:
          count: of units done.
          share: the part of all work that they are; None if it is not known.
          **values: what else to say.
        """
        now = time.monotonic()
        if now - self._told < _SILENCE:
            return
        self._told, seconds = now, now - self._start
        values = {self._unit: count, f"{self._unit}_per_s": round(count / seconds)} | values
        if share:
            values["seconds_left"] = round(seconds / share - seconds)
        logging.info("%s", " ".join(f"{name}={value}" for name, value in values.items()))
