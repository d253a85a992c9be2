"""Client of an exported model on TensorFlow Serving, over gRPC or REST.

    txl-serving-client --model=NAME --score='Once upon a time'
    txl-serving-client --model=NAME --score=@FILE --server=http://localhost:8501
    txl-serving-client --model=NAME --generate='Once upon' --length=300 --top_p=0.9
    txl-serving-client --model=NAME --converse --temperature=0.8

--server is HOST:PORT for gRPC, http://HOST:PORT for REST.

--score prints one JSON object: {log_probs (natural logarithms, the first null), num_tokens, nats,
perplexity}. --generate prints the prompt and its continuation, generated on the server.
--converse continues each line that you enter, token by token, and remembers all turns; an empty
line lets the model continue, "/reset" clears the memory. The client keeps the state and the server
is stateless, so any number of conversations can run at once. A conversation stays with the version
of the model that it started with.
"""

import json
import os
import secrets
from typing import NoReturn

import numpy as np
from absl import app, flags, logging

from txl_tf.cli import entry_point, repl
from txl_tf.serving_client import scoring, transport
from txl_tf.serving_client.answers import ask
from txl_tf.serving_client.conversation import Conversation

_SERVER = flags.DEFINE_string(
    "server", "localhost:8500", "HOST:PORT for gRPC, http://HOST:PORT for REST."
)
_MODEL = flags.DEFINE_string("model", None, "Name of the model on the server.", required=True)
_VERSION = flags.DEFINE_integer(
    "model_version", None, "Version of the model; default: the newest.", lower_bound=0
)
_TIMEOUT = flags.DEFINE_float("timeout", 60.0, "Timeout of a request, in seconds.", upper_bound=1e6)
_SCORE = flags.DEFINE_string("score", None, "Text to score; @FILE reads it from a file.")
_GENERATE = flags.DEFINE_string("generate", None, "Prompt to continue on the server.")
_CONVERSE = flags.DEFINE_bool("converse", False, "Read lines from stdin and continue each.")
_LENGTH = flags.DEFINE_integer("length", 200, "Number of tokens to generate.", 1, 2**31 - 1)
_TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "Divisor of the logits; 0 is greedy.")
_TOP_K = flags.DEFINE_integer(
    "top_k", None, "Sample from the k most likely tokens; default: all.", 1, 2**31 - 1
)
_TOP_P = flags.DEFINE_float(
    "top_p", 1.0, "Sample from the most likely tokens with this total probability."
)
_SEED = flags.DEFINE_integer(
    "seed", None, "Seed of the samples; default: random, and logged.", 0, 2**31 - 1
)
_SEGMENT_LEN = flags.DEFINE_integer(
    "segment_len", 32, "Maximum number of tokens per request of --converse.", lower_bound=1
)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    _check_flags()
    server = transport.connect(
        _SERVER.value, _MODEL.value, version=_VERSION.value, timeout=_TIMEOUT.value
    )
    if _SCORE.value is not None:
        print(json.dumps(scoring.score(server, *_text(_SCORE.value))))
    elif _GENERATE.value is not None:
        print(_GENERATE.value + _generate(server, _GENERATE.value))
    else:
        _converse(server)


def _check_flags() -> None:
    jobs = [name for name in ("score", "generate", "converse") if flags.FLAGS[name].present]
    jobs = [name for name in jobs if flags.FLAGS[name].value is not False]
    if len(jobs) != 1:
        got = " and ".join(f"--{name}" for name in jobs) or "none"
        raise app.UsageError(f"one of --score, --generate and --converse is needed, got {got}")
    sampling = ("length", "temperature", "top_k", "top_p", "seed")
    unread = {"score": (*sampling, "segment_len"), "generate": ("segment_len",)}
    for name in unread.get(jobs[0], ()):
        if flags.FLAGS[name].present:
            raise app.UsageError(f"--{name} has no effect with --{jobs[0]}; leave it out")
    if not _MODEL.value or not _MODEL.value.isprintable():
        raise app.UsageError(f"model must be a name, got {_MODEL.value!r}")
    if not _is_address(_SERVER.value):
        raise app.UsageError(f"server must be HOST:PORT or http://HOST:PORT, got {_SERVER.value!r}")
    if not _TIMEOUT.value > 0:
        raise app.UsageError(f"timeout must be above 0, got {_TIMEOUT.value}")
    if not 0 <= _TEMPERATURE.value < float("inf"):
        raise app.UsageError(f"temperature must be at least 0 and finite, got {_TEMPERATURE.value}")
    if not 0 < _TOP_P.value <= 1:
        raise app.UsageError(f"top_p must be above 0 and at most 1, got {_TOP_P.value}")


def _is_address(server: str) -> bool:
    if server.startswith(("http://", "https://")):
        return len(server.partition("://")[2]) > 0
    host, _, port = server.rpartition(":")
    return bool(host) and "/" not in host and port.isdecimal() and int(port) < 2**16


def _text(argument: str) -> tuple[str, bytes]:
    """Returns the name and the content of the text to score."""
    if not argument.startswith("@"):
        return "text", scoring.checked_utf8("text", argument.encode("utf-8", "surrogateescape"))
    path = os.path.expanduser(argument[1:])
    with open(path, "rb") as file:
        return path, scoring.checked_utf8(path, file.read())


def _seed() -> int:
    seed = secrets.randbelow(2**31) if _SEED.value is None else _SEED.value
    logging.info("seed=%d", seed)
    return seed


def _generate(server: transport.Server, prompt: str) -> str:
    content = scoring.checked_utf8("prompt", prompt.encode("utf-8", "surrogateescape"))
    inputs = {
        "prompts": np.array([content], object),
        "length": np.array([_LENGTH.value], np.int32),
        "temperature": np.array([_TEMPERATURE.value], np.float32),
        "top_k": np.array([_TOP_K.value or 0], np.int32),
        "top_p": np.array([_TOP_P.value], np.float32),
        "seed": np.array([_seed()], np.int32),
    }
    return ask(server, "generate", inputs)["text"][0].decode("utf-8", "replace")


def _converse(server: transport.Server) -> None:
    seed = _seed()
    conversation = None
    for line in repl.lines():
        if line is None:
            conversation = None
            continue
        conversation = conversation or Conversation(
            server,
            seed,
            temperature=_TEMPERATURE.value,
            top_k=_TOP_K.value,
            top_p=_TOP_P.value,
            segment_len=_SEGMENT_LEN.value,
        )
        conversation.read(line)
        for new in conversation.write(_LENGTH.value):
            print(new, end="", flush=True)
        print(flush=True)


def run() -> NoReturn:
    entry_point.run(main, texts=["score", "generate"])


if __name__ == "__main__":
    run()
