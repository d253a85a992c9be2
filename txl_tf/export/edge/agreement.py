"""Agreement of a converted model with its original on held-out text."""

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
    """Result of a comparison.

    Attributes:
      text: name of the text.
      contexts: number of predictions compared.
      top1_agreement: fraction of predictions with equal argmax.
      largest_difference: maximum absolute difference of two scores.
      nats_per_token, float_nats_per_token: loss of the converted model, and of the original.
      bits_per_character, float_bits_per_character: the same losses; see `metrics.bits`.
      bits_unavailable: the reason if bits are unknown, or None.
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
    """Returns the `Agreement` of both models on a text, each with its own state.

    Raises:
      ValueError: the text has fewer than two tokens.
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
        actual, edge_state = edge.step(ids, edge_state, lengths)
        real = np.arange(ids.shape[1]) < lengths[:, np.newaxis]
        expected, actual = expected.numpy()[real], actual[real]  # [n, V]
        agreed += int(np.sum(expected.argmax(-1) == actual.argmax(-1)))
        largest = max(largest, float(np.abs(expected - actual).max()))
        by_model.add(_nats(expected, targets[real]))
        by_edge.add(_nats(actual, targets[real]))
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
    """Yields (ids, targets, lengths) of a text laid out as rows that continue each other."""
    size = max(-(-(len(ids) - 1) // batch_size), 1)
    parts = [ids[start : start + size + 1] for start in range(0, batch_size * size, size)]
    inputs = segments.cut([part[:-1] for part in parts], segment_len)
    targets = segments.cut([part[1:] for part in parts], segment_len)
    for (row_ids, lengths), (row_targets, _) in zip(inputs, targets, strict=True):
        yield row_ids, row_targets, lengths


def _nats(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the loss of each target in nats: scores [n, V], targets [n] -> [n] float64."""
    scores = scores.astype(np.float64)
    top = scores.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(scores - top).sum(axis=-1)) + top[:, 0]
    return normaliser - scores[np.arange(len(targets)), targets]
