"""Reads ahead in a thread, so that a step does not wait for its batch.

`tf.data` does so too, but its `Dataset.from_generator` lowers malloc's trim threshold for the whole
process ("Memory patch applied: M_TRIM_THRESHOLD=128 kb was set"): from then on tensors are given
back to the kernel after each operation, which doubles the CPU time of a small step.
"""

import collections
import contextlib
from collections.abc import Generator, Iterator
from concurrent import futures
from typing import Any, TypeVar

Item = TypeVar("Item")

_AHEAD = 8  # items; a stack of steps is read while these are used up
_END: Any = object()


@contextlib.contextmanager
def prefetched(items: Generator[Item, None, None]) -> Iterator[Iterator[Item]]:
    """Iterates over a generator in a background thread, a few items ahead of use.

        with prefetch.prefetched(batches.arrays()) as read:
            for batch in read:
                ...

    An exception of the generator is raised where its item would have come. Leaving the block, in
    whatever way, ends the thread and closes the generator; it waits for one item at most.
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
