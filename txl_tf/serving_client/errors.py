"""The error of a server that does not answer, refuses, or answers oddly."""

import re


class ServerError(ValueError):
    """A server's refusal, or the lack of an answer that can be used.

    Attributes:
      invalid: whether the request was at fault.
    """

    def __init__(self, message: str, *, invalid: bool = False):
        super().__init__(message)
        self.invalid = invalid


def refusal(message: str, *, invalid: bool) -> ServerError:
    """Returns a server's message, without the wrapping of checks inside its graph."""
    found = re.match(r"assertion failed: \[(.*)\]$", message, re.MULTILINE)
    return ServerError(found[1] if found else message, invalid=invalid)


def unreachable(server: str, reason: object) -> ServerError:
    """Returns the error of a server that cannot be spoken with."""
    return ServerError(f"server must answer at {server}, got: {reason}")


def too_slow(server: str, timeout: float) -> ServerError:
    """Returns the error of a server that has not answered in time."""
    return ServerError(
        f"server {server} must answer within timeout {timeout:g} s, got no whole answer"
    )
