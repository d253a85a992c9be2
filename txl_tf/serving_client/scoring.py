"""The scores of one text, from a served model."""

import math

import numpy as np

from txl_tf.serving_client import transport
from txl_tf.serving_client.answers import ask


def score(server: transport.Server, name: str, content: bytes) -> dict[str, object]:
    """Returns the score of a text: log_probs, num_tokens, nats and perplexity.

    Args:
      server: the model.
      name: of the text, for messages.
      content: the text, as UTF-8.

    Raises:
      ValueError: the text has no token.
      ServerError: there is no answer, or an odd one.
    """
    answer = ask(server, "score", {"text": np.array([content], object)})
    num_tokens = int(answer["num_tokens"][0])
    if not num_tokens:
        raise ValueError(f"{name} must hold a token, got none")
    log_probs = answer["log_probs"][0, 1:num_tokens]  # a neighbour in the batch may be longer
    nats = -float(log_probs.sum(dtype=np.float64))
    mean = nats / len(log_probs) if len(log_probs) else math.inf
    return {
        "log_probs": [None, *log_probs.tolist()],
        "num_tokens": num_tokens,
        "nats": nats,
        "perplexity": math.exp(mean) if mean < 700 else None,
    }


def checked_utf8(name: str, content: bytes) -> bytes:
    """Returns `content`, or raises a ValueError where it is not UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} must be UTF-8, got byte {content[error.start]:#04x} at offset {error.start}"
        ) from error
    return content
