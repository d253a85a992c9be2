"""The eval suite: cost of evaluating a segment with a key-value cache."""

import contextlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import comparison, flops
from benchmarks.options import Options
from benchmarks.workers import hf_client
from txl_tf.configs.run import Config
from txl_tf.inference import decode_state as states
from txl_tf.models.transformer_xl import TransformerXL

# As published, except that a query sees one key less, as in the peer. Zeros take attention mass, so
# that memory is full from the start. Large weights make errors visible.
SETTINGS = (
    "eval.attention_span=2100",
    "model.attend_to_initial_zeros=true",
    "model.init_std=0.05",
)


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each contender.

    Raises:
      ValueError: the losses of two contenders differ.
    """
    base = TransformerXL(config.model)
    model = with_eval_lengths(base, config)
    num_rows = config.eval.batch_size
    segment_len = config.eval.segment_len or config.train.segment_len
    ids = comparison.draw_ids(model, comparison.STEPS, num_rows, segment_len + 1)
    inputs = {"ids": ids[..., :-1], "targets": ids[..., 1:]}
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(hf_client.Peer(options.peers)) if options.peers else None
        contenders = [*comparison.theirs(other, "eval", model, config.train, inputs, options)]
        for precision, jit in comparison.precisions_and_jits(options):
            copied = with_eval_lengths(comparison.reader(base, precision), config)
            call = _reader(copied, jit, inputs)
            contenders.append(
                comparison.Contender(comparison.OURS, precision, jit, _outputs_of(call), call)
            )
        cost = flops.inference(model.config, segment_len)
        return comparison.race(contenders, num_rows * segment_len, cost, options)


def with_eval_lengths(model: TransformerXL, config: Config) -> TransformerXL:
    """Returns the model with the lengths of `config.eval`, or its own where None."""
    lengths = {x: getattr(config.eval, x) for x in ("mem_len", "clamp_len", "attention_span")}
    return model.with_lengths(**{x: value for x, value in lengths.items() if value is not None})


def _reader(
    model: TransformerXL, jit: bool, inputs: Mapping[str, np.ndarray]
) -> Callable[[], np.ndarray]:
    """Returns a function that evaluates the next segment, in a cycle: the loss, [B, T]."""
    _, num_rows, segment_len = inputs["ids"].shape
    state = states.make("kv", model, segment_len)
    nll = tf.function(state.nll, jit_compile=jit, autograph=False)
    memory = state.initial(num_rows)
    segments = zip(
        map(tf.constant, inputs["ids"]), map(tf.constant, inputs["targets"]), strict=True
    )
    cycle = itertools.cycle(segments)

    def call() -> np.ndarray:
        nonlocal memory
        loss, memory = nll(*next(cycle), memory)
        return loss.numpy()

    return call


def _outputs_of(call: Callable[[], np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    return lambda: {"loss": np.stack([call() for _ in range(comparison.STEPS)])}
