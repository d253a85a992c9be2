"""Talks to an exported model on TensorFlow Serving, by gRPC or by REST.

    python scripts/serving_client.py --model=NAME --score='Once upon a time'
    python scripts/serving_client.py --model=NAME --score=@FILE --server=http://localhost:8501
    python scripts/serving_client.py --model=NAME --generate='Once upon' --length=300 --top_p=0.9
    python scripts/serving_client.py --model=NAME --converse --temperature=0.8

--server is HOST:PORT for gRPC, http://HOST:PORT for REST.

--score prints one JSON object: {log_probs (natural logarithms, the first null), num_tokens, nats,
perplexity}. --generate prints the prompt and a continuation that the server writes whole.
--converse reads lines and continues each, token by token, and remembers all turns; an empty line
lets the model go on, "/reset" makes it forget. Its memory stays on this side: the server keeps
nothing between two requests, so any number of conversations may go on at once. Each stays with the
version of the model that it began with.
"""

import json
import math
import os
import secrets
from collections.abc import Iterator

import program

import numpy as np
from absl import app, flags, logging

import serving_transport
import turns
from serving_answers import ask, check_state
from serving_choice import choose

_SERVER = flags.DEFINE_string("server", "localhost:8500", "HOST:PORT, or http://HOST:PORT.")
_MODEL = flags.DEFINE_string("model", None, "Name of the model on the server.", required=True)
_VERSION = flags.DEFINE_integer("model_version", None, "Unset is the newest.", lower_bound=0)
_TIMEOUT = flags.DEFINE_float(
    "timeout", 60.0, "Seconds to wait for a whole answer.", upper_bound=1e6
)
_SCORE = flags.DEFINE_string("score", None, "Text to score; @FILE is that of a file.")
_GENERATE = flags.DEFINE_string("generate", None, "Prompt to continue on the server.")
_CONVERSE = flags.DEFINE_bool("converse", False, "Take turns with the user.")
_LENGTH = flags.DEFINE_integer("length", 200, "Tokens to write.", 1, 2**31 - 1)
_TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "Below 1 is safer, above 1 is bolder.")
_TOP_K = flags.DEFINE_integer(
    "top_k", None, "Only the k likeliest tokens may come; unset is all.", 1, 2**31 - 1
)
_TOP_P = flags.DEFINE_float("top_p", 1.0, "Only the likeliest that together have this probability.")
_SEED = flags.DEFINE_integer(
    "seed", None, "Of the choices; unset draws one, and logs it.", 0, 2**31 - 1
)
_SEGMENT_LEN = flags.DEFINE_integer(
    "segment_len", 32, "Tokens of a line sent at once by --converse.", lower_bound=1
)

_REPLACEMENT = "\ufffd"  # what an incomplete character is shown as
_NO_CHARACTER = "\U0010ffff"  # never in text: one token of it stands for what is not known


def main(argv: list[str]) -> None:
    del argv  # program.run refuses arguments that are no flags
    _check_flags()
    server = serving_transport.connect(
        _SERVER.value, _MODEL.value, version=_VERSION.value, timeout=_TIMEOUT.value
    )
    if _SCORE.value is not None:
        print(json.dumps(_score(server, *_text(_SCORE.value))))
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
    """The name and the content of what is to be scored."""
    if not argument.startswith("@"):
        return "text", _utf8("text", argument.encode("utf-8", "surrogateescape"))
    path = os.path.expanduser(argument[1:])
    with open(path, "rb") as file:
        return path, _utf8(path, file.read())


def _utf8(name: str, content: bytes) -> bytes:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} must be UTF-8, got byte {content[error.start]:#04x} at offset {error.start}"
        ) from error
    return content


def _seed() -> int:
    seed = secrets.randbelow(2**31) if _SEED.value is None else _SEED.value
    logging.info("seed=%d", seed)
    return seed


def _score(server: serving_transport.Server, name: str, content: bytes) -> dict[str, object]:
    """What scripts/score.py prints, as far as the server tells it."""
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


def _generate(server: serving_transport.Server, prompt: str) -> str:
    content = _utf8("prompt", prompt.encode("utf-8", "surrogateescape"))
    inputs = {
        "prompts": np.array([content], object),
        "length": np.array([_LENGTH.value], np.int32),
        "temperature": np.array([_TEMPERATURE.value], np.float32),
        "top_k": np.array([_TOP_K.value or 0], np.int32),
        "top_p": np.array([_TOP_P.value], np.float32),
        "seed": np.array([_seed()], np.int32),
    }
    return ask(server, "generate", inputs)["text"][0].decode("utf-8", "replace")


def _converse(server: serving_transport.Server) -> None:
    seed = _seed()
    conversation = None
    for line in turns.lines():
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


class Conversation:
    """One text that a user and a served model write in turns. Its state lives here.

    As in scripts/generate.py, a prompt that is empty starts as if after a line end, and the symbol
    for unknown ones is never written.

    Args:
      server: the model.
      seed: of the choices.
      temperature, top_k, top_p: see `serving_choice.choose`.
      segment_len: ids that one request reads at most.
    """

    def __init__(
        self,
        server: serving_transport.Server,
        seed: int = 0,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        segment_len: int = 32,
    ):
        self._server = server
        self._random = np.random.default_rng(seed)
        self._sampling = (temperature, top_k, top_p)
        self._segment_len = segment_len
        self._state = ask(server, "initial_state", {"batch_size": np.array([1], np.int32)})
        if not all(part.size for part in self._state.values()):
            raise ValueError("mem_len must be at least 1 to converse, got 0")
        self._line_end = self._probe("\n")
        self._mark_len = len(self._line_end) - 1  # 1 where lines have a mark at their start, too
        unknown = self._probe(_NO_CHARACTER)[max(self._mark_len, 0) :]
        self._unknown = unknown[0] if len(unknown) == 1 else None
        if self._line_end == unknown:
            self._line_end = []
        self._begun = False
        self._unread: list[int] = []  # ids that are not in the state yet
        self._turn: list[int] = []

    def read(self, content: str) -> None:
        """Appends text, perhaps none, to what the model has before it."""
        self._turn = self._encode(content)
        if self._begun and self._mark_len > 0:  # in the middle of a line
            self._turn = self._turn[self._mark_len :]
        self._begun = True
        self._unread += self._turn

    def write(self, length: int) -> Iterator[str]:
        """Appends `length` tokens; yields their text as it comes."""
        self._unread = self._unread or [self._line_end[-1] if self._line_end else 0]
        shown = len(self._decode(self._turn))
        for _ in range(length):
            scores = self._advance()
            if self._unknown is not None:
                scores[self._unknown : self._unknown + 1] = -np.inf
            chosen = choose(scores, self._random.random(), *self._sampling)
            self._unread = [chosen]
            self._turn.append(chosen)
            text = self._decode(self._turn).rstrip(_REPLACEMENT)  # the rest of a character waits
            yield text[shown:]
            shown = max(shown, len(text))
        yield self._decode(self._turn)[shown:]

    def _advance(self) -> np.ndarray:
        """Reads all that is unread. -> scores of what follows, [V]."""
        ids, last = self._unread[:-1], self._unread[-1:]
        for start in range(0, len(ids), self._segment_len):
            self._step(ids[start : start + self._segment_len], tuple(self._state))
            self._unread = self._unread[self._segment_len :]
        return self._step(last)["scores"][0, 0].astype(np.float32)

    def _step(self, ids: list[int], outputs: tuple[str, ...] = ()) -> serving_transport.Arrays:
        """One request; the state advances if there is an answer."""
        inputs = {
            "input_ids": np.array([ids], np.int32),
            "lengths": np.array([len(ids)], np.int32),
        }
        answer = ask(self._server, "step", inputs | self._state, outputs)
        check_state(self._state, answer)
        self._state = {name: answer[name] for name in self._state}
        return answer

    def _encode(self, content: str) -> list[int]:
        if not content:
            return []
        text = np.array([content.encode("utf-8", "replace")], object)
        answer = ask(self._server, "encode", {"text": text})
        return answer["ids"][0, : answer["lengths"][0]].tolist()

    def _decode(self, ids: list[int]) -> str:
        if not ids:
            return ""
        inputs = {"ids": np.array([ids], np.int32), "lengths": np.array([len(ids)], np.int32)}
        return ask(self._server, "decode", inputs)["text"][0].decode("utf-8", "replace")

    def _probe(self, content: str) -> list[int]:
        """The ids of text; none where it is refused."""
        try:
            return self._encode(content)
        except serving_transport.ServerError as error:
            if not error.invalid:
                raise
            return []


if __name__ == "__main__":
    program.run(main, texts=["score", "generate"])
