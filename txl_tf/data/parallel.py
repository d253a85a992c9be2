"""Work shared by processes, with results in order and few of them in memory."""

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

_AHEAD = 2  # items a worker that wait for it, or for being fetched

_task: Callable[[Any], Any] | None = None  # of this worker process


def ordered_map(
    task: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Iterator[Result]:
    """`map(task, items)` by `num_workers` processes.

    Processes are spawned, so that it does not matter which threads run here; each gets the task
    once. With one worker all happens in this process.

    Raises:
      OSError: a worker was killed. Exceptions of the task come through as they are.
    """
    if num_workers == 1:
        _keep_freed_memory()
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
        raise OSError("a worker process was killed; is there memory for so many?") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _keep_freed_memory() -> None:
    """Saves a fifth of the time where each item needs many arrays of megabytes.

    glibc gives memory back to the system, which clears it when it is asked for again, if more is
    free than twice the largest block that was freed before. So one of 31 MB, which is never
    touched, is freed first. Above 32 MB it would not count.
    """
    np.empty(31 << 20, np.uint8)


def _start(task: Callable[[Any], Any]) -> None:
    global _task
    _task = task
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers


def _end_with_parent() -> None:
    """Ends this worker when its parent is gone, killed for example, and can end it no more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    if _task is None:
        raise RuntimeError("a worker must get its task first")
    return _task(item)
