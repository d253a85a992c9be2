"""The two passes over text: the work on one piece, and the sums over all pieces."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from txl_tf.data import documents, metadata, shards, text, tokenizers

_SHUFFLE_SEED = 123456  # of the original code


class Encoded(NamedTuple):
    """The tokens of a piece.

    Attributes:
      ids: [n] int32.
      starts: ascending positions in 0..n where a document begins; n is the next piece's first
        token.
      bytes, characters, unknown: as in `SplitMetadata`.
      complete: whether the file ends here.
    """

    ids: np.ndarray
    starts: np.ndarray
    bytes: int
    characters: int
    unknown: int
    complete: bool


@dataclasses.dataclass(frozen=True)
class Observe:
    """First pass: a learner's statistics of a piece."""

    learner: tokenizers.Learner
    invalid_utf8: str

    def __call__(self, piece: text.Piece) -> Any:
        return self.learner.observe(piece, self.invalid_utf8)


@dataclasses.dataclass(frozen=True)
class Encode:
    """Second pass: the tokens of a piece."""

    tokenizer: tokenizers.Tokenizer
    document_boundary: str
    invalid_utf8: str

    def __call__(self, piece: text.Piece) -> Encoded:
        parts = list(documents.parts(piece, self.document_boundary))
        encodings = [self.tokenizer.encode_piece(part.piece, self.invalid_utf8) for part in parts]
        begins = np.array([part.begins for part in parts])
        positions = np.cumsum([0, *(len(encoding.ids) for encoding in encodings)])[:-1]
        return Encoded(
            np.concatenate([encoding.ids for encoding in encodings]),
            np.unique(positions[begins]),  # documents without tokens do not count
            sum(encoding.bytes for encoding in encodings),
            sum(encoding.characters for encoding in encodings),
            sum(encoding.unknown for encoding in encodings),
            piece.complete,
        )


def shuffled(encoded: Iterable[Encoded], times: int, boundary: str) -> Iterator[Encoded]:
    """Yields each file `times` over, its lines shuffled each time, from the previous order.

    As in the original TensorFlow code for lm1b: one generator of random numbers for all files.

    Args:
      encoded: pieces whose lines are documents.
      times: number of streams per file.
      boundary: "file" (a stream is a document), "line" or "none".
    """
    generator = np.random.RandomState(_SHUFFLE_SEED)
    pieces: list[Encoded] = []
    for piece in encoded:
        pieces.append(piece)
        if piece.complete:
            lines = [line for p in pieces for line in np.split(p.ids, p.starts)[1:]]
            for _ in range(times if lines else 0):
                generator.shuffle(lines)
                yield _joined(pieces, lines, boundary)
            pieces = []


def _joined(pieces: Sequence[Encoded], lines: Sequence[np.ndarray], boundary: str) -> Encoded:
    """Returns the lines concatenated, with the counts of the pieces that they are from."""
    positions = np.cumsum([0, *map(len, lines)])[:-1]
    return Encoded(
        np.concatenate(lines),
        {"file": positions[:1], "line": positions, "none": positions[:0]}[boundary],
        sum(piece.bytes for piece in pieces),
        sum(piece.characters for piece in pieces),
        sum(piece.unknown for piece in pieces),
        True,
    )


class SplitWriter:
    """Writes the shards of a split and collects its metadata."""

    def __init__(self, folder: str, split: str):
        self.split = split
        self._shards = shards.ShardWriter(folder, split)
        self._streams: list[int] = []
        self._documents = self._unknown = self._bytes = self._characters = 0
        self._begins = True  # whether the next token begins a document
        self._lowest, self._highest = np.inf, -np.inf

    def __enter__(self) -> "SplitWriter":
        self._shards.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._shards.__exit__(*error)

    def write(self, encoded: Encoded) -> None:
        """Appends the tokens of the next piece."""
        self._unknown += encoded.unknown
        self._bytes += encoded.bytes
        self._characters += encoded.characters
        length = len(encoded.ids)
        self._streams.append(length)
        starts = np.union1d([0], encoded.starts) if self._begins else encoded.starts
        self._begins = length in starts
        if length:
            starts = starts[starts < length]
            self._documents += len(starts)
            self._shards.write(encoded.ids, starts)
            self._lowest = min(self._lowest, encoded.ids.min())
            self._highest = max(self._highest, encoded.ids.max())

    def metadata(
        self, sources: Sequence[metadata.Source], keep_streams: bool
    ) -> metadata.SplitMetadata:
        """Returns the metadata of the tokens written.

        Args:
          sources: the texts.
          keep_streams: whether each `write` was a separate stream.

        Raises:
          ValueError: no token was written.
        """
        tokens = sum(self._streams)
        if not tokens:
            names = ", ".join(source.name for source in sources)
            raise ValueError(f"{self.split} must hold text, got no tokens in {names}")
        if self._lowest == self._highest:
            logging.warning("%s holds a single distinct token, %d times", self.split, tokens)
        return metadata.SplitMetadata(
            shards=tuple(self._shards.shards),
            tokens=tokens,
            run_tokens=self._shards.run_tokens,
            streams=tuple(self._streams) if keep_streams else (),
            unknown=self._unknown,
            bytes=self._bytes,
            characters=self._characters,
            documents=self._documents,
            sources=tuple(sources),
        )
