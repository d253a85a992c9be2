"""Curves and texts for TensorBoard."""

import contextlib
import os
from collections.abc import Iterator, Mapping

import tensorflow as tf


class Summaries:
    """Writes scalars and texts under model_dir/tensorboard.

    There is one folder a curve, so that train and valid overlay. A resumed run writes further files
    into the same folders.
    """

    def __init__(self, model_dir: str) -> None:
        self._folder = os.path.join(model_dir, "tensorboard")
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def write(self, curve: str, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to each of the `values`' charts."""
        with self._writing(curve):
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)

    def write_text(self, curve: str, step: int, name: str, text: str) -> None:
        """Adds a text, shown as it is: TensorBoard would take it for Markdown."""
        with self._writing(curve):
            lines = text.splitlines() or [""]
            tf.summary.text(name, "\n".join(f"    {line}" for line in lines), step=step)

    @contextlib.contextmanager
    def _writing(self, curve: str) -> Iterator[None]:
        if curve not in self._writers:
            folder = os.path.join(self._folder, curve)
            self._writers[curve] = tf.summary.create_file_writer(folder)
        with self._writers[curve].as_default():
            yield
        self._writers[curve].flush()
