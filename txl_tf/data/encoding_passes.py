"""The two passes over text: what workers do with a piece, and how the results add up."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from txl_tf.data import documents, metadata, shards, text, tokenizers

_SHUFFLE_SEED = 123456  # the original code's


class Encoded(NamedTuple):
    """The tokens of a piece.

    Attributes:
      ids: [n] int32.
      starts: rising positions in 0..n where a document begins; n is the next piece's first token.
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
    """The first pass: what a learner sees in a piece."""

    learner: tokenizers.Learner
    invalid_utf8: str

    def __call__(self, piece: text.Piece) -> Any:
        return self.learner.observe(piece, self.invalid_utf8)


@dataclasses.dataclass(frozen=True)
class Encode:
    """The second pass: the tokens of a piece."""

    tokenizer: tokenizers.Tokenizer
    document_boundary: str
    invalid_utf8: str

    def __call__(self, piece: text.Piece) -> Encoded:
        parts = list(documents.parts(piece, self.document_boundary))
        found = [self.tokenizer.encode_piece(part.piece, self.invalid_utf8) for part in parts]
        begins = np.array([part.begins for part in parts])
        positions = np.cumsum([0, *(len(encoding.ids) for encoding in found)])[:-1]
        return Encoded(
            np.concatenate([encoding.ids for encoding in found]),
            np.unique(positions[begins]),  # a document without a token is none
            sum(encoding.bytes for encoding in found),
            sum(encoding.characters for encoding in found),
            sum(encoding.unknown for encoding in found),
            piece.complete,
        )


def shuffled(encoded: Iterable[Encoded], times: int, boundary: str) -> Iterator[Encoded]:
    """Each file `times` over, its lines shuffled anew each time, from the order before.

    These are the draws of the original TensorFlow code for lm1b: one generator for all files.

    Args:
      encoded: pieces whose lines are documents.
      times: streams that come of each file.
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
    """The lines one after another; the rest as in the pieces that they are from."""
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
    """Writes the shards of a split and adds up what metadata says of it."""

    def __init__(self, folder: str, split: str):
        self.split = split
        self._shards = shards.ShardWriter(folder, split)
        self._streams: list[int] = []
        self._documents = self._unknown = self._bytes = self._characters = 0
        self._begins = True  # whether a document begins with the next token
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
        """What was written.

        Args:
          sources: the texts.
          keep_streams: whether each `write` was a stream of its own.

        Raises:
          ValueError: nothing was.
        """
        tokens = sum(self._streams)
        if not tokens:
            names = ", ".join(source.name for source in sources)
            raise ValueError(f"{self.split} must hold text, got no tokens in {names}")
        if self._lowest == self._highest:
            logging.warning("%s holds one token only, %d times", self.split, tokens)
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
