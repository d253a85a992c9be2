"""Scoring of texts: the log-probability of every token, read by segments with the memory.

No TensorFlow: devices score with LiteRT.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from txl_tf.data import text
from txl_tf.data.text_size import TextSize
from txl_tf.data.tokenizers.tokenizer import Encoding, Tokenizer
from txl_tf.inference import metrics as sums
from txl_tf.inference import segments
from txl_tf.ops.token_ids import check_ids

Progress = Callable[[int, int], None]  # (tokens scored, tokens encoded so far)

LONGEST_LINE = 1 << 18  # bytes; a longer line is read in pieces
_WINDOW = 16  # batches of lines that are sorted by length together


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """Log-probability of a text, and metrics from it.

    Attributes:
      num_tokens: number of tokens; the first has no context and is not scored.
      unknown: number of tokens that stand for a symbol outside the vocabulary.
      nats: negative sum of the log-probabilities.
      perplexity: from the mean over the scored tokens; None without any.
      bits_per_byte, bits_per_character, bits_unavailable: see `metrics.bits`.
      tokens: the symbols; None in a summary.
      log_probs: log-probability of each token in nats, None for the first.
    """

    num_tokens: int
    unknown: int
    nats: float
    perplexity: float | None
    bits_per_byte: float | None
    bits_per_character: float | None
    bits_unavailable: str | None
    tokens: tuple[str, ...] | None = None
    log_probs: tuple[float | None, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON: tokens first, left out of a summary."""
        values = sums.plain(vars(self))
        detail = {name: values.pop(name) for name in ("tokens", "log_probs")}
        return (detail if self.tokens is not None else {}) | values


class Reader(Protocol):
    """Interface of a model with a state, as used for scoring.

    Shapes: ids, targets [B, T] int32, T at most `segment_len`; lengths [B] int32, number of real
    tokens -> nats [B, T] float32, as NumPy, and the new state.
    """

    vocab_size: int

    def initial(self, batch_size: int) -> Any:
        """Returns the initial state."""

    def nll(
        self, ids: np.ndarray, targets: np.ndarray, state: Any, lengths: np.ndarray
    ) -> tuple[np.ndarray, Any]:
        """Returns the loss of each target in nats, and the state after the ids."""


class TextScorer:
    """Scores texts, each from an empty memory.

    Args:
      reader: a `Reader`, which runs the model.
      tokenizer: the one the model was trained with.
      segment_len: tokens read at once.
      batch_size: lines scored at once by `score_each`.
      invalid_utf8: "error", or "replace" by U+FFFD.

    Attributes:
      progress: called after each step; None by default.
    """

    def __init__(
        self,
        reader: Reader,
        tokenizer: Tokenizer,
        *,
        segment_len: int = 128,
        batch_size: int = 16,
        invalid_utf8: str = "error",
    ):
        for name, value in (("segment_len", segment_len), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self._reader = reader
        self._tokenizer = tokenizer
        self._segment_len = segment_len
        self._batch_size = batch_size
        self._invalid_utf8 = invalid_utf8
        self.progress: Progress | None = None
        self._encoded = self._scored = 0

    def score(self, content: str | bytes) -> Score:
        """Scores a text in memory.

        Raises:
          ValueError: it has no tokens, or cannot be read.
        """
        data = content.encode("utf-8") if isinstance(content, str) else content
        return self.score_pieces([text.Piece(data)])

    def score_pieces(
        self, pieces: Iterable[text.Piece], *, summary: bool = False, name: str = "text"
    ) -> Score:
        """Scores one text given in pieces, as a `text.Reader` yields them.

        A `summary` takes constant memory; otherwise the result grows with the text.

        Raises:
          ValueError: it has no tokens, or cannot be read; the message begins with `name`.
        """
        score = self._score_pieces(pieces, summary)
        if not score.num_tokens:
            raise ValueError(f"{name} must have at least one token, got 0")
        return score

    def score_each(self, pieces: Iterable[text.Piece], *, summary: bool = False) -> Iterator[Score]:
        """Scores texts in order: those of a single piece in batches, longer ones piece by piece.

        Args:
          pieces: the pieces of the texts in turn; the last piece of a text is `complete`.
          summary: as for `score_pieces`.
        """
        pieces = iter(pieces)
        window: list[Encoding] = []
        for piece in pieces:
            if piece.complete:
                window.append(self._encode(piece))
            if not piece.complete or len(window) == _WINDOW * self._batch_size:
                yield from self._score_window(window, summary)
                window = []
            if not piece.complete:
                yield self._score_pieces(_until_complete(piece, pieces), summary)
        yield from self._score_window(window, summary)

    def _score_pieces(self, pieces: Iterable[text.Piece], summary: bool) -> Score:
        count = _Count()
        ids, log_probs = [np.zeros([0], np.int32)], [np.zeros([0], np.float32)]
        for encoding, nll in self._read(map(self._encode, pieces)):
            count.add(encoding, nll)
            if not summary:
                ids.append(encoding.ids)
                log_probs.append(-nll)
        if summary:
            return count.score()
        return count.score(self._symbols(np.concatenate(ids)), np.concatenate(log_probs))

    def _encode(self, piece: text.Piece) -> Encoding:
        encoding = self._tokenizer.encode_piece(piece, self._invalid_utf8)
        check_ids("token ids", encoding.ids, self._reader.vocab_size)
        self._encoded += len(encoding.ids)
        return encoding

    def _read(self, encodings: Iterable[Encoding]) -> Iterator[tuple[Encoding, np.ndarray]]:
        """Yields (encoding, nll) as full segments become available.

        A last, empty encoding carries the rest. Until then only full segments are read, so results
        do not depend on how a text is split into pieces.
        """
        state = self._reader.initial(1)
        unread = np.zeros([0], np.int32)
        for encoding in encodings:
            unread = np.concatenate([unread, encoding.ids])
            whole = max(len(unread) - 1, 0) // self._segment_len * self._segment_len
            (nll,), state = self._nll([unread[: whole + 1]], state)
            unread = unread[whole:]
            yield encoding, nll
        (nll,), state = self._nll([unread], state)
        yield Encoding(np.zeros([0], np.int32), 0, 0, 0), nll

    def _score_window(self, window: Sequence[Encoding], summary: bool) -> Iterator[Score]:
        """Scores texts in batches of similar length, padded to a full batch."""
        order = sorted(range(len(window)), key=lambda i: len(window[i].ids))
        scores: dict[int, Score] = {}
        for start in range(0, len(order), self._batch_size):
            chosen = order[start : start + self._batch_size]
            rows = [window[i].ids for i in chosen]
            rows += [np.zeros([0], np.int32)] * (self._batch_size - len(rows))
            nlls, _ = self._nll(rows, self._reader.initial(self._batch_size))
            for i, nll in zip(chosen, nlls, strict=False):
                count = _Count()
                count.add(window[i], nll)
                detail = () if summary else (self._symbols(window[i].ids), -nll)
                scores[i] = count.score(*detail)
        yield from (scores[i] for i in range(len(window)))

    def _nll(self, rows: Sequence[np.ndarray], state) -> tuple[list[np.ndarray], Any]:
        """Returns the losses of each row's ids but the first, and the state before the last."""
        losses: list[list[np.ndarray]] = [[np.zeros([0], np.float32)] for _ in rows]
        inputs = segments.cut([row[:-1] for row in rows], self._segment_len)
        targets = segments.cut([row[1:] for row in rows], self._segment_len)
        for (ids, lengths), (target_ids, _) in zip(inputs, targets, strict=True):
            nll, state = self._reader.nll(ids, target_ids, state, lengths)
            for parts, values, length in zip(losses, nll, lengths, strict=True):
                parts.append(values[:length])
            self._scored += int(lengths.sum())
            if self.progress is not None:
                self.progress(self._scored, self._encoded)
        return [np.concatenate(parts) for parts in losses], state

    def _symbols(self, ids: np.ndarray) -> tuple[str, ...]:
        symbols = {i: self._tokenizer.symbol(i) for i in np.unique(ids).tolist()}
        return tuple(symbols[i] for i in ids.tolist())


class _Count:
    """Accumulates the values of a `Score`."""

    def __init__(self) -> None:
        self._size = TextSize()
        self._totals = sums.Totals()

    def add(self, encoding: Encoding, nll: np.ndarray) -> None:
        self._size = self._size.plus(encoding.size)
        self._totals.add(nll)

    def score(
        self, tokens: tuple[str, ...] | None = None, log_probs: np.ndarray | None = None
    ) -> Score:
        mean = self._totals.nats_per_token if self._totals.scored else None
        listed = None
        if tokens is not None and log_probs is not None:
            listed = (None, *log_probs.tolist())[: len(tokens)]
        return Score(
            num_tokens=self._size.tokens,
            unknown=self._size.unknown,
            nats=self._totals.nats,
            perplexity=None if mean is None else sums.perplexity(mean),
            **sums.bits(mean, self._size)._asdict(),
            tokens=tokens,
            log_probs=listed,
        )


def _until_complete(first: text.Piece, others: Iterator[text.Piece]) -> Iterator[text.Piece]:
    """Yields the pieces of a text that begins with `first`."""
    piece: text.Piece | None = first
    while piece is not None:
        yield piece
        piece = None if piece.complete else next(others, None)


def lines(pieces: Iterable[text.Piece], longest: int = LONGEST_LINE) -> Iterator[text.Piece]:
    """Yields the lines of a text as separate texts, without line ends, for `score_each`.

    A line of at most `longest` bytes is one piece. Of a longer one at most `longest` bytes plus a
    piece are held at a time: it is split where pieces of the text end, and its last piece, possibly
    empty, is complete.
    """
    name, offset, rest, is_start = "text", 0, b"", True
    for piece in pieces:
        name = piece.name
        *whole, rest = (rest + piece.data).split(b"\n")
        for line in whole:
            yield text.Piece(line, name, offset, starts_line=is_start)
            offset, is_start = offset + len(line) + 1, True
        if len(rest) > longest:
            yield text.Piece(rest, name, offset, starts_line=is_start, complete=False)
            offset, rest, is_start = offset + len(rest), b"", False
    if rest or not is_start:
        yield text.Piece(rest, name, offset, starts_line=is_start)
