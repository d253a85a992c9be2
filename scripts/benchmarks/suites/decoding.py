"""The decode suite: cost of generating a token with full memory."""

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import comparison, flops
from benchmarks.options import Options
from benchmarks.suites import evaluation
from benchmarks.workers import hf_client
from txl_tf.configs.run import Config
from txl_tf.inference import decode_state as states
from txl_tf.inference import decoding
from txl_tf.inference.sampling import Sampling
from txl_tf.models.transformer_xl import TransformerXL

SETTINGS = evaluation.SETTINGS
_BATCHES = (1, 8)


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each batch size and contender; ours decode greedily, the peer reads ids.

    Raises:
      ValueError: the log-probabilities of two contenders differ, or those of generated ids differ
        from the ones of the same ids when read.
    """
    base = TransformerXL(config.model)
    model = evaluation.with_eval_lengths(base, config)
    rows = []
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(hf_client.Peer(options.peers)) if options.peers else None
        for num_rows in _BATCHES:
            ids = comparison.draw_ids(model, comparison.STEPS, num_rows, 1)
            inputs = {"ids": ids}
            contenders = [*comparison.theirs(other, "decode", model, config.train, inputs, options)]
            for precision in options.precisions:
                copied = evaluation.with_eval_lengths(comparison.reader(base, precision), config)
                contenders.append(_ours(copied, precision, ids))
            cost = flops.inference(model.config, segment_len=1)
            raced = comparison.race(contenders, num_rows, cost, options)
            for row, contender in zip(raced, contenders, strict=True):
                is_ours = contender.library == comparison.OURS
                late = _late_over_early(contender.call) if is_ours else None
                rows.append({"batch_size": num_rows} | row | {"late_over_early": late})
    return rows


def _late_over_early(call: Callable[[], object]) -> float:
    """Returns the time of tokens around number 2,000 over that around number 50."""
    seconds = []
    for _ in range(2048 // decoding.CHUNK):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[60:63]) / statistics.median(seconds[1:4])


def _ours(model: TransformerXL, precision: str, ids: np.ndarray) -> comparison.Contender:
    state = states.make("kv", model, segment_len=1)
    decoder = decoding.Decoder(state, Sampling(temperature=0.0))
    session = decoding.Session(decoder, ids.shape[1])

    def outputs() -> dict[str, np.ndarray]:
        _check_written(decoder, state, ids[0], precision)
        return {"log_probs": _log_probs(state, ids)}

    def call() -> None:
        for _ in session.write(decoding.CHUNK):
            pass

    return comparison.Contender(comparison.OURS, precision, None, outputs, call, decoding.CHUNK)


def _log_probs(state: states.HiddenState, ids: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities of the next ids. [steps, B, 1] -> [steps, B, V]."""
    memory, found = state.initial(ids.shape[1]), []
    for each in ids:
        scores, memory = state.scores(tf.constant(each), memory)
        found.append(tf.nn.log_softmax(scores[:, 0]))
    return np.stack(found)


def _check_written(
    decoder: decoding.Decoder, state: states.HiddenState, first: np.ndarray, precision: str
) -> None:
    """Raises if decoding returns other ids than the likeliest, or wrong log-probabilities.

    Shapes: first [B, 1], the prompt.
    """
    session = decoding.Session(decoder, len(first))
    session.read(list(first))
    ids, returned = next(session.write(comparison.STEPS))  # [B, STEPS]
    read = np.concatenate([first, ids[:, :-1]], axis=1)
    log_probs = _log_probs(state, read.T[..., np.newaxis])  # [STEPS, B, V]
    written = np.take_along_axis(log_probs, ids.T[..., np.newaxis], axis=2)[..., 0].T
    comparison.check("returned log-probabilities", written, returned, precision)
    comparison.check("log-probabilities of ids", log_probs.max(axis=2).T, written, precision)
