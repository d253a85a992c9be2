"""How a stream of tokens becomes rows: pure arithmetic, and the counts that follow from it.

A stream of N tokens has N - 1 pairs of an input and its target, the token after it; pair p has
input p. Eleven tokens in two rows, with the pairs of each row:

    contiguous, training      0 1 2 3 4 | 5 6 7 8 9        floor(10 / 2) a row
    contiguous, evaluation    the same; of 10 tokens: 0 1 2 3 4 | 5 6 7 8     ceil(9 / 2) a row
    reference                 0 1 2 3 | 5 6 7 8            11 // 2 tokens a row, a pair fewer

Training drops the tail, so that all rows are equally long; evaluation pads the last row, so that
every pair is in one row; reference is what the original implementations do.
"""

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of equal length that are read side by side, segment by segment.

    Attributes:
      rows: number of rows, B.
      start: first pair of row 0, as a position in the split's stream.
      stride: from the first pair of a row to that of the next.
      pairs: of each row, but for rows that reach `end`.
      end: the first position that is no pair of the stream.
    """

    rows: int
    start: int
    stride: int
    pairs: int
    end: int

    def steps(self, segment_len: int) -> int:
        """Segments of a row, the last and short one included."""
        return -(-self.pairs // segment_len)

    def span(self, row: int, offset: int, length: int) -> tuple[int, int]:
        """Where a row's pairs from its `offset` on begin, and how many of `length` there are."""
        first = self.start + row * self.stride
        last = min(first + self.pairs, self.end)
        return first + offset, min(max(last - first - offset, 0), length)

    @property
    def scored(self) -> int:
        """Pairs in all rows."""
        return sum(self.span(row, 0, self.pairs)[1] for row in range(self.rows))


def training(streams: Sequence[int], rows: int) -> list[Block]:
    """Equal rows; fewer than `rows` pairs at the end are dropped."""
    end = sum(streams) - 1
    return [Block(rows, 0, end // rows, end // rows, end)]


def evaluation(streams: Sequence[int], rows: int) -> list[Block]:
    """Every pair once; the last rows may be short, or empty."""
    end = sum(streams) - 1
    return [Block(rows, 0, -(-end // rows), -(-end // rows), end)]


def reference(streams: Sequence[int], rows: int) -> list[Block]:
    """The originals' batching, each stream by itself, one after another.

    A stream is cut to a multiple of `rows` tokens and folded into rows; the first token of a row is
    no target. The originals' short last segment is padded.
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
    """The blocks of an epoch, in order.

    Args:
      layout: a name of LAYOUTS.
      mode: "train" or "eval".
      streams: tokens of each of the split's streams.
      rows: rows of a batch.

    Raises:
      ValueError: an argument is unknown, or there is not a pair for each row.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if mode not in LAYOUTS[layout]:
        raise ValueError(f"mode must be one of {', '.join(LAYOUTS[layout])}, got {mode!r}")
    if rows < 1:
        raise ValueError(f"batch_size must be at least 1, got {rows}")
    tokens = sum(streams) if layout == "contiguous" else max(streams)
    least = rows + 1 if layout == "contiguous" else 2 * rows
    if tokens < least:
        raise ValueError(
            f"the stream must hold at least {least} tokens for batch_size {rows}, got {tokens} "
            f"tokens ({max(tokens - 1, 0)} pairs of input and target for {rows} rows)"
        )
    return LAYOUTS[layout][mode](streams, rows)


def worker_rows(batch_size: int, worker: int, workers: int) -> tuple[int, int]:
    """The rows of one of several workers that share a batch: first, and first after them."""
    if batch_size % workers:
        raise ValueError(f"batch_size must be a multiple of {workers} workers, got {batch_size}")
    share = batch_size // workers
    return worker * share, (worker + 1) * share
