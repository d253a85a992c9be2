"""Texts as ids, and batches of them: padded to a few sizes, so that few graphs are compiled."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from txl_tf.classification.config import TextConfig
from txl_tf.data import labelled_text, text, tokenizers

_LEAST = 64  # tokens of the smallest batch
_WINDOW = 16  # batches whose texts are put together by length


class Batch(NamedTuple):
    """B texts.

    Shapes: ids [B, T] int32, 0 beyond lengths [B] int32; labels [B] int32, -1 in rows that only
    fill the batch; places [B], of each text in the sequence that the batches are of, -1 there.
    """

    ids: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    places: np.ndarray


def make_tokenizer(config: TextConfig, texts: Sequence[labelled_text.Text]) -> tokenizers.Tokenizer:
    """The tokenizer, which learns its symbols from the texts for training."""
    kind = tokenizers.kind(config.tokenizer)
    learner = kind.start(vocab_size=config.max_symbols, min_count=0)
    if isinstance(learner, tokenizers.Tokenizer):
        return learner
    for found in texts:
        learner.add(learner.observe(text.Piece(found.content.encode("utf-8"), found.name)))
    return learner.finish()


def kept(ids: np.ndarray, config: TextConfig) -> np.ndarray:
    """The ids of a text that the model reads, [n] int32."""
    limit = config.max_tokens
    part = ids[:limit] if config.keep == "first" else ids[max(len(ids) - limit, 0) :]
    return part.copy()  # the rest need not stay in memory


def sizes(max_tokens: int, segment_len: int | None) -> tuple[int, ...]:
    """The lengths of batches, rising: each twice the one before, in whole segments, to the last.

    With max_tokens 1000: 64, 128, 256, 512, 1024; in segments of 300: 300, 600, 1200.
    """
    found = [segment_len or _LEAST]
    while found[-1] < max_tokens:
        found.append(2 * found[-1])
    unit = segment_len or _LEAST
    found[-1] = min(found[-1], -(-max_tokens // unit) * unit)
    return tuple(found)


def in_order(
    ids: Sequence[np.ndarray],
    labels: np.ndarray,
    batch_size: int,
    lengths: Sequence[int],
) -> Iterator[Batch]:
    """Every text once, those of like length together."""
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
    """Epoch after epoch without end, in an order that follows from the seed.

    Texts are shuffled and, some batches' worth at a time, sorted by length, so that a batch is
    padded little; the batches of an epoch are shuffled again.
    """
    epoch = 0
    while True:
        draw = np.random.default_rng([seed, epoch])
        order = draw.permutation(len(ids))
        cuts = []
        for start in range(0, len(order), batch_size * _WINDOW):
            window = sorted(order[start : start + batch_size * _WINDOW], key=lambda i: len(ids[i]))
            cuts += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
        for index in draw.permutation(len(cuts)):
            yield _batch(ids, labels, cuts[index], batch_size, lengths)
        epoch += 1


def _batch(ids, labels, places, batch_size, lengths) -> Batch:
    longest = max(len(ids[place]) for place in places)
    size = next(length for length in lengths if length >= longest)
    batch = Batch(
        ids=np.zeros([batch_size, size], np.int32),
        lengths=np.ones([batch_size], np.int32),
        labels=np.full([batch_size], -1, np.int32),
        places=np.full([batch_size], -1, np.int64),
    )
    for row, place in enumerate(places):
        batch.ids[row, : len(ids[place])] = ids[place]
        batch.lengths[row] = len(ids[place])
        batch.labels[row] = labels[place]
        batch.places[row] = place
    return batch
