"""Notices that this machine will be taken away: asked for while a run goes on.

A cloud is one function in `NOTICES`. It returns why the machine is about to go, or None, and raises
a ValueError if that cannot be known.
"""

import contextlib
import http.client
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from absl import logging

from txl_tf.training.signals import StopRequest

STOP_NAME = "preemption"
_POLL_SECONDS = 3.0  # of the 30 between a notice and the end
_TIMEOUT_SECONDS = 3.0
_GCE_HEADERS = {"Metadata-Flavor": "Google"}  # a request without it is refused
_GCE_HARMLESS = ("NONE", "MIGRATE_ON_HOST_MAINTENANCE")  # a machine that moves goes on


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
