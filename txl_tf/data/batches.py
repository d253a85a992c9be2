"""Batches of a prepared split, whose rows continue from step to step."""

from collections.abc import Generator, Iterator
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from txl_tf.data import layouts, metadata, stream_reader

_STACK = 2048  # pairs of a row assembled at a time (or one step's, if more)


class Batch(NamedTuple):
    """One step's segments.

    Shapes:
      ids: [B, T] int32 inputs, 0 for padding.
      targets: [B, T] int32, the token after each input; -1 for padding.
      document_start: [B, T] bool, whether an input begins a document.
      restart: [] bool, whether this is the first step of an epoch, where rows and memories restart.
    """

    ids: Any
    targets: Any
    document_start: Any
    restart: Any


class Batches:
    """Batches of one split, the same for any number of shards and reader threads.

    >>> batches = txl_tf.Batches("data", "train", batch_size=2, segment_len=8)
    >>> batch = next(batches.arrays())
    >>> batch.ids.shape, batch.targets.shape
    ((2, 8), (2, 8))

    Row b of a step continues row b of the step before; `layouts` defines the start of each row.
    Steps are counted through all epochs; starting at any step is equally fast. In layout
    "reference" rows jump from stream to stream without a restart, as in the original code.

    Args:
      data_dir: output folder of `prepare_data`.
      split: for example "train".
      batch_size: rows of all workers.
      segment_len: (input, target) pairs of a row in a step, T.
      mode: "train" drops the tail for equal rows, "eval" contains every target once.
      layout: "contiguous" or "reference".
      rows: the range of rows to deliver, for example `layouts.worker_rows(...)`; None is all.
      num_parallel: threads that read ahead.

    Attributes:
      metadata, split_metadata: of the folder.
      data_dir, split, batch_size, segment_len: as given.
      steps_per_epoch: steps from one restart to the next.
      pairs: number of (input, target) pairs of the split, N - 1.
      scored: pairs in the rows of an epoch.
      dropped: pairs in no row; `scored + dropped == pairs`.

    Raises:
      ValueError: the folder, the split or an argument is wrong, or the split is too short.
    """

    def __init__(
        self,
        data_dir: str,
        split: str,
        *,
        batch_size: int,
        segment_len: int,
        mode: str = "train",
        layout: str = "contiguous",
        rows: tuple[int, int] | None = None,
        num_parallel: int = 4,
    ):
        _check_at_least(
            1, batch_size=batch_size, segment_len=segment_len, num_parallel=num_parallel
        )
        self.metadata = metadata.Metadata.load(data_dir)
        self.split_metadata = self.metadata.split(split)
        try:
            self._blocks = layouts.blocks(layout, mode, self.split_metadata.streams, batch_size)
        except ValueError as error:
            raise ValueError(f"split {split!r}: {error}") from error
        first, end = rows or (0, batch_size)
        if not 0 <= first < end <= batch_size:
            raise ValueError(f"rows must lie within 0..{batch_size}, got {rows}")
        for warning in self.split_metadata.size.warnings(f"{data_dir}, split {split!r}"):
            logging.warning("%s", warning)
        self._rows = range(first, end)
        self._num_parallel = num_parallel
        self._reader = stream_reader.StreamReader(data_dir, split, self.metadata)
        self.data_dir = str(data_dir)
        self.split = split
        self.batch_size = batch_size
        self.segment_len = segment_len
        self.steps_per_epoch = sum(block.steps(segment_len) for block in self._blocks)
        self.pairs = self.split_metadata.tokens - 1
        self.scored = sum(block.scored for block in self._blocks)
        self.dropped = self.pairs - self.scored

    def arrays(
        self, start_step: int = 0, epochs: int | None = None
    ) -> Generator[Batch, None, None]:
        """Returns a generator of batches as NumPy arrays; `prefetch` reads it ahead.

        Args:
          start_step: the first step, counted from 0 through all epochs.
          epochs: number of epochs, counted from step 0; None is endless.
        """
        _check_at_least(0, start_step=start_step)
        stacks = self._stacks(start_step, epochs)
        return (Batch(*step) for stack in stacks for step in zip(*stack, strict=True))

    def for_fit(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Returns an endless generator of (ids, targets), for Keras' `fit` and `evaluate`.

            model.fit(batches.for_fit(), steps_per_epoch=batches.steps_per_epoch, epochs=3)
            model.evaluate(batches.for_fit(), steps=batches.steps_per_epoch)

        Keras carries no memory over: each segment is read without context; `txl_tf.train` does
        carry it. Keras also wraps generators in tf.data, which slows small steps down (see
        `prefetch`).
        """
        return ((batch.ids, batch.targets) for batch in self.arrays())

    def _stacks(self, start_step: int, epochs: int | None) -> Iterator[Batch]:
        """Yields several steps stacked along a new first axis, to amortise Python overhead."""
        epoch, step = divmod(start_step, self.steps_per_epoch)
        while epochs is None or epoch < epochs:
            block_start = 0
            for block in self._blocks:
                block_end = block_start + block.steps(self.segment_len)
                if step < block_end:
                    for ids, targets, document_start in self._read(block, step - block_start):
                        restart = np.arange(step, step + len(ids)) == 0
                        yield Batch(ids, targets, document_start, restart)
                        step += len(ids)
                block_start = block_end
            epoch, step = epoch + 1, 0

    def _read(self, block: layouts.Block, first: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields (ids, targets, document_start), each [n, B, T], of a block from step `first`."""
        steps, stack_steps = block.steps(self.segment_len), max(_STACK // self.segment_len, 1)
        with futures.ThreadPoolExecutor(self._num_parallel) as pool:
            rows = {}
            for row in self._rows:
                position, pairs = block.span(row, first * self.segment_len, self.segment_len)
                if pairs:  # a row that has ended stays padding
                    rows[row] = stream_reader.ReadAhead(self._reader.runs(position), pool)
            for step in range(first, steps, stack_steps):
                n = min(stack_steps, steps - step)
                stack = self._stack(block, rows, step * self.segment_len, n * self.segment_len)
                by_step = [len(self._rows), n, self.segment_len]
                yield tuple(part.reshape(by_step).swapaxes(0, 1) for part in stack)

    def _stack(
        self,
        block: layouts.Block,
        rows: dict[int, stream_reader.ReadAhead],
        offset: int,
        length: int,
    ) -> tuple[np.ndarray, ...]:
        """Returns (ids, targets, document_start), each [B, length], of pairs from `offset` on."""
        shape = [len(self._rows), length]
        ids, targets = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        document_start = np.zeros(shape, bool)
        for row, ahead in rows.items():
            _, pairs = block.span(row, offset, length)
            tokens, begins = ahead.take(pairs)
            b = row - self._rows.start
            ids[b, :pairs] = tokens[:pairs]
            targets[b, :pairs] = tokens[1:]
            document_start[b, :pairs] = begins[:pairs]
        return ids, targets, document_start


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
