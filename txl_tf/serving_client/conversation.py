"""A conversation with a served model, whose state stays on this side."""

from collections.abc import Iterator

import numpy as np

from txl_tf.serving_client import transport
from txl_tf.serving_client.answers import ask, check_state
from txl_tf.serving_client.sampling import choose
from txl_tf.text_stream import TextStream

_NO_CHARACTER = "\U0010ffff"  # never in text: one token of it stands for what is not known


class Conversation:
    """One text that a user and a served model write in turns. Its state lives here.

    As in `txl_tf.inference.generation`, an empty prompt starts as if after a line end, and the
    symbol for unknown ones is never written.

    Args:
      server: the model.
      seed: of the choices.
      temperature, top_k, top_p: see `sampling.choose`.
      segment_len: ids that one request reads at most.
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
        """Reads all that is unread. -> scores of what follows, [V]."""
        ids, last = self._unread[:-1], self._unread[-1:]
        for start in range(0, len(ids), self._segment_len):
            self._step(ids[start : start + self._segment_len], tuple(self._state))
            self._unread = self._unread[self._segment_len :]
        return self._step(last)["scores"][0, 0].astype(np.float32)

    def _step(self, ids: list[int], outputs: tuple[str, ...] = ()) -> transport.Arrays:
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
        except transport.ServerError as error:
            if not error.invalid:
                raise
            return []
