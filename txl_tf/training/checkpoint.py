"""Checkpoints of a training run; a resumed run equals an uninterrupted one bit by bit.

A checkpoint holds weights, optimizer (with the step) and memory; the reader's position follows
from the step, dropout from seed and step. TensorFlow writes the files under temporary names and
then names them in the folder's `checkpoint` file, so a half-written one never counts.
"""

import contextlib
import functools
import math
import os
from collections.abc import Iterator

import keras
import tensorflow as tf
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.data import files, locks, outputs
from txl_tf.models.memory import Memory
from txl_tf.training.optimizer import LossScale


class Checkpoints:
    """Saves and restores the state of one run.

    Args:
      model_dir: the run's folder.
      model, optimizer: both built; restored in place.
      batch_size: rows of all workers; their memory is saved in order.
      keep: number of newest checkpoints to keep, besides the best.
      loss_scale: loss scale of a float16 run.

    Attributes:
      best_nats: the best validation loss so far, in nats per token; infinite before the first.
    """

    def __init__(
        self,
        model_dir: str,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        batch_size: int,
        keep: int,
        loss_scale: LossScale | None = None,
    ) -> None:
        self._optimizer = optimizer
        with tf.device("CPU:0"):  # float32 holds bfloat16 exactly: a run may change its precision
            self._memory = memory = model.initial_mems(batch_size)
            copies = [tf.Variable(_widened(x), trainable=False) for x in tf.nest.flatten(memory)]
            self._best = tf.Variable(math.inf, dtype=tf.float64, trainable=False)
        self._best_step = 0
        self._copies = copies
        self._folder = os.path.join(model_dir, model_dirs.CHECKPOINTS)
        self._best_folder = os.path.join(model_dir, model_dirs.BEST)
        self._weights = weights = model_dirs.weights_of(model)
        self._slots = slots = _slots_of(optimizer, model)
        scaling = {} if loss_scale is None else {"loss_scale": loss_scale}
        self._checkpoint = tf.train.Checkpoint(
            weights=weights, optimizer=slots, memory=copies, **scaling
        )
        self._keep = keep

    @functools.cached_property  # on first save only: it may repair the folder
    def _newest(self) -> tf.train.CheckpointManager:
        return model_dirs.manager(self._checkpoint, self._folder, self._keep)

    @functools.cached_property
    def _best_kept(self) -> tf.train.CheckpointManager:
        best = tf.train.Checkpoint(weights=self._weights, nats=self._best)
        return model_dirs.manager(best, self._best_folder, keep=1)

    @property
    def best_nats(self) -> float:
        return float(self._best.numpy())

    def save(self, memory: Memory) -> str:
        """Saves the whole state under the optimizer's step; returns the checkpoint prefix.

        Raises:
          ValueError: a weight or a slot is NaN or infinite; nothing is saved.
        """
        self._check_finite(f"step {int(self._optimizer.iterations.numpy())}")
        for copy, value in zip(self._copies, tf.nest.flatten(memory), strict=True):
            copy.assign(_widened(value))
        prefix = self._newest.save(checkpoint_number=int(self._optimizer.iterations.numpy()))
        logging.info("saved %s", prefix)
        return prefix

    def save_best(self, nats: float) -> None:
        """Saves the weights as the best so far, with their validation loss in nats per token."""
        self._best.assign(nats)
        step = int(self._optimizer.iterations.numpy())
        self._best_kept.save(checkpoint_number=step)
        logging.info("best so far: step=%d loss=%.4f", step, nats)

    def forget_best(self, until: int) -> None:
        """Resets the best loss if it is from step `until` or before; its files stay."""
        if self._best_step <= until:
            self._best.assign(math.inf)

    def restore(self) -> Memory | None:
        """Restores the newest intact checkpoint and returns its memory, or None if none was saved.

        Raises:
          ValueError: all checkpoints are damaged, or one has weights only.
        """
        prefix = model_dirs.restore_first(model_dirs.checkpoints(self._folder), self._restore)
        if prefix is None:
            return None
        self._restore_best_nats()
        values = [
            tf.cast(copy.read_value(), like.dtype)
            for copy, like in zip(self._copies, tf.nest.flatten(self._memory), strict=True)
        ]
        logging.info("resuming from %s", prefix)
        return tf.nest.pack_sequence_as(self._memory, values)

    def _restore(self, prefix: str) -> None:
        names = [name for name, _ in tf.train.list_variables(prefix)]
        if not any(name.startswith("optimizer/") for name in names):
            raise ValueError(
                f"cannot resume from {prefix}: the checkpoint has weights only; "
                "train --init_from starts a new model_dir from it"
            )
        with model_dirs.fitting(prefix):
            self._checkpoint.restore(prefix).assert_consumed()
        self._check_finite(f"checkpoint {prefix}")

    def _check_finite(self, where: str) -> None:
        """Raises if a weight is NaN or infinite: bad checkpoints would rotate out the good ones."""
        model_dirs.check_finite("weights", self._weights, where)
        model_dirs.check_finite("slots", self._slots, where)

    def _restore_best_nats(self) -> None:
        prefixes = model_dirs.checkpoints(self._best_folder)
        try:
            model_dirs.restore_first(prefixes, self._restore_nats)
        except ValueError as error:  # all are damaged: the next validation is the best
            logging.warning("%s", error)

    def _restore_nats(self, prefix: str) -> None:
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():  # raises if the weights are damaged
            reader.get_tensor(name)
        tf.train.Checkpoint(nats=self._best).restore(prefix).expect_partial()
        self._best_step = model_dirs.step_of(prefix)


def _slots_of(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> dict[str, tf.Variable]:
    """Returns the optimizer's step and slots by names without the model's own name."""
    prefix = f"{model.name}_"
    names = (v.path.partition("/")[2].removeprefix(prefix) for v in optimizer.variables)
    variables = dict(zip(names, optimizer.variables, strict=True))
    return model_dirs.named(variables, optimizer.variables)


def _widened(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.float32) if value.dtype.is_floating else tf.identity(value)


@contextlib.contextmanager
def sole_trainer(model_dir: str) -> Iterator[None]:
    """Holds an exclusive lock on a local model_dir, which is created if missing.

    A folder that stays empty is removed again. The kernel releases the lock however the process
    ends. Folders of remote file systems ("gs://...") cannot be locked; writing creates them.

    Raises:
      ValueError: another process holds the lock, or is creating a model_dir there.
    """
    if files.is_remote(model_dir):
        yield
        return
    path = os.path.join(model_dir, "train.lock")
    rule = "model_dir must have one trainer at a time"
    refusal = f"{rule}, got {model_dir} while another process trains there"
    with contextlib.ExitStack() as stack:
        if not files.is_folder(model_dir):
            stack.enter_context(outputs.parents(path))
            with outputs.held("model_dir", model_dir):
                pass  # raises while another process creates it
        stack.enter_context(locks.held(path, refusal, remove=True))
        yield
