"""A polite end: what asks a process to stop is noted, so that the loop can save first."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from absl import logging

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Notes SIGTERM and SIGINT (Ctrl-C) while it is entered.

    After the first one the usual handlers are back: a second Ctrl-C ends the process at once.
    Outside the main thread, where Python allows no handlers, it notes none. `note` is for what is
    no signal; the first signal after it is one that is noted.

    Attributes:
      name: of what came first, or None.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._usual: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._usual = {n: signal.signal(n, self._note_signal) for n in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def note(self, name: str) -> None:
        """Asks the process to stop, from any thread."""
        if self.name is None:
            self.name = name
            logging.warning("%s: saving after this step, then stopping", name)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self.note(signal.Signals(number).name)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)
        self._usual = {}
