"""The most memory that some work takes, found in a process of its own."""

import multiprocessing
import resource
from collections.abc import Callable
from concurrent import futures
from typing import Any

import quiet_start


def peak(work: Callable[..., object], *arguments: Any) -> int:
    """Bytes: the most that a new process ever had in RAM, which called work(*arguments) and ended.

    The process imports what `work` needs, TensorFlow too, which counts. What goes there has to be
    picklable: a function of a module, and plain values.
    """
    context = multiprocessing.get_context("spawn")  # one that is forked has what its parent has
    with futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_peak_after, work, arguments).result()


def _peak_after(work: Callable[..., object], arguments: tuple[Any, ...]) -> int:
    with quiet_start.without_chatter():
        work(*arguments)
    try:
        with open("/proc/self/status") as file:  # getrusage counts what the parent held, too
            told = dict(line.split(":", 1) for line in file)
        return int(told["VmHWM"].split()[0]) * 1024
    except OSError:  # no Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
