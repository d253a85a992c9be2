"""Errors of a model server: unreachable, too slow, refused requests and invalid responses."""

import re


class ServerError(ValueError):
    """A failed request, or an unusable response.

    Attributes:
      invalid: whether the request was invalid.
    """

    def __init__(self, message: str, *, invalid: bool = False):
        super().__init__(message)
        self.invalid = invalid


def refusal(message: str, *, invalid: bool) -> ServerError:
    """Returns the error of a refused request, stripped of the prefix of in-graph assertions."""
    found = re.match(r"assertion failed: \[(.*)\]$", message, re.MULTILINE)
    return ServerError(found[1] if found else message, invalid=invalid)


def unreachable(server: str, reason: object) -> ServerError:
    """Returns the error of a failed connection or a malformed response."""
    return ServerError(f"server must answer at {server}, got: {reason}")


def too_slow(server: str, timeout: float) -> ServerError:
    """Returns the error of an exceeded deadline."""
    return ServerError(
        f"server {server} must answer within timeout {timeout:g} s, got no complete answer"
    )
