"""JSON over HTTP, with a deadline for the complete response."""

import http.client
import json
import queue
import threading
import urllib.error
import urllib.request
from typing import Any

from txl_tf.serving_client import errors

_MAX_BYTES = 2**31  # of a response, as over gRPC
_CHUNK = 1 << 20
_Outcome = tuple[bytes, Exception | None]


def fetch(server: str, url: str, body: bytes | None, timeout: float) -> Any:
    """Returns the JSON response to a GET of `url`, or to a POST of `body`.

    Args:
      server: name of the server in messages.
      url: address of the request.
      body: body of a POST; None is a GET.
      timeout: seconds until the response must be complete.

    Raises:
      errors.ServerError: the request times out, fails or is refused, or the response is not JSON.
    """
    outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcomes.put((_read(server, url, body, timeout), None))
        except Exception as error:  # raised by the waiting thread
            outcomes.put((b"", error))

    # A socket's own timeout restarts with each byte. A late thread is abandoned.
    threading.Thread(target=work, daemon=True).start()
    try:
        content, error = outcomes.get(timeout=timeout)
    except queue.Empty:
        raise errors.too_slow(server, timeout) from None
    if error is not None:
        raise error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = f"a response that is not JSON: {content[:40]!r}"
        raise errors.unreachable(server, reason) from error


def _read(server: str, url: str, body: bytes | None, timeout: float) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return _content(server, answer)
    except urllib.error.HTTPError as error:
        raise errors.refusal(_reason(error), invalid=error.code == 400) from error
    except TimeoutError as error:
        raise errors.too_slow(server, timeout) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise errors.too_slow(server, timeout) from error
        raise errors.unreachable(server, error.reason) from error
    except (http.client.HTTPException, OSError, UnicodeError) as error:
        raise errors.unreachable(server, error or type(error).__name__) from error


def _content(server: str, answer: http.client.HTTPResponse) -> bytes:
    content = bytearray()
    while part := answer.read(_CHUNK):
        content += part
        if len(content) > _MAX_BYTES:
            raise errors.unreachable(server, f"more than {_MAX_BYTES} bytes")
    if answer.length:  # `read` with a size does not raise
        raise http.client.IncompleteRead(b"", answer.length)
    return bytes(content)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(_CHUNK))["error"])
    except (ValueError, LookupError, TypeError, RecursionError, OSError, http.client.HTTPException):
        return f"{error.url} answered {error.code} {error.reason}"  # not TensorFlow Serving's
