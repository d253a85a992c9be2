"""Graceful shutdown: on SIGTERM and SIGINT, and on notice that the machine will be taken away.

A cloud is one function in `NOTICES`. It returns why the machine is about to go, or None, and raises
a ValueError if that cannot be known.
"""

import contextlib
import http.client
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from absl import logging

STOP_NAME = "preemption"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_SECONDS = 3.0  # of the 30 between a notice and the end
_TIMEOUT_SECONDS = 3.0
_GCE_HEADERS = {"Metadata-Flavor": "Google"}  # a request without it is refused
_GCE_HARMLESS = ("NONE", "MIGRATE_ON_HOST_MAINTENANCE")  # a machine that moves goes on


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


def check(kind: str) -> None:
    """Refuses a kind of notice that there is not, or that cannot be asked for on this machine.

    Raises:
      ValueError: names the kind and, where it cannot be asked for, who did not answer and why.
    """
    if kind not in NOTICES:
        raise ValueError(f"preemption_notice must be one of {', '.join(NOTICES)}, got {kind!r}")
    ask = NOTICES[kind]
    try:
        if ask:
            ask()
    except ValueError as error:
        raise ValueError(
            f"preemption_notice must be none where it cannot be asked for, got {kind!r}: {error}"
        ) from error


@contextlib.contextmanager
def noted(kind: str, stop: StopRequest) -> Iterator[None]:
    """Has `stop` note a notice that comes while this is entered."""
    ask = NOTICES[kind]
    if ask is None:
        yield
        return
    left = threading.Event()
    thread = threading.Thread(target=_poll, args=(ask, stop, left), name=STOP_NAME, daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def _poll(ask: Callable[[], str | None], stop: StopRequest, left: threading.Event) -> None:
    """Asks until there is a notice or `left` is set."""
    has_failed = False
    while not left.is_set():
        try:
            if reason := ask():
                logging.warning("preemption notice: %s", reason)
                stop.note(STOP_NAME)
                return
        except ValueError as error:
            if not has_failed:
                logging.warning("preemption notices fail, still asked for: %s", error)
            has_failed = True
        left.wait(_POLL_SECONDS)


def _gce() -> str | None:
    """Of a virtual machine of Google Compute Engine, those of TPUs among them."""
    preempted = _ask_gce("preempted")
    if preempted not in ("TRUE", "FALSE"):  # some other server
        raise ValueError(f"{_gce_host()}: preempted must be TRUE or FALSE, got {preempted!r}")
    if preempted == "TRUE":
        return "preempted=TRUE"
    event = _ask_gce("maintenance-event")
    return None if event in _GCE_HARMLESS else f"maintenance-event={event}"


def _ask_gce(name: str) -> str:
    """A value of this machine, from its metadata server."""
    url = f"http://{_gce_host()}/computeMetadata/v1/instance/{name}"
    request = urllib.request.Request(url, headers=_GCE_HEADERS)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # else of the proxy
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.read(80).decode("utf-8", "replace").strip()
    except urllib.error.HTTPError as error:
        raise ValueError(f"{_gce_host()}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(f"{_gce_host()}: {getattr(error, 'reason', error)}") from error


def _gce_host() -> str:
    return os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"


NOTICES: dict[str, Callable[[], str | None] | None] = {"none": None, "gce": _gce}
