"""How close a converted model is to the one it was made from, on text that neither has seen."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from txl_tf.export.edge.calibration import Sample
from txl_tf.export.edge.runtime import EdgeModel
from txl_tf.inference import decode_state as states
from txl_tf.inference import metrics, segments

Progress = Callable[[int, int], None]  # (tokens done, tokens in all)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """What a comparison found.

    Attributes:
      text: what was read.
      contexts: how many predictions were compared.
      top1_agreement: in what part of them both models think the same token the likeliest.
      largest_difference: of two scores.
      nats_per_token, float_nats_per_token: of the text by the converted model, and by the original.
      bits_per_character, float_bits_per_character: of the same; see `totals.bits`.
      bits_unavailable: the reason why these are not known, or None.
    """

    text: str
    contexts: int
    top1_agreement: float
    largest_difference: float
    nats_per_token: float
    float_nats_per_token: float
    bits_per_character: float | None
    float_bits_per_character: float | None
    bits_unavailable: str | None


def measure(model, edge: EdgeModel, held_out: Sample, progress: Progress | None = None):
    """Reads a text with both models, each through its own state.

    Raises:
      ValueError: the text has no two tokens.
    """
    pairs = len(held_out.ids) - 1
    if pairs < 1:
        raise ValueError(f"{held_out.name} must hold 2 tokens to compare models, got {pairs + 1}")
    reader = states.KeyValueState(model, edge.segment_len)
    read = tf.function(reader.scores, autograph=False, reduce_retracing=True)
    by_model, by_edge = metrics.Totals(), metrics.Totals()
    state, edge_state = reader.initial(edge.batch_size), edge.initial(edge.batch_size)
    agreed, largest = 0, 0.0
    for ids, targets, lengths in rows(held_out.ids, edge.batch_size, edge.segment_len):
        expected, state = read(tf.constant(ids), state, tf.constant(lengths))
        found, edge_state = edge.step(ids, edge_state, lengths)
        real = np.arange(ids.shape[1]) < lengths[:, np.newaxis]
        expected, found = expected.numpy()[real], found[real]  # [n, V]
        agreed += int(np.sum(expected.argmax(-1) == found.argmax(-1)))
        largest = max(largest, float(np.abs(expected - found).max()))
        by_model.add(_nats(expected, targets[real]))
        by_edge.add(_nats(found, targets[real]))
        if progress is not None:
            progress(by_edge.scored, pairs)

    nats, float_nats = by_edge.nats_per_token, by_model.nats_per_token
    bits = metrics.bits(nats, held_out.size)
    return Agreement(
        text=held_out.name,
        contexts=by_edge.scored,
        top1_agreement=agreed / by_edge.scored,
        largest_difference=largest,
        nats_per_token=nats,
        float_nats_per_token=float_nats,
        bits_per_character=bits.bits_per_character,
        float_bits_per_character=metrics.bits(float_nats, held_out.size).bits_per_character,
        bits_unavailable=bits.bits_unavailable,
    )


def rows(
    ids: np.ndarray, batch_size: int, segment_len: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Lays a text out as rows that read on; yields (ids, targets, lengths) until it is read."""
    size = max(-(-(len(ids) - 1) // batch_size), 1)
    parts = [ids[start : start + size + 1] for start in range(0, batch_size * size, size)]
    inputs = segments.cut([part[:-1] for part in parts], segment_len)
    targets = segments.cut([part[1:] for part in parts], segment_len)
    for (read, lengths), (wanted, _) in zip(inputs, targets, strict=True):
        yield read, wanted, lengths


def _nats(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Of each target under the softmax of its scores. [n, V], [n] -> [n] float64."""
    scores = scores.astype(np.float64)
    top = scores.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(scores - top).sum(axis=-1)) + top[:, 0]
    return normaliser - scores[np.arange(len(targets)), targets]
