"""Batches of tokenized texts, padded to a few lengths, so that few graphs are compiled."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from txl_tf.classification.config import TOKENIZERS, TextConfig
from txl_tf.configs.validation import check_choice
from txl_tf.data import labelled_text, text, tokenizers

_MIN_LENGTH = 64  # tokens of a row in the shortest batches
_WINDOW = 16  # batches whose texts are sorted by length together


class Batch(NamedTuple):
    """Batch of B texts.

    Shapes: ids [B, T] int32, 0 beyond lengths [B] int32; labels [B] int32, -1 in padding rows;
    indices [B] int64 of the texts in the data, -1 in padding rows.
    """

    ids: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    indices: np.ndarray


def make_tokenizer(config: TextConfig, texts: Sequence[labelled_text.Text]) -> tokenizers.Tokenizer:
    """Returns the tokenizer, with the symbols of the training texts.

    Raises:
      ValueError: this kind of tokenizer is not made from them.
    """
    check_choice(config, "tokenizer", TOKENIZERS)
    kind = tokenizers.kind(config.tokenizer)
    learner = kind.start(vocab_size=config.max_symbols, min_count=0)
    if isinstance(learner, tokenizers.Tokenizer):
        return learner
    for sample in texts:
        learner.add(learner.observe(text.Piece(sample.content.encode("utf-8"), sample.name)))
    return learner.finish()


def kept(ids: np.ndarray, config: TextConfig) -> np.ndarray:
    """Returns the ids of a text that the model reads, [n] int32."""
    limit = config.max_tokens
    part = ids[:limit] if config.keep == "first" else ids[max(len(ids) - limit, 0) :]
    return part.copy()  # frees the rest


def sizes(max_tokens: int, segment_len: int | None, limit: int | None = None) -> tuple[int, ...]:
    """Returns the row lengths of batches: doubling, up to max_tokens, in whole segments.

    With max_tokens 1000: 64, 128, 256, 512, 1024; in segments of 300: 300, 600, 1200. `limit`, of
    the model and at least max_tokens, caps the last: 64, 128, 256, 512, 1000.
    """
    unit = segment_len or _MIN_LENGTH
    lengths = [unit]
    while lengths[-1] < max_tokens:
        lengths.append(2 * lengths[-1])
    lengths[-1] = min(lengths[-1], -(-max_tokens // unit) * unit)
    if limit is not None:
        lengths[-1] = min(lengths[-1], limit)
    return tuple(lengths)


def in_order(
    ids: Sequence[np.ndarray],
    labels: np.ndarray,
    batch_size: int,
    lengths: Sequence[int],
) -> Iterator[Batch]:
    """Yields every text once, in batches sorted by length."""
    order = np.argsort([len(x) for x in ids], kind="stable")
    for start in range(0, len(order), batch_size):
        yield _batch(ids, labels, order[start : start + batch_size], batch_size, lengths)


def shuffled(
    ids: Sequence[np.ndarray],
    labels: np.ndarray,
    batch_size: int,
    lengths: Sequence[int],
    seed: int,
) -> Iterator[Batch]:
    """Yields batches of endless epochs, in an order determined by the seed.

    Texts are shuffled and sorted by length within windows of several batches, to reduce padding;
    the batches of an epoch are then shuffled.
    """
    epoch = 0
    while True:
        draw = np.random.default_rng([seed, epoch])
        order = draw.permutation(len(ids))
        chunks = []
        for start in range(0, len(order), batch_size * _WINDOW):
            window = sorted(order[start : start + batch_size * _WINDOW], key=lambda i: len(ids[i]))
            chunks += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
        for index in draw.permutation(len(chunks)):
            yield _batch(ids, labels, chunks[index], batch_size, lengths)
        epoch += 1


def _batch(ids, labels, indices, batch_size, lengths) -> Batch:
    longest = max(len(ids[index]) for index in indices)
    size = next(length for length in lengths if length >= longest)
    batch = Batch(
        ids=np.zeros([batch_size, size], np.int32),
        lengths=np.ones([batch_size], np.int32),
        labels=np.full([batch_size], -1, np.int32),
        indices=np.full([batch_size], -1, np.int64),
    )
    for row, index in enumerate(indices):
        batch.ids[row, : len(ids[index])] = ids[index]
        batch.lengths[row] = len(ids[index])
        batch.labels[row] = labels[index]
        batch.indices[row] = index
    return batch
