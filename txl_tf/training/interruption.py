"""Graceful shutdown: on SIGTERM and SIGINT, and on a cloud's preemption notice.

Each cloud is one function in `NOTICES`. It returns the reason of the preemption, or None, and
raises a ValueError if that cannot be determined.
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
_POLL_SECONDS = 3.0  # a notice comes 30 s before the end
_TIMEOUT_SECONDS = 3.0
_GCE_HEADERS = {"Metadata-Flavor": "Google"}  # required by the server
_GCE_HARMLESS = ("NONE", "MIGRATE_ON_HOST_MAINTENANCE")  # live migration does not stop it


class StopRequest:
    """Records SIGTERM and SIGINT (Ctrl-C) inside its context.

    After the first one the previous handlers are back: a second Ctrl-C ends the process at once.
    Outside the main thread, where Python allows no handlers, none is recorded. `note` is for other
    causes; the first signal after it is still handled here.

    Attributes:
      name: the first cause, or None.
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
        """Requests a stop, from any thread."""
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
    """Raises if a kind of notice is unknown or unavailable on this machine.

    Raises:
      ValueError: names the kind and, if unavailable, the host and its error.
    """
    if kind not in NOTICES:
        raise ValueError(f"preemption_notice must be one of {', '.join(NOTICES)}, got {kind!r}")
    ask = NOTICES[kind]
    try:
        if ask:
            ask()
    except ValueError as error:
        raise ValueError(
            f"preemption_notice must be none on this machine, got {kind!r}: {error}"
        ) from error


@contextlib.contextmanager
def noted(kind: str, stop: StopRequest) -> Iterator[None]:
    """Forwards a preemption notice to `stop` while the context is open."""
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
    """Polls until a notice comes or `left` is set."""
    has_failed = False
    while not left.is_set():
        try:
            if reason := ask():
                logging.warning("preemption notice: %s", reason)
                stop.note(STOP_NAME)
                return
        except ValueError as error:
            if not has_failed:
                logging.warning("cannot poll for preemption notices, retrying: %s", error)
            has_failed = True
        left.wait(_POLL_SECONDS)


def _gce() -> str | None:
    """Preemption notice of a Google Compute Engine VM, TPU VMs included."""
    preempted = _ask_gce("preempted")
    if preempted not in ("TRUE", "FALSE"):  # not a metadata server
        raise ValueError(f"{_gce_host()}: preempted must be TRUE or FALSE, got {preempted!r}")
    if preempted == "TRUE":
        return "preempted=TRUE"
    event = _ask_gce("maintenance-event")
    return None if event in _GCE_HARMLESS else f"maintenance-event={event}"


def _ask_gce(name: str) -> str:
    """Returns an attribute of this VM from its metadata server."""
    url = f"http://{_gce_host()}/computeMetadata/v1/instance/{name}"
    request = urllib.request.Request(url, headers=_GCE_HEADERS)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
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
