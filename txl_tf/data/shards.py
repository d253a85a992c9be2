"""Shards of a split: TFRecord files that hold one token stream, one run per Example.

An Example is a run of consecutive tokens: `tokens`, and `document_start`, the positions in the run
where a document begins. All runs of a shard except the last have the same length, so a position
in the stream is found by arithmetic. The files depend on the stream alone.
"""

import numpy as np

from txl_tf.data import files, metadata, tfrecord

SHARD_TOKENS = 1 << 20


class ShardWriter:
    """Writes a token stream into shards, under temporary names until `close`.

    A context manager: it closes at the end, or aborts if the block raises.

    Attributes:
      shards: number of tokens of each shard so far.
    """

    def __init__(
        self,
        directory: str,
        split: str,
        shard_tokens: int = SHARD_TOKENS,
        run_tokens: int = metadata.RUN_TOKENS,
    ):
        for name, value in (("shard_tokens", shard_tokens), ("run_tokens", run_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.directory = str(directory)
        self.split = split
        self.shard_tokens = shard_tokens
        self.run_tokens = run_tokens
        self.shards: list[int] = []
        self._writer: tfrecord.RecordWriter | None = None
        self._run = np.empty(min(run_tokens, shard_tokens), np.int32)
        self._filled = 0
        self._document_start: list[np.ndarray] = []

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, tokens, document_start=()) -> None:
        """Appends tokens to the stream.

        Args:
          tokens: [n] ids.
          document_start: ascending positions in `tokens` where a document begins. The first token
            of the stream always begins one.
        """
        tokens, starts = _checked(tokens, document_start)
        if not self.shards and not self._filled and len(tokens):
            starts = np.union1d([0], starts)
        done = 0
        while done < len(tokens):
            piece = tokens[done : done + self._room()]
            self._run[self._filled : self._filled + len(piece)] = piece
            first, last = np.searchsorted(starts, [done, done + len(piece)])
            self._document_start.append(starts[first:last] - done + self._filled)
            self._filled += len(piece)
            done += len(piece)
            if not self._room():
                self._end_run()

    def close(self) -> list[int]:
        """Ends the stream, renames the shards and returns the number of tokens of each."""
        if self._filled:
            self._end_run()
        self._end_shard()
        for index in range(len(self.shards)):
            name = metadata.shard_name(self.split, index, len(self.shards))
            files.rename(self._partial(index), f"{self.directory}/{name}")
        return self.shards

    def abort(self) -> None:
        """Removes all shards written, unless closed."""
        self._end_shard()
        for index in range(len(self.shards)):
            if files.exists(self._partial(index)):
                files.remove(self._partial(index))

    def _room(self) -> int:
        """Number of tokens that fit into the current run."""
        left = self.shard_tokens - (self.shards[-1] if self._writer else 0)
        return min(self.run_tokens, left) - self._filled

    def _end_run(self) -> None:
        if self._writer is None:
            self.shards.append(0)
            self._writer = tfrecord.RecordWriter(self._partial(len(self.shards) - 1))
        starts = np.concatenate(self._document_start)
        lists = {"tokens": self._run[: self._filled], "document_start": starts}
        self._writer.write(tfrecord.example(lists))
        self.shards[-1] += self._filled
        self._filled, self._document_start = 0, []
        if self.shards[-1] == self.shard_tokens:
            self._end_shard()

    def _end_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _partial(self, index: int) -> str:
        return f"{self.directory}/{self.split}-{index:05d}.tfrecord.partial"


def _checked(tokens, document_start) -> tuple[np.ndarray, np.ndarray]:
    tokens, starts = np.asarray(tokens), np.asarray(document_start, np.int64)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise ValueError(f"tokens must be a vector of ids, got {tokens.dtype} of {tokens.shape}")
    check_within("tokens", tokens, 2**31)
    check_within("document_start", starts, len(tokens))
    if (np.diff(starts) <= 0).any():
        raise ValueError(f"document_start must be ascending, got {starts.tolist()}")
    return tokens, starts


def check_within(name: str, values: np.ndarray, limit: int) -> None:
    """Raises if a value is negative or not below `limit`."""
    if values.size and (values.min() < 0 or values.max() >= limit):
        wrong = values.min() if values.min() < 0 else values.max()
        raise ValueError(f"{name} must lie in 0..{limit - 1}, got {wrong}")
