"""Interleaved timing: contenders take turns, so that a slow phase of the machine affects all."""

import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from txl_tf.progress import Progress

Name = TypeVar("Name", bound=Hashable)
Call = TypeVar("Call", bound=Callable[[], object])

_MIN_TURN = 0.2  # seconds; makes the clock's resolution and cold caches negligible


class Seconds(float):
    """Result of a contender that times itself, as one in another process does."""


class Timing(NamedTuple):
    """Seconds of one call: the median over the turns, the fastest and the slowest."""

    median: float
    fastest: float
    slowest: float


def race(contenders: Mapping[Name, Callable[[], object]], repeats: int) -> dict[Name, Timing]:
    """Times the contenders in `repeats` rounds, in each of which every contender has a turn.

    A turn lasts for at least about `_MIN_TURN` seconds. Not counted are the first call of each
    contender, which may compile, a warm-up turn, and the first call of each turn, whose caches are
    cold. The time of a call that returns `Seconds` is that value.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    calls = {}
    with Progress("warm up", "contenders", len(contenders)) as progress:
        for name, call in _round(contenders, progress, 0):
            calls[name] = _calls_per_turn(call)
    with Progress("race", "turns", (repeats + 1) * len(contenders)) as progress:
        for turn in range(repeats + 1):
            for name, call in _round(contenders, progress, turn):
                call()
                found = _time(call, calls[name])
                if turn:
                    seconds[name].append(found)
    return {n: Timing(statistics.median(s), min(s), max(s)) for n, s in seconds.items()}


def take_turns(
    contenders: Mapping[Name, Callable[[], Seconds]], repeats: int
) -> dict[Name, Timing]:
    """Times, as `race`, long work that warms up and times itself: each turn is one counted call."""
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    with Progress("race", "turns", repeats * len(contenders)) as progress:
        for turn in range(repeats):
            for name, call in _round(contenders, progress, turn):
                seconds[name].append(call())
    return {n: Timing(statistics.median(s), min(s), max(s)) for n, s in seconds.items()}


def _round(
    contenders: Mapping[Name, Call], progress: Progress, index: int
) -> Iterator[tuple[Name, Call]]:
    """Yields the contenders of a round, and reports each as it begins."""
    for number, (name, call) in enumerate(contenders.items(), index * len(contenders)):
        progress.reach(number, contender=str(name).replace(" ", "_"))
        yield name, call


def _calls_per_turn(call: Callable[[], object]) -> int:
    call()
    return max(1, round(_MIN_TURN / max(_time(call, 1), 1e-6)))


def _time(call: Callable[[], object], calls: int) -> float:
    """Returns the mean seconds of a call: as reported by the calls, or else as measured here."""
    start, reported = time.perf_counter(), 0.0
    for _ in range(calls):
        result = call()
        if isinstance(result, Seconds):
            reported += result
    return (reported or time.perf_counter() - start) / calls
