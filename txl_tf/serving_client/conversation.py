"""Conversation with a served model; the client holds the state."""

from collections.abc import Iterator

import numpy as np

from txl_tf.serving_client import transport
from txl_tf.serving_client.answers import ask, check_state
from txl_tf.serving_client.sampling import choose
from txl_tf.text_stream import TextStream

_NONCHARACTER = "\U0010ffff"  # never in text, so a single token for it is the unknown symbol


class Conversation:
    """A text that a user and a served model write in turns.

        conversation = Conversation(transport.connect("localhost:8500", "book"), top_k=40)
        conversation.read("Once upon a time")
        for piece in conversation.write(100):
            print(piece, end="", flush=True)

    As in `txl_tf.inference.generation`, an empty prompt starts as after a line end, and the unknown
    symbol is never written.

    Args:
      server: connection to the model.
      seed: seed of sampling.
      temperature, top_k, top_p: see `sampling.choose`.
      segment_len: maximum number of ids read by one request.

    Raises:
      ValueError: the model has no memory.
    """

    def __init__(
        self,
        server: transport.Server,
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
        self._mark_len = len(self._line_end) - 1  # 1 if lines also start with a mark
        unknown = self._probe(_NONCHARACTER)[max(self._mark_len, 0) :]
        self._unknown = unknown[0] if len(unknown) == 1 else None
        if self._line_end == unknown:
            self._line_end = []
        self._begun = False
        self._unread: list[int] = []  # ids not yet in the state
        self._turn: list[int] = []

    def read(self, content: str) -> None:
        """Appends text, possibly empty, to the context of the model."""
        self._turn = self._encode(content)
        if self._begun and self._mark_len > 0:  # in the middle of a line
            self._turn = self._turn[self._mark_len :]
        self._begun = True
        self._unread += self._turn

    def write(self, length: int) -> Iterator[str]:
        """Samples `length` tokens and yields their text as it is decoded."""
        self._unread = self._unread or [self._line_end[-1] if self._line_end else 0]
        stream = TextStream(self._decode, self._turn)
        for _ in range(length):
            scores = self._advance()
            if self._unknown is not None:
                scores[self._unknown : self._unknown + 1] = -np.inf
            chosen = choose(scores, self._random.random(), *self._sampling)
            self._unread = [chosen]
            self._turn.append(chosen)
            yield stream.add([chosen])
        yield stream.finish()

    def _advance(self) -> np.ndarray:
        """Reads all unread ids and returns the scores of the next id, [V]."""
        ids, last = self._unread[:-1], self._unread[-1:]
        for start in range(0, len(ids), self._segment_len):
            self._step(ids[start : start + self._segment_len], tuple(self._state))
            self._unread = self._unread[self._segment_len :]
        return self._step(last)["scores"][0, 0].astype(np.float32)

    def _step(self, ids: list[int], outputs: tuple[str, ...] = ()) -> transport.Arrays:
        """Sends one request; the state advances only if it succeeds."""
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
        """Returns the ids of a text, or none if the server rejects it."""
        try:
            return self._encode(content)
        except transport.ServerError as error:
            if not error.invalid:
                raise
            return []
