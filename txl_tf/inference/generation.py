"""Continues text: several prompts and samples at once, by beams, or in turns with a user."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from txl_tf.configs.validation import LONGEST
from txl_tf.data.tokenizers.tokenizer import Tokenizer
from txl_tf.inference import beam_search, decoding, reuse
from txl_tf.inference import decode_state as states
from txl_tf.inference.sampling import Sampling
from txl_tf.text_stream import TextStream


@dataclasses.dataclass(frozen=True, kw_only=True)
class Continuation:
    """One continuation of a prompt.

    Attributes:
      prompt: what was continued.
      text: what was written, without the prompt.
      ids: its tokens.
      log_prob: of all of them under the model itself, whatever the way of choosing.
    """

    prompt: str
    text: str
    ids: tuple[int, ...]
    log_prob: float


def line_end_id(tokenizer: Tokenizer) -> int | None:
    """The id that ends a line: a mark of its own, or that of "\\n"; None where there is none."""
    if tokenizer.end_id is not None:
        return tokenizer.end_id
    try:
        ids = tokenizer.encode("\n", starts_line=False, complete=False)
    except ValueError:  # not in the vocabulary
        return None
    return int(ids[0]) if len(ids) == 1 and ids[0] != tokenizer.unknown_id else None


def start_id(tokenizer: Tokenizer) -> int:
    """What an empty prompt begins with: a line end, or the id 0 where lines have none."""
    return line_end_id(tokenizer) or 0


class Generator:
    """Continues text with a model. The symbol for unknown ones is never written.

    A prompt is the start of a text whose last line is open: it is not ended before it goes on. An
    empty prompt starts as if after a line end, or after the id 0 where lines have no end.

    Args:
      model: a TransformerXL with `mem_len` above 0: what it wrote it knows from its memory.
      tokenizer: the one it was trained with.
      sampling: how ids are chosen.
      stop_at_line_end: whether a line end is the last that is written.
      segment_len: tokens of a prompt read at once.
      state: what is remembered, "kv" (keys and values) or "hidden".

    Raises:
      ValueError: the model has no memory, or lines have no end to stop at.
    """

    def __init__(
        self,
        model,
        tokenizer: Tokenizer,
        *,
        sampling: Sampling | None = None,
        stop_at_line_end: bool = False,
        segment_len: int = 128,
        state: str = "kv",
    ):
        if not model.config.mem_len:
            raise ValueError("mem_len must be at least 1 to generate, got 0")
        line_end = line_end_id(tokenizer)
        if stop_at_line_end and line_end is None:
            raise ValueError(
                f"stop_at_line_end must be off: the {tokenizer.kind} tokenizer of this model "
                "marks no line ends, got on"
            )
        unknown = tokenizer.unknown_id
        sampling = sampling or Sampling()
        if unknown is not None:
            sampling = dataclasses.replace(sampling, banned_ids=(*sampling.banned_ids, unknown))
        self.tokenizer = tokenizer
        self._start_id = start_id(tokenizer)
        self._decoder = decoding.Decoder(
            states.make(state, model, segment_len),
            sampling,
            stop_ids=(line_end,) if stop_at_line_end else (),
            segment_len=segment_len,
        )
        self._search = beam_search.BeamSearch(
            self._decoder.state,
            stop_ids=self._decoder.stop_ids,
            banned_ids=sampling.banned_ids,
        )

    def refresh(self) -> None:
        """Takes notice that the model's weights have changed; sessions begin anew after it."""
        self._decoder.state.refresh()

    def session(self, batch_size: int, seed: int = 0) -> decoding.Session:
        """Rows of ids that have read nothing yet."""
        return decoding.Session(self._decoder, batch_size, start_id=self._start_id, seed=seed)

    def samples(
        self, prompts: Sequence[str], length: int, *, num_samples: int = 1, seed: int = 0
    ) -> list[list[Continuation]]:
        """`num_samples` continuations of each prompt, of `length` tokens or up to a line end.

        A sample follows from its prompt, the seed and its number, not from what else is sampled.
        """
        _check_counts(length=length, num_samples=num_samples)
        self.check_memory(
            len(prompts) * num_samples, length, prompts=len(prompts), num_samples=num_samples
        )
        session, ids = self._read(prompts, seed)
        session.branch(num_samples)
        chunks = list(session.write(length))
        written = np.concatenate([chunk for chunk, _ in chunks], axis=1)
        log_probs = np.concatenate([nats for _, nats in chunks], axis=1).sum(axis=1, dtype=float)
        return [
            [
                self._continuation(prompt, read, written[row], log_probs[row])
                for row in range(i * num_samples, (i + 1) * num_samples)
            ]
            for i, (prompt, read) in enumerate(zip(prompts, ids, strict=True))
        ]

    def beams(
        self,
        prompts: Sequence[str],
        length: int,
        *,
        num_beams: int,
        num_samples: int = 1,
        length_penalty: float = 0.0,
    ) -> list[list[Continuation]]:
        """The `num_samples` best continuations of each prompt that a beam search finds."""
        _check_counts(length=length, num_samples=num_samples, num_beams=num_beams)
        if num_samples > num_beams:
            raise ValueError(
                f"num_samples must be at most num_beams {num_beams}, got {num_samples}"
            )
        self.check_memory(
            len(prompts) * num_beams, length, prompts=len(prompts), num_beams=num_beams
        )
        session, ids = self._read(prompts, seed=0)
        last, state = session.pending
        found = self._search.search(
            last, state, length, num_beams=num_beams, length_penalty=length_penalty
        )
        return [
            [self._continuation(prompt, read, b.ids, b.log_prob) for b in beams[:num_samples]]
            for prompt, read, beams in zip(prompts, ids, found, strict=True)
        ]

    def check_memory(self, num_rows: int, length: int, **counts: int) -> None:
        """Refuses to write more than fits into the machine's memory; `counts` go into the message.

        Raises:
          ValueError: names the bytes.
        """
        self._decoder.state.check_memory(num_rows, num_written=length, **counts, length=length)

    def _read(self, prompts: Sequence[str], seed: int) -> tuple[decoding.Session, list[np.ndarray]]:
        if not prompts:
            raise ValueError("prompts must be at least 1, got 0")
        ids = [self.tokenizer.encode(prompt, complete=False) for prompt in prompts]
        session = self.session(len(prompts), seed)
        session.read(ids)
        return session, ids

    def _continuation(
        self, prompt: str, read: np.ndarray, written: np.ndarray, log_prob: float
    ) -> Continuation:
        stream = TextStream(self.tokenizer.decode, read)
        text = stream.add(written) + stream.finish()
        ids = tuple(written[written >= 0].tolist())
        return Continuation(prompt=prompt, text=text, ids=ids, log_prob=float(log_prob))


class Conversation:
    """One text that a user and the model write in turns; the memory stays from turn to turn."""

    def __init__(self, generator: Generator, seed: int = 0):
        self._generator = generator
        self._tokenizer = generator.tokenizer
        self._session = generator.session(1, seed)
        self._begun = False
        self._read = np.zeros([0], np.int32)

    def read(self, content: str) -> None:
        """Appends text, perhaps none, to what the model has before it."""
        self._read = self._tokenizer.encode(content, starts_line=not self._begun, complete=False)
        self._begun = True
        self._session.read([self._read])

    def write(self, length: int) -> Iterator[str]:
        """Appends `length` tokens, or up to a line end; yields their text as it comes.

        Raises:
          ValueError: at the call, before anything is written: so many do not fit into memory.
        """
        _check_counts(length=length)
        self._generator.check_memory(1, length)
        return self._written(length)

    def _written(self, length: int) -> Iterator[str]:
        stream = TextStream(self._tokenizer.decode, self._read)
        for ids, _ in self._session.write(length):
            yield stream.add(ids[0])
        yield stream.finish()


def generate(
    model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    length: int,
    *,
    sampling: Sampling | None = None,
    num_samples: int = 1,
    seed: int = 0,
    stop_at_line_end: bool = False,
) -> list[list[Continuation]]:
    """Samples continuations; see `Generator`, which has more ways.

    Later calls for the same model, tokenizer and way of sampling compile nothing.
    """
    generator = reuse.kept(
        model,
        (Generator, id(tokenizer), sampling, stop_at_line_end),  # it holds the tokenizer
        lambda: Generator(model, tokenizer, sampling=sampling, stop_at_line_end=stop_at_line_end),
    )
    generator.refresh()  # the weights may be others by now
    return generator.samples(prompts, length, num_samples=num_samples, seed=seed)


def _check_counts(**values: int) -> None:
    for name, value in values.items():
        if not 1 <= value <= LONGEST:
            rule = "at least 1" if value < 1 else f"at most {LONGEST}"
            raise ValueError(f"{name} must be {rule}, got {value}")
