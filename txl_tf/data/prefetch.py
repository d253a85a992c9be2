"""Prefetching in a thread, so that a step does not wait for its batch.

`tf.data` prefetches too, but `Dataset.from_generator` lowers malloc's trim threshold for the whole
process ("Memory patch applied: M_TRIM_THRESHOLD=128 kb was set"): tensors are then returned to the
kernel after each operation, which doubles the CPU time of a small step.
"""

import collections
import contextlib
from collections.abc import Generator, Iterator
from concurrent import futures
from typing import Any, TypeVar

Item = TypeVar("Item")

_AHEAD = 8  # items; enough to cover the reading of a stack of steps
_END: Any = object()


@contextlib.contextmanager
def prefetched(items: Generator[Item, None, None]) -> Iterator[Iterator[Item]]:
    """Iterates over a generator in a background thread, a few items ahead.

        with prefetch.prefetched(batches.arrays()) as read:
            for batch in read:
                ...

    An exception of the generator is raised at its item's position. Leaving the block ends the
    thread and closes the generator; it waits for at most one item.
    """
    with contextlib.closing(items), futures.ThreadPoolExecutor(1, "prefetch") as thread:
        try:
            yield _in_order(items, thread)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)


def _in_order(items: Iterator[Item], thread: futures.Executor) -> Iterator[Item]:
    waiting = collections.deque(thread.submit(next, items, _END) for _ in range(_AHEAD))
    while (item := waiting.popleft().result()) is not _END:
        waiting.append(thread.submit(next, items, _END))
        yield item
