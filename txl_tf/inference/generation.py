"""Text generation: batches of prompts by sampling or beam search, and conversations."""

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
    """A continuation of a prompt.

    Attributes:
      prompt: the prompt.
      text: the generated text, without the prompt.
      ids: its tokens.
      log_prob: its log-probability in nats under the model itself, without temperature or limits.
    """

    prompt: str
    text: str
    ids: tuple[int, ...]
    log_prob: float


def line_end_id(tokenizer: Tokenizer) -> int | None:
    """Returns the id that ends a line, a special symbol or that of "\\n"; None if there is none."""
    if tokenizer.end_id is not None:
        return tokenizer.end_id
    try:
        ids = tokenizer.encode("\n", starts_line=False, complete=False)
    except ValueError:  # not in the vocabulary
        return None
    return int(ids[0]) if len(ids) == 1 and ids[0] != tokenizer.unknown_id else None


def start_id(tokenizer: Tokenizer) -> int:
    """Returns the id that starts an empty prompt: the line end, or 0 without one."""
    return line_end_id(tokenizer) or 0


class Generator:
    """Continues text with a model. The unknown symbol is never generated.

    No line end is added to a prompt: its last line is continued. An empty prompt starts after a
    line end, or after the id 0 if the tokenizer has none.

    Args:
      model: a TransformerXL with `mem_len` above 0, as it reads its own output through the memory.
      tokenizer: the one it was trained with.
      sampling: a Sampling; None is the default one.
      stop_at_line_end: whether a line end finishes a continuation.
      segment_len: tokens of a prompt read at once.
      state: kind of memory, "kv" (keys and values) or "hidden".

    Raises:
      ValueError: the model has no memory, or stop_at_line_end is set without a line end symbol.
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
        """Updates cached values after a change of the model's weights; invalidates sessions."""
        self._decoder.state.refresh()

    def session(self, batch_size: int, seed: int = 0) -> decoding.Session:
        """Returns a new session of empty rows."""
        return decoding.Session(self._decoder, batch_size, start_id=self._start_id, seed=seed)

    def samples(
        self, prompts: Sequence[str], length: int, *, num_samples: int = 1, seed: int = 0
    ) -> list[list[Continuation]]:
        """Samples `num_samples` continuations a prompt, of `length` tokens or up to a line end.

        A sample is a function of its prompt, the seed and its index, independent of other samples.
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
        """Returns the `num_samples` best continuations of each prompt by beam search."""
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
        results = self._search.search(
            last, state, length, num_beams=num_beams, length_penalty=length_penalty
        )
        return [
            [self._continuation(prompt, read, b.ids, b.log_prob) for b in beams[:num_samples]]
            for prompt, read, beams in zip(prompts, ids, results, strict=True)
        ]

    def check_memory(self, num_rows: int, length: int, **counts: int) -> None:
        """Raises if generation needs more than the machine's memory; `counts` are for the message.

        Raises:
          ValueError: names the bytes and the counts.
        """
        self._decoder.state.check_memory(num_rows, num_generated=length, **counts, length=length)

    def _read(self, prompts: Sequence[str], seed: int) -> tuple[decoding.Session, list[np.ndarray]]:
        if not prompts:
            raise ValueError("prompts must hold at least one prompt, got none")
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
    """A text that a user and the model write in turns; the memory persists between turns."""

    def __init__(self, generator: Generator, seed: int = 0):
        self._generator = generator
        self._tokenizer = generator.tokenizer
        self._session = generator.session(1, seed)
        self._started = False
        self._read = np.zeros([0], np.int32)

    def read(self, content: str) -> None:
        """Appends text, possibly empty, to the model's context."""
        self._read = self._tokenizer.encode(content, starts_line=not self._started, complete=False)
        self._started = True
        self._session.read([self._read])

    def write(self, length: int) -> Iterator[str]:
        """Generates `length` tokens, or up to a line end; yields their text as it is generated.

        Raises:
          ValueError: at the call, before any text: the machine has too little memory.
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
    """Samples continuations of prompts; see `Generator` for beam search and conversations.

    >>> loaded = txl_tf.load("model")
    >>> [samples] = txl_tf.generate(
    ...     loaded.model, loaded.tokenizer, ["Once"], length=8, num_samples=2
    ... )
    >>> len(samples)
    2

    Later calls with the same model, tokenizer and sampling compile nothing.
    """
    generator = reuse.kept(
        model,
        (Generator, id(tokenizer), sampling, stop_at_line_end),  # it holds the tokenizer
        lambda: Generator(model, tokenizer, sampling=sampling, stop_at_line_end=stop_at_line_end),
    )
    generator.refresh()  # the weights may have changed
    return generator.samples(prompts, length, num_samples=num_samples, seed=seed)


def _check_counts(**values: int) -> None:
    for name, value in values.items():
        if not 1 <= value <= LONGEST:
            rule = "at least 1" if value < 1 else f"at most {LONGEST}"
            raise ValueError(f"{name} must be {rule}, got {value}")
