"""A trace of some steps, for TensorBoard's profiler."""

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf
from absl import logging


def parse(text: str) -> tuple[int, int]:
    """Reads "FIRST,LAST".

    Raises:
      ValueError: these are no steps of which the first is not after the last.
    """
    first, _, last = text.partition(",")
    numbers = first.strip().isdecimal() and last.strip().isdecimal()
    if not numbers or not 1 <= int(first) <= int(last):
        raise ValueError(f"profile_steps must be FIRST,LAST, 1 <= FIRST <= LAST, got {text!r}")
    return int(first), int(last)


def check(steps: tuple[int, int] | None, train_steps: int) -> None:
    """Refuses steps that the run does not have.

    Raises:
      ValueError: names both numbers.
    """
    if steps is not None and steps[1] > train_steps:
        raise ValueError(f"profile_steps must end by train_steps {train_steps}, got {steps[1]}")


class Profile:
    """Traces the steps from the first to the last, both included, in one piece.

    A run that ends before the last is traced until then; one that begins after the first, from
    there. The first step of a process compiles: a trace of it shows little else.

    Args:
      model_dir: the trace goes to its `tensorboard` folder.
      steps: the first and the last; None is no trace.
    """

    def __init__(self, model_dir: str, steps: tuple[int, int] | None) -> None:
        self._folder = os.path.join(model_dir, "tensorboard")
        self._first, self._last = steps or (0, 0)
        self._is_on = False

    def is_edge(self, step: int) -> bool:
        """Whether a trace ends with this step, so that its work has to be waited for."""
        return self._is_on and step >= self._last

    @contextlib.contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Around the start of a step: its name in the trace."""
        if not self._first <= step <= self._last:
            yield
            return
        if not self._is_on:
            tf.profiler.experimental.start(self._folder)
            self._is_on = True
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            yield

    def end(self) -> None:
        """Writes the trace if there is one to write."""
        if self._is_on:
            self._is_on = False
            tf.profiler.experimental.stop()
            logging.info("profile of steps %d to %d: %s", self._first, self._last, self._folder)
