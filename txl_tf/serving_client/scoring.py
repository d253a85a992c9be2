"""Scoring of one text by a served model."""

import math

import numpy as np

from txl_tf.serving_client import transport
from txl_tf.serving_client.answers import ask


def score(server: transport.Server, name: str, content: bytes) -> dict[str, object]:
    """Returns log_probs, num_tokens, nats and perplexity of a text.

    Args:
      server: connection to the model.
      name: name of the text in messages.
      content: the text, as UTF-8.

    Raises:
      ValueError: the text has no tokens.
      ServerError: the request fails, or its response is invalid.
    """
    answer = ask(server, "score", {"text": np.array([content], object)})
    num_tokens = int(answer["num_tokens"][0])
    if not num_tokens:
        raise ValueError(f"{name} must have at least one token, got 0")
    log_probs = answer["log_probs"][0, 1:num_tokens]  # padded if the server batched requests
    nats = -float(log_probs.sum(dtype=np.float64))
    mean = nats / len(log_probs) if len(log_probs) else math.inf
    return {
        "log_probs": [None, *log_probs.tolist()],
        "num_tokens": num_tokens,
        "nats": nats,
        "perplexity": math.exp(mean) if mean < 700 else None,
    }


def checked_utf8(name: str, content: bytes) -> bytes:
    """Returns `content` after checking that it is UTF-8.

    Raises:
      ValueError: it is not; names the first invalid byte.
    """
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} must be UTF-8, got byte {content[error.start]:#04x} at offset {error.start}"
        ) from error
    return content
