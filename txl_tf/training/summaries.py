"""Curves for TensorBoard."""

import os
from collections.abc import Mapping

import tensorflow as tf


class Summaries:
    """Writes scalars under model_dir/tensorboard, one folder a curve: train and valid overlay.

    A resumed run writes further files into the same folders.
    """

    def __init__(self, model_dir: str) -> None:
        self._folder = os.path.join(model_dir, "tensorboard")
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def write(self, curve: str, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to each of the `values`' charts."""
        if curve not in self._writers:
            folder = os.path.join(self._folder, curve)
            self._writers[curve] = tf.summary.create_file_writer(folder)
        with self._writers[curve].as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)
        self._writers[curve].flush()
