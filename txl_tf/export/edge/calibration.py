"""Calibration and held-out text, as token ids."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from txl_tf.data import text
from txl_tf.data.batches import Batches
from txl_tf.data.text_size import TextSize
from txl_tf.data.tokenizers import Tokenizer

_PIECE_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """Consecutive tokens of a text.

    Attributes:
      name: of the text, for messages.
      ids: [N] int32.
      size: of the source text, for bits per character.
    """

    name: str
    ids: np.ndarray
    size: TextSize

    def part(self, start: int, end: int | None = None) -> "Sample":
        """Returns the tokens from `start` to `end`."""
        return dataclasses.replace(self, ids=self.ids[start:end])


def from_text(tokenizer: Tokenizer, sources: Iterable[text.Source], max_tokens: int) -> Sample:
    """Returns at most `max_tokens` tokens from the start of the concatenated texts."""
    ids: list[np.ndarray] = []
    names, size = [], TextSize()
    for source in sources:
        if size.tokens >= max_tokens:
            break
        names.append(source.name)
        with text.Reader(source) as reader:
            for piece in reader.pieces(_PIECE_BYTES):
                encoding = tokenizer.encode_piece(piece)
                ids.append(encoding.ids)
                size = size.plus(encoding.size)
                if size.tokens >= max_tokens:
                    break
    joined = np.concatenate([np.zeros(0, np.int32), *ids])[:max_tokens]
    return Sample(name=", ".join(names), ids=joined, size=size)


def from_split(data_dir: str, split: str, tokenizer: Tokenizer, max_tokens: int) -> Sample:
    """Returns at most `max_tokens` tokens from the start of a split of prepared data.

    Raises:
      ValueError: the data have another vocabulary, or no such split.
    """
    batches = Batches(data_dir, split, batch_size=1, segment_len=256, mode="eval", num_parallel=1)
    batches.metadata.check_vocabulary(tokenizer.vocab_size, tokenizer.checksum)
    ids: list[np.ndarray] = []
    count = 0
    for batch in batches.arrays(epochs=1):
        real = batch.targets[0] != -1
        ids.append(batch.ids[0][real])
        count += len(ids[-1])
        if count > max_tokens:
            break
    else:
        ids.append(batch.targets[0][real][-1:])  # the last token is never an input
    return Sample(
        name=f"{data_dir} ({split})",
        ids=np.concatenate(ids)[:max_tokens],
        size=batches.split_metadata.size,
    )
