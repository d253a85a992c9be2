"""Side-by-side timing: contenders take turns, so that what slows the machine slows all of them."""

import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from txl_tf.progress import Progress

Name = TypeVar("Name", bound=Hashable)
Call = TypeVar("Call", bound=Callable[[], object])

_LEAST = 0.2  # seconds of a turn, so that the clock's grain and a switch of contenders are small


class Seconds(float):
    """What a contender returns that has timed itself, as one in another process does."""


class Timing(NamedTuple):
    """Seconds of one call: the median over the turns, the fastest and the slowest."""

    median: float
    fastest: float
    slowest: float


def race(contenders: Mapping[Name, Callable[[], object]], repeats: int) -> dict[Name, Timing]:
    """Times each contender in `repeats` turns, each after the other in every round.

    A turn calls as often as fills `_LEAST` seconds. The first call of each, which may compile, a
    warm-up turn, and the first call of each turn do not count: that one finds caches full of what
    others left. Where a call returns `Seconds` these are its time.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    calls = {}
    with Progress("warm up", "contenders", len(contenders)) as progress:
        for name, call in _told(contenders, progress, 0):
            calls[name] = _calls_of_a_turn(call)
    with Progress("race", "turns", (repeats + 1) * len(contenders)) as progress:
        for turn in range(repeats + 1):
            for name, call in _told(contenders, progress, turn):
                call()
                found = _time(call, calls[name])
                if turn:
                    seconds[name].append(found)
    return {n: Timing(statistics.median(s), min(s), max(s)) for n, s in seconds.items()}


def take_turns(
    contenders: Mapping[Name, Callable[[], Seconds]], repeats: int
) -> dict[Name, Timing]:
    """As `race` for long work that warms up and times itself: one call a turn, and all count."""
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    with Progress("race", "turns", repeats * len(contenders)) as progress:
        for turn in range(repeats):
            for name, call in _told(contenders, progress, turn):
                seconds[name].append(call())
    return {n: Timing(statistics.median(s), min(s), max(s)) for n, s in seconds.items()}


def _told(
    contenders: Mapping[Name, Call], progress: Progress, round_: int
) -> Iterator[tuple[Name, Call]]:
    """The contenders of a round, each told of when its turn begins."""
    for number, (name, call) in enumerate(contenders.items(), round_ * len(contenders)):
        progress.reach(number, contender=str(name).replace(" ", "_"))
        yield name, call


def _calls_of_a_turn(call: Callable[[], object]) -> int:
    call()
    return max(1, round(_LEAST / max(_time(call, 1), 1e-6)))


def _time(call: Callable[[], object], calls: int) -> float:
    """Seconds of one of so many calls: those that they tell, else those that pass here."""
    start, told = time.perf_counter(), 0.0
    for _ in range(calls):
        result = call()
        if isinstance(result, Seconds):
            told += result
    return (told or time.perf_counter() - start) / calls
