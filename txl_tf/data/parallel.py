"""Parallel map over processes, with ordered results and few of them in memory."""

import collections
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import process
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # queued or finished items per worker

_task: Callable[[Any], Any] | None = None  # of this worker process


def ordered_map(
    task: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Iterator[Result]:
    """Yields `map(task, items)`, computed by `num_workers` processes.

    Processes are spawned, so threads of this process do not matter; each receives the task once.
    With one worker everything runs in this process.

    Raises:
      OSError: a worker was killed. Exceptions of the task are passed on.
    """
    if num_workers == 1:
        _raise_mmap_threshold()
        yield from map(task, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(num_workers, context, _start, (task,))
    waiting: collections.deque[futures.Future[Result]] = collections.deque()
    try:
        for item in items:
            waiting.append(pool.submit(_work, item))
            if len(waiting) > _AHEAD * num_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except process.BrokenProcessPool as error:
        raise OSError("a worker process was killed; use fewer if memory is short") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _raise_mmap_threshold() -> None:
    """Raises glibc's mmap threshold, so that freed arrays are reused: about 20 % faster.

    glibc returns memory to the system, which has to clear it again, if more is free than twice the
    largest block freed so far. So a 31 MB block, never touched, is freed first; blocks above 32 MB
    do not count.
    """
    np.empty(31 << 20, np.uint8)


def _start(task: Callable[[Any], Any]) -> None:
    global _task
    _task = task
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _raise_mmap_threshold()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers


def _end_with_parent() -> None:
    """Ends this worker when its parent has died and can no longer end it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    if _task is None:
        raise RuntimeError("worker has no task")
    return _task(item)
