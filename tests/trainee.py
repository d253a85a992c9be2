"""Tiny model with its training step, and batches for it."""

import numpy as np
import tensorflow as tf

import helpers
import rounding
from txl_tf.configs.run import Config, DataConfig, TrainConfig
from txl_tf.data.batches import Batch
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, step
from txl_tf.training.distribution import make_distribution

ROWS, TOKENS = 4, 5

# Options of Adam under which updates are proportional to gradients and inherit their tolerance. By
# default Adam divides by a gradient's size, so where it is rounding error an update can be anything
# up to the learning rate.
SMOOTH = dict(adam_epsilon=1.0, learning_rate=10.0)


class Trainee:
    """A tiny model and its step, eager unless `compiled`; `steps` runs it and keeps the memory."""

    def __init__(
        self,
        model_class=TransformerXL,
        data=None,
        dtype=None,
        changes=None,
        compiled=False,
        scale=None,
        **train,
    ):
        defaults = dict(batch_size=ROWS, segment_len=TOKENS, learning_rate=0.01, train_steps=10)
        self.config = Config(
            model=helpers.tiny_config(**(dict(num_layers=1) | (changes or {}))),
            data=data or DataConfig(),
            train=TrainConfig(**(defaults | dict(jit=False) | train)),
        )
        self.model = helpers.loud(model_class(self.config.model, dtype=dtype))
        self.optimizer = optimizer.make_optimizer(self.config.train)
        self.optimizer.build(self.model.trainable_variables)
        strategy = make_distribution("one_device")
        function = step.make_train_step(self.model, self.optimizer, strategy, self.config, scale)
        self.step = function if compiled else function.python_function
        self.memory = self.model.initial_mems(ROWS)

    def steps(self, *batches):
        """Trains on each batch; returns the metrics as rows of an array."""
        rows = []
        for batch in batches:
            metrics, self.memory = self.step(batch, self.memory)
            rows.append([float(value) for value in metrics])
        return np.array(rows)

    def weights(self):
        return [v.numpy() for v in self.model.trainable_variables]


def make_batch(seed=0, rows=ROWS, targets=None, starts=None, restart=False):
    ids = helpers.draw_ids(rows, TOKENS, seed=seed)
    if targets is None:
        targets = helpers.draw_ids(rows, TOKENS, seed=seed + 100)
        targets[-1, 1:] = -1  # the last row has one real token
    starts = np.zeros([rows, TOKENS], bool) if starts is None else starts
    return Batch(*map(tf.constant, (ids, targets, starts, restart)))


def atol_of(trainee):
    """Returns the tolerance of losses, memory and smoothly trained weights; of norms, a ratio."""
    return rounding.of_gradients(trainee.config.model, ROWS * TOKENS)


def farthest(found, expected):
    """Returns the largest difference between two lists of arrays."""
    return max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True))
