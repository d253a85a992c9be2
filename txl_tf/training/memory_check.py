"""Raises for runs that cannot fit into the machine's memory, before they begin."""

import keras
import tensorflow as tf

from txl_tf.configs.run import POLICIES, Config
from txl_tf.memory_estimate import (
    inference_estimate,
    memory_estimate,
    min_parameters,
    sizes_of,
)
from txl_tf.ops import machine


def check_memory(config: Config, num_replicas: int) -> None:
    """Raises if training cannot fit into the machine's memory.

    Raises:
      ValueError: names the bytes and the settings that determine them.
    """
    model, train = config.model, config.train
    needed = memory_estimate(model, train, min_parameters(model), num_replicas)
    rows = dict(batch_size=train.batch_size, segment_len=train.segment_len, mem_len=model.mem_len)
    machine.check_memory(needed.parts, rows | sizes_of(model))


def check_validation_memory(config: Config) -> None:
    """Raises if validation or samples, in the run's precision, cannot fit into the memory.

    Raises:
      ValueError: names the bytes and the settings that determine them.
    """
    model, train, evaluation = config.model, config.train, config.eval
    compute = tf.as_dtype(keras.DTypePolicy(POLICIES[train.precision]).compute_dtype).size
    mem_len = model.mem_len if evaluation.mem_len is None else evaluation.mem_len
    tokens = evaluation.segment_len or train.segment_len
    valid = inference_estimate(
        model,
        evaluation.batch_size,
        tokens,
        mem_len=mem_len,
        num_encodings=mem_len + tokens,
        compute=compute,
    )
    rows = {"batch_size": evaluation.batch_size, "segment_len": tokens, "mem_len": mem_len}
    machine.check_memory(valid.parts, {f"eval.{k}": v for k, v in rows.items()})
    if train.sample_length:
        length = train.sample_length
        sample = inference_estimate(
            model, 1, 1, mem_len=mem_len, compute=compute, num_generated=length
        )
        machine.check_memory(sample.parts, {"sample_length": length})
