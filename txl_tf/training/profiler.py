"""Profiler traces of some steps, for TensorBoard."""

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf
from absl import logging


def parse(text: str) -> tuple[int, int]:
    """Parses "FIRST,LAST".

    Raises:
      ValueError: not two step numbers in ascending order.
    """
    first, _, last = text.partition(",")
    numbers = first.strip().isdecimal() and last.strip().isdecimal()
    if not numbers or not 1 <= int(first) <= int(last):
        raise ValueError(f"profile_steps must be FIRST,LAST, 1 <= FIRST <= LAST, got {text!r}")
    return int(first), int(last)


def check(steps: tuple[int, int] | None, train_steps: int) -> None:
    """Raises if the steps are beyond the end of the run.

    Raises:
      ValueError: names both numbers.
    """
    if steps is not None and steps[1] > train_steps:
        raise ValueError(f"profile_steps must end by train_steps {train_steps}, got {steps[1]}")


class Profile:
    """Traces the steps from the first to the last, both included.

    The trace ends with the run, and starts with it if resumed after the first. The first step of a
    process compiles, which dominates its trace.

    Args:
      model_dir: the trace is written to its `tensorboard` folder.
      steps: first and last step; None disables tracing.
    """

    def __init__(self, model_dir: str, steps: tuple[int, int] | None) -> None:
        self._folder = os.path.join(model_dir, "tensorboard")
        self._first, self._last = steps or (0, 0)
        self._is_on = False

    def is_edge(self, step: int) -> bool:
        """Whether a trace ends with this step, so that the caller must wait for its result."""
        return self._is_on and step >= self._last

    @contextlib.contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Names a step in the trace; enter it around the call."""
        if not self._first <= step <= self._last:
            yield
            return
        if not self._is_on:
            tf.profiler.experimental.start(self._folder)
            self._is_on = True
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            yield

    def end(self) -> None:
        """Writes the trace, if one was started."""
        if self._is_on:
            self._is_on = False
            tf.profiler.experimental.stop()
            logging.info("profile of steps %d to %d: %s", self._first, self._last, self._folder)
