"""The state of a training run on disk: saved so that going on is the same as never having stopped.

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
    """Saves and restores one run.

    Args:
      model_dir: the run's folder.
      model, optimizer: both built; restored in place.
      batch_size: rows of all workers, whose memory is saved in order.
      keep: how many of the newest checkpoints stay, besides the best.
      loss_scale: of a run in float16.

    Attributes:
      best_nats: the best validation so far, in nats per token; infinite before the first.
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
        with tf.device("CPU:0"):  # float32 holds bfloat16 exactly: the precision may change
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

    @functools.cached_property  # made by who saves: it may have to mend the folder
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
        """Saves everything under the optimizer's step; returns the prefix.

        Raises:
          ValueError: a weight or a slot is not finite; nothing is saved then.
        """
        self._check_finite(f"step {int(self._optimizer.iterations.numpy())}")
        for copy, value in zip(self._copies, tf.nest.flatten(memory), strict=True):
            copy.assign(_widened(value))
        prefix = self._newest.save(checkpoint_number=int(self._optimizer.iterations.numpy()))
        logging.info("saved %s", prefix)
        return prefix

    def save_best(self, nats: float) -> None:
        """Saves the weights as the best ones, with their validation in nats per token."""
        self._best.assign(nats)
        step = int(self._optimizer.iterations.numpy())
        self._best_kept.save(checkpoint_number=step)
        logging.info("best so far: step=%d loss=%.4f", step, nats)

    def forget_best(self, until: int) -> None:
        """Starts without a best if it is of step `until` or before; its files stay as they are."""
        if self._best_step <= until:
            self._best.assign(math.inf)

    def restore(self) -> Memory | None:
        """Restores the newest whole checkpoint and returns its memory; None where there is none.

        Raises:
          ValueError: what is there is damaged, or is no state of training.
        """
        prefix = model_dirs.restore_first(model_dirs.checkpoints(self._folder), self._restore)
        if prefix is None:
            return None
        self._restore_best_nats()
        values = [
            tf.cast(copy.read_value(), like.dtype)
            for copy, like in zip(self._copies, tf.nest.flatten(self._memory), strict=True)
        ]
        logging.info("going on from %s", prefix)
        return tf.nest.pack_sequence_as(self._memory, values)

    def _restore(self, prefix: str) -> None:
        names = [name for name, _ in tf.train.list_variables(prefix)]
        if not any(name.startswith("optimizer/") for name in names):
            raise ValueError(
                f"a run must go on from a state of training, got {prefix} with weights alone; "
                "train --init_from goes on from it in a new model_dir"
            )
        with model_dirs.fitting(prefix):
            self._checkpoint.restore(prefix).assert_consumed()
        self._check_finite(f"checkpoint {prefix}")

    def _check_finite(self, where: str) -> None:
        """Refuses NaN and infinity: checkpoints with them would replace all good ones."""
        model_dirs.check_finite("weights", self._weights, where)
        model_dirs.check_finite("slots", self._slots, where)

    def _restore_best_nats(self) -> None:
        found = model_dirs.checkpoints(self._best_folder)
        try:
            model_dirs.restore_first(found, self._restore_nats)
        except ValueError as error:  # all are damaged: the next validation is the best
            logging.warning("%s", error)

    def _restore_nats(self, prefix: str) -> None:
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():  # damaged weights are no best
            reader.get_tensor(name)
        tf.train.Checkpoint(nats=self._best).restore(prefix).expect_partial()
        self._best_step = model_dirs.step_of(prefix)


def _slots_of(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> dict[str, tf.Variable]:
    """The step and the slots, by names in which the model's own does not occur."""
    prefix = f"{model.name}_"
    names = (v.path.partition("/")[2].removeprefix(prefix) for v in optimizer.variables)
    found = dict(zip(names, optimizer.variables, strict=True))
    return model_dirs.named(found, optimizer.variables)


def _widened(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.float32) if value.dtype.is_floating else tf.identity(value)


@contextlib.contextmanager
def sole_trainer(model_dir: str) -> Iterator[None]:
    """Holds a local folder for this process; made if need be, and gone again if it stays empty.

    The kernel lets go of it however the process ends. Folders of remote file systems ("gs://...")
    cannot be held; they are made by what is written into them.

    Raises:
      ValueError: another process holds the folder, or makes a model_dir there.
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
                pass  # nobody else makes one there
        stack.enter_context(locks.held(path, refusal, removed=True))
        yield
