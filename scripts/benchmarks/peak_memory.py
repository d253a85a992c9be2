"""Peak memory of a function, measured in a process of its own."""

import multiprocessing
from collections.abc import Callable
from concurrent import futures
from typing import Any

from benchmarks.workers import json_worker
from txl_tf.cli import tf_startup_log
from txl_tf.progress import Progress


def peak(work: Callable[..., object], *arguments: Any) -> int:
    """Returns the peak resident bytes of a new process that calls work(*arguments).

    This includes the imports of `work`, such as TensorFlow. Function and arguments must be
    picklable.
    """
    context = multiprocessing.get_context("spawn")  # a fork would share the parent's memory
    quiet = tf_startup_log.install  # before unpickling `work` imports TensorFlow
    with (
        Progress("peak memory"),
        futures.ProcessPoolExecutor(1, context, initializer=quiet) as pool,
    ):
        return pool.submit(_peak_after, work, arguments).result()


def _peak_after(work: Callable[..., object], arguments: tuple[Any, ...]) -> int:
    with tf_startup_log.without_startup_messages():
        work(*arguments)
    return json_worker.peak_bytes()
