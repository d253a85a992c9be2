"""The train suite: time and peak memory of an optimizer step, from the forward pass to Adam."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import comparison, flops
from benchmarks.options import Options
from benchmarks.peak_memory import peak
from benchmarks.workers import hf_client
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.data.batches import Batch
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, step
from txl_tf.training.distribution import make_distribution

# The learning rate is constant, and initial zeros take attention mass, as in the peer. Weights are
# large enough for uneven attention, which makes errors visible. Adam's epsilon is large: with a
# small one, its first steps would follow the sign of gradients that are mere rounding.
SETTINGS = (
    "train.batch_size=2",
    "train.warmup_steps=0",
    "train.min_lr_ratio=1",
    "train.adam_epsilon=1e-4",
    "model.attend_to_initial_zeros=true",
    "model.init_std=0.03",
)

_Inputs = Mapping[str, np.ndarray]  # ids and targets, [steps, B, T]


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each contender, timed with dropout and compared without.

    Raises:
      ValueError: losses or gradient norms of two contenders differ.
    """
    model, train = TransformerXL(config.model), config.train
    inputs = _draw(model, train)
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(hf_client.Peer(options.peers)) if options.peers else None
        contenders = [*comparison.theirs(other, "train", model, train, inputs, options)]
        for precision, jit in comparison.precisions_and_jits(options):
            settings = dataclasses.replace(train, precision=precision, jit=jit)
            contenders.append(
                comparison.Contender(
                    comparison.OURS,
                    precision,
                    jit,
                    functools.partial(_outputs, model, settings, inputs),
                    _stepper(comparison.copy(model, precision), settings, inputs),
                )
            )
        tokens = train.batch_size * train.segment_len
        cost = flops.training(config.model, train.batch_size, train.segment_len)
        rows = comparison.race(contenders, tokens, cost, options)
    return [
        row | {"peak_mb": bytes_ / 1e6}
        for row, bytes_ in zip(rows, _peaks(model, config, inputs, options), strict=True)
    ]


def _draw(model: TransformerXL, train: TrainConfig) -> _Inputs:
    shape = comparison.STEPS, train.batch_size, train.segment_len + 1
    ids = comparison.draw_ids(model, *shape)
    return {"ids": ids[..., :-1], "targets": ids[..., 1:]}


def _stepper(
    model: TransformerXL, train: TrainConfig, inputs: _Inputs
) -> Callable[[], tuple[float, float]]:
    """Returns a function that trains on the next segment, in a cycle: loss and gradient norm."""
    adam = optimizer.make_optimizer(train)
    adam.build(model.trainable_variables)
    config = Config(model=model.config, train=train)
    train_step = step.make_train_step(model, adam, make_distribution("one_device"), config)
    memory = model.initial_mems(train.batch_size)
    document_start = tf.zeros(inputs["ids"].shape[1:], tf.bool)  # [B, T]
    cycle = itertools.cycle(
        Batch(tf.constant(ids), tf.constant(targets), document_start, tf.constant(False))
        for ids, targets in zip(inputs["ids"], inputs["targets"], strict=True)
    )

    def call() -> tuple[float, float]:
        nonlocal memory
        metrics, memory = train_step(next(cycle), memory)
        return float(metrics.loss), float(metrics.gradient_norm)

    return call


def _outputs(model: TransformerXL, train: TrainConfig, inputs: _Inputs) -> dict[str, np.ndarray]:
    """Returns the outputs of the first steps of a copy without dropout, [STEPS] each."""
    copied = comparison.copy(model, train.precision, dropout=0.0, attention_dropout=0.0)
    call = _stepper(copied, train, inputs)
    losses, norms = zip(*(call() for _ in range(comparison.STEPS)), strict=True)
    return {"loss": np.array(losses), "gradient_norm": np.array(norms)}


def _peaks(model: TransformerXL, config: Config, inputs: _Inputs, options: Options) -> list[int]:
    """Returns the peak bytes of a process that only trains, for each contender."""
    peaks = []
    for precision in comparison.peer_precisions(options) if options.peers else ():
        with hf_client.Peer(str(options.peers)) as other:
            settings = dataclasses.replace(config.train, precision=precision)
            other.make("train", "train", model, settings, inputs)
            for _ in range(comparison.STEPS):
                other.call("train")
            peaks.append(other.peak_bytes())
    for precision, jit in comparison.precisions_and_jits(options):
        settings = dataclasses.replace(config.train, precision=precision, jit=jit)
        peaks.append(peak(take_steps, dataclasses.replace(config, train=settings)))
    return peaks


def take_steps(config: Config) -> None:
    """Takes some steps, in the process whose peak memory is measured."""
    policy = comparison.TRAINED[config.train.precision]
    model = TransformerXL(config.model, dtype=policy)
    call = _stepper(model, config.train, _draw(model, config.train))
    for _ in range(comparison.STEPS):
        call()
