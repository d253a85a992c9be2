"""Peak memory of some work, measured in a separate process."""

import multiprocessing
from collections.abc import Callable
from concurrent import futures
from typing import Any

from benchmarks.workers import json_worker
from txl_tf.cli import tf_startup_log
from txl_tf.progress import Progress


def peak(work: Callable[..., object], *arguments: Any) -> int:
    """Bytes: the most that a new process ever had in RAM, which called work(*arguments) and ended.

    The process imports what `work` needs, TensorFlow too, which counts. What goes there has to be
    picklable: a function of a module, and plain values.
    """
    context = multiprocessing.get_context("spawn")  # one that is forked has what its parent has
    with Progress("peak memory"), futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_peak_after, work, arguments).result()


def _peak_after(work: Callable[..., object], arguments: tuple[Any, ...]) -> int:
    with tf_startup_log.without_startup_messages():
        work(*arguments)
    return json_worker.peak()
