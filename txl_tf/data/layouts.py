"""Layouts: arithmetic of how a token stream becomes rows, and the resulting counts.

A stream of N tokens has N - 1 (input, target) pairs, the target being the next token; pair p has
input p. Eleven tokens in two rows, with the pairs of each row:

    contiguous, training      0 1 2 3 4 | 5 6 7 8 9        floor(10 / 2) a row
    contiguous, evaluation    same; of 10 tokens: 0 1 2 3 4 | 5 6 7 8     ceil(9 / 2) a row
    reference                 0 1 2 3 | 5 6 7 8            11 // 2 tokens a row, a pair fewer

Training drops the tail for rows of equal length; evaluation pads the last row, so that every pair
is in one row; reference is the layout of the original implementations.
"""

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of equal length, read in parallel, segment by segment.

    Attributes:
      rows: number of rows, B.
      start: first pair of row 0, as a position in the split's stream.
      stride: distance between the first pairs of consecutive rows.
      pairs: of each row, except rows that reach `end`.
      end: end of the stream's pairs (exclusive).
    """

    rows: int
    start: int
    stride: int
    pairs: int
    end: int

    def steps(self, segment_len: int) -> int:
        """Returns the segments of a row, including a short last one."""
        return -(-self.pairs // segment_len)

    def span(self, row: int, offset: int, length: int) -> tuple[int, int]:
        """Returns position and number (at most `length`) of a row's pairs from `offset` on."""
        first = self.start + row * self.stride
        last = min(first + self.pairs, self.end)
        return first + offset, min(max(last - first - offset, 0), length)

    @property
    def scored(self) -> int:
        """Number of pairs in all rows."""
        return sum(self.span(row, 0, self.pairs)[1] for row in range(self.rows))


def training(streams: Sequence[int], rows: int) -> list[Block]:
    """Returns equal rows; the last pairs, fewer than `rows`, are dropped."""
    end = sum(streams) - 1
    return [Block(rows, 0, end // rows, end // rows, end)]


def evaluation(streams: Sequence[int], rows: int) -> list[Block]:
    """Returns rows with every pair once; the last ones may be short or empty."""
    end = sum(streams) - 1
    return [Block(rows, 0, -(-end // rows), -(-end // rows), end)]


def reference(streams: Sequence[int], rows: int) -> list[Block]:
    """Returns the batching of the original code: one block per stream.

    A stream is truncated to a multiple of `rows` tokens and folded into rows; the first token of a
    row is not a target. The original's short last segment is padded.
    """
    blocks, start = [], 0
    for tokens in streams:
        stride = tokens // rows
        blocks.append(Block(rows, start, stride, max(stride - 1, 0), start + max(tokens - 1, 0)))
        start += tokens
    return blocks


LAYOUTS: dict[str, dict[str, Callable[[Sequence[int], int], list[Block]]]] = {
    "contiguous": {"train": training, "eval": evaluation},
    "reference": {"train": reference, "eval": reference},
}


def blocks(layout: str, mode: str, streams: Sequence[int], rows: int) -> list[Block]:
    """Returns the blocks of an epoch, in order.

    Args:
      layout: a name of LAYOUTS.
      mode: "train" or "eval".
      streams: tokens of each of the split's streams.
      rows: number of rows of a batch.

    Raises:
      ValueError: an argument is unknown, or the stream has fewer pairs than rows.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if mode not in LAYOUTS[layout]:
        raise ValueError(f"mode must be one of {', '.join(LAYOUTS[layout])}, got {mode!r}")
    if rows < 1:
        raise ValueError(f"batch_size must be at least 1, got {rows}")
    tokens = sum(streams) if layout == "contiguous" else max(streams)
    minimum = rows + 1 if layout == "contiguous" else 2 * rows
    if tokens < minimum:
        raise ValueError(
            f"the stream must hold at least {minimum} tokens for batch_size {rows}, got {tokens} "
            f"tokens ({max(tokens - 1, 0)} pairs of input and target for {rows} rows)"
        )
    return LAYOUTS[layout][mode](streams, rows)


def worker_rows(batch_size: int, worker: int, workers: int) -> tuple[int, int]:
    """Returns the range of rows of one of several workers: first, and end (exclusive)."""
    if batch_size % workers:
        raise ValueError(f"batch_size must be a multiple of {workers} workers, got {batch_size}")
    share = batch_size // workers
    return worker * share, (worker + 1) * share
