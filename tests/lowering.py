"""The compiled steps of a config as XLA HLO, lowered without values of weights."""

import contextlib
import dataclasses
import functools
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from txl_tf.configs import presets
from txl_tf.data.batches import Batch
from txl_tf.inference import decode_state as states
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, step
from txl_tf.training.distribution import make_distribution

# Devices that a batch is spread over: those of the original scripts for large models, else as
# many as divide it and have room (docs/tpu.md).
CORES = {
    "tiny": 8,
    "small": 8,
    "enwik8_base": 8,
    "text8_base": 8,
    "wt103_base": 4,
    "lm1b_base": 32,
    "enwik8_large": 32,
    "text8_large": 32,
    "wt103_large": 64,
    "lm1b_large": 512,
}

_LINE = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z\-]*)\(")
_ARRAY = re.compile(r"([a-z]+\d*)\[([^\]]*)\]")


class Instruction(NamedTuple):
    """One line of HLO: `%name = shape opcode(operands)`."""

    name: str
    shape: str  # a tuple's as it stands, "(f32[2,3]{1,0}, s32[])"
    opcode: str
    is_entry: bool  # of the main computation

    def arrays(self):
        """(element type, sizes as text) of each array of the result."""
        return _ARRAY.findall(self.shape)

    def size(self):
        """Number of elements of the result."""
        return sum(
            int(np.prod([int(n) for n in re.findall(r"\d+", sizes)], dtype=np.int64))
            for _, sizes in self.arrays()
        )


def instructions(hlo):
    """Returns the instructions of HLO text."""
    found, is_entry = [], False
    for line in hlo.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            is_entry = line.startswith("ENTRY")
        if match := _LINE.match(line):
            found.append(Instruction(*match.groups(), is_entry))
    return found


def lower(function, *arguments):
    """Returns the HLO of a function of nested tf.TensorSpecs, compiled as one program."""

    @tf.function(jit_compile=True, autograph=False)
    def flat(*leaves):
        return function(*tf.nest.pack_sequence_as(arguments, leaves))

    return flat.experimental_get_compiler_ir(*tf.nest.flatten(arguments))(stage="hlo")


@contextlib.contextmanager
def without_values():
    """Variables made inside are zeros, and those of one shape share one buffer.

    A variable keeps the buffer that it is given until it is written, and lowering writes nothing;
    so a model and its optimizer take the room of their largest tables, not of all their weights.
    """

    @functools.cache
    def zeros(shape, dtype):
        return tf.zeros(shape, dtype)

    def create(next_creator, **arguments):
        value = arguments["initial_value"]
        if callable(value):
            with tf.Graph().as_default():  # tells the shape, and draws nothing
                value = value()
        value = tf.convert_to_tensor(value)
        arguments["initial_value"] = zeros(tuple(value.shape), value.dtype)
        return next_creator(**arguments)

    with tf.variable_creator_scope(create):
        yield


class Lowering:
    """The steps of one config on one replica.

    Args:
      config: the whole run's.
      rows: rows of the replica in training.
      dtype: Keras policy of the model.
    """

    def __init__(self, config, rows, dtype="float32"):
        self.config = config
        self.rows = rows
        with without_values():
            self.model = TransformerXL(config.model, dtype=dtype)
            self.optimizer = optimizer.make_optimizer(config.train)
            self.optimizer.build(self.model.trainable_variables)

    def num_values(self):
        """Numbers that the training step is to find in weights and Adam's two slots."""
        return 3 * self.model.count_params()

    def train_step(self):
        """Returns the training step as HLO, or a loop of steps if so configured."""
        trained = self.model, self.optimizer, make_distribution("one_device"), self.config
        segment = self._segment(self.rows, self.config.train.segment_len)
        batch = Batch(*segment, tf.TensorSpec([], tf.bool))
        memory = _specs(self.model.initial_mems, self.rows)
        at_once = self.config.train.steps_per_loop
        if at_once == 1:
            return lower(step.make_train_step(*trained), batch, memory)
        return lower(step.make_train_loop(*trained), (batch,) * at_once, memory)

    def eval_step(self):
        """Returns the evaluation step as HLO: the loss of a segment with cached keys and values."""
        config = self.config.eval
        given = {n: getattr(config, n) for n in ("mem_len", "clamp_len", "attention_span")}
        segment_len = config.segment_len or self.config.train.segment_len
        with without_values():
            model = self.model.with_lengths(**{k: v for k, v in given.items() if v is not None})
            state = states.make("kv", model, segment_len)
        resets = self.config.data.reset_memory_at_documents

        def nll(ids, targets, starts, read):
            return state.nll(ids, targets, read, document_start=starts if resets else None)

        segment = self._segment(config.batch_size, segment_len)
        return lower(nll, *segment, _specs(state.initial, config.batch_size))

    @staticmethod
    def _segment(rows, tokens):
        """Returns the specs of ids, targets and document starts."""
        kinds = (tf.int32, tf.int32, tf.bool)
        return tuple(tf.TensorSpec([rows, tokens], kind) for kind in kinds)


def steps(config, rows, dtype="float32"):
    """(HLO of the training step, HLO of the evaluation step, numbers that the former keeps)."""
    lowering = Lowering(config, rows, dtype)
    return lowering.train_step(), lowering.eval_step(), lowering.num_values()


def of_preset(name, num_layers=None):
    """`steps` of a preset, with the rows of one of its devices; `num_layers` changes its depth."""
    config = presets.preset(name)
    if num_layers is not None:
        model = dataclasses.replace(config.model, num_layers=num_layers)
        config = dataclasses.replace(config, model=model)
    return steps(config, config.train.batch_size // CORES[name])


def _specs(make, rows):
    """Returns the specs of the result of make(rows)."""
    with tf.Graph().as_default():
        return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), make(rows))
