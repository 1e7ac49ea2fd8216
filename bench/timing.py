"""Timing in blocks: contenders take turns, each for a while.

Libraries keep their threads spinning for some time after a call, and those of one take processor time from the next:
single calls in turn show two to four times a library's own time. So a contender first runs uncounted until the threads
of the one before have gone to sleep, then counted; and again, in turn, for several rounds. The result is the median
over rounds of the median over the calls of a block.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from statistics import median

from bench.load import Quiet

Call = Callable[[], object]
LONG = 10  # a call that takes this many settling times needs no settling: what disturbs it is over soon
SLOW_SECONDS, SLOW_ROUNDS = 1.0, 3  # calls this long vary little, and cost minutes


def time_in_turn(
    calls: Mapping[str, Call], rounds: int, settle: float, counted: float, quiet: Quiet
) -> dict[str, list[float]]:
    """Seconds of a call of each contender, one number a round."""
    times: dict[str, list[float]] = {label: [] for label in calls}
    with no_collections():
        for turn in range(rounds):
            for label, call in calls.items():
                last = times[label][-1] if times[label] else 0.0
                if last < SLOW_SECONDS or turn < SLOW_ROUNDS:
                    before = 0.0 if last > LONG * settle else settle
                    times[label].append(quiet.block(partial(time_block, call, before, counted)))
            gc.collect()
    return times


@contextmanager
def no_collections() -> Iterator[None]:
    """No garbage collection by itself: one of all libraries' objects would be charged to whoever triggers it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def time_block(call: Call, settle: float, counted: float) -> float:
    """Median seconds of the calls of one block, at least one call."""
    run_for(call, settle)
    return median(run_for(call, counted) or [time_once(call)])


def run_for(call: Call, seconds: float) -> list[float]:
    """Times of calls, until `seconds` have passed."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        times.append(time_once(call))
    return times


def time_once(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
