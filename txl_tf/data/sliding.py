"""Batches of overlapping windows of a split, which give each target a long context."""

from collections.abc import Iterator

import numpy as np

from txl_tf.data.batches import Batch, Batches


class SlidingBatches:
    """Windows of `window` pairs, each `stride` pairs after the one before; a batch is some of them.

    >>> batches = txl_tf.SlidingBatches("data", "valid", batch_size=2, window=8, stride=4)
    >>> batch = next(batches.arrays())
    >>> batch.ids.shape
    (2, 8)

    Every target occurs once: the first window has all of its own, each later one only its last
    `stride`, which have at least `window - stride` inputs before them; the others are -1. Windows
    are independent of each other: every batch restarts. The same attributes and methods as those of
    `Batches` that an evaluation needs.

    This is how models without memory are evaluated with a full context: Al-Rfou et al. 2018 (arXiv
    1808.04444), with a stride of 1. It computes `window / stride` tokens for each target.

    Args:
      data_dir: output folder of `prepare_data`.
      split: for example "test".
      batch_size: number of windows in a batch.
      window: (input, target) pairs of a window, W.
      stride: pairs from the start of a window to that of the next, at most `window`.

    Attributes:
      metadata, split_metadata, split, batch_size, pairs, scored: as those of `Batches`.
      segment_len: `window`.
      steps_per_epoch: number of batches.

    Raises:
      ValueError: the folder, the split or an argument is wrong, or the split is too short.
    """

    def __init__(self, data_dir: str, split: str, *, batch_size: int, window: int, stride: int):
        if not 1 <= stride <= window:
            raise ValueError(f"stride must be between 1 and the window of {window}, got {stride}")
        self._stream = Batches(
            data_dir, split, batch_size=1, segment_len=stride * batch_size, mode="eval"
        )
        self._stride = stride
        self.metadata, self.split_metadata = self._stream.metadata, self._stream.split_metadata
        self.split = split
        self.batch_size = batch_size
        self.segment_len = window
        self.pairs = self.scored = self._stream.pairs
        windows = 1 + -(-max(self.pairs - window, 0) // stride)
        self.steps_per_epoch = -(-windows // batch_size)

    def arrays(self, epochs: int = 1) -> Iterator[Batch]:
        """Returns a generator of batches as NumPy arrays, of shapes [B, W]."""
        return (batch for _ in range(epochs) for batch in self._epoch())

    def _epoch(self) -> Iterator[Batch]:
        window, stride = self.segment_len, self._stride
        length = window + (self.batch_size - 1) * stride  # pairs that a batch covers
        read = self._stream.arrays(epochs=1)
        pairs = _Pairs.none()
        for step in range(self.steps_per_epoch):
            while len(pairs) < length and (batch := next(read, None)) is not None:
                pairs = pairs.followed_by(batch)
            ids, targets, document_start = pairs.windows(length, window, stride)
            context = window - stride
            targets[1 if step == 0 else 0 :, :context] = -1
            yield Batch(ids, targets, document_start, np.array(True))
            pairs = pairs.since(self.batch_size * stride)


class _Pairs:
    """Consecutive pairs: ids, targets and starts of documents, [N] each."""

    _PADDING = 0, -1, False

    def __init__(self, *arrays: np.ndarray):
        self._arrays = arrays

    @classmethod
    def none(cls) -> "_Pairs":
        return cls(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self._arrays[0])

    def followed_by(self, batch: Batch) -> "_Pairs":
        parts = zip(self._arrays, batch[:3], strict=True)
        return _Pairs(*(np.concatenate([array, more[0]]) for array, more in parts))

    def since(self, start: int) -> "_Pairs":
        return _Pairs(*(array[start:] for array in self._arrays))

    def windows(self, length: int, window: int, stride: int) -> list[np.ndarray]:
        """Returns copies of the windows in the first `length` pairs, padded: [B, W] each."""
        found = []
        for array, padding in zip(self._arrays, self._PADDING, strict=True):
            whole = np.full(length, padding, array.dtype)
            whole[: len(array)] = array[:length]
            views = np.lib.stride_tricks.sliding_window_view(whole, window)[::stride]
            found.append(views.copy())
        return found
