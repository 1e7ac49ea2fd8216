"""Timing in blocks: contenders take turns, each for a while.

On processors, libraries keep their threads spinning for some time after a call, and those of one take processor time
from the next: single calls in turn show two to four times a library's own time. So a contender first runs uncounted
until the threads of the one before have gone to sleep, then counted; and again, in turn, for several rounds. The result
is the median over rounds of the median over the calls of a block.

On a device, calls of a block are enqueued one after another, between two events, so that what Python does is hidden
where a library lets the device run behind, as in training; sets of inputs take turns.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Protocol

from bench.contender import Contender, Settings
from bench.load import Quiet
from bench.place import Place

Call = Callable[[], object]
Clock = Callable[[], float]
Fail = Callable[[str, Exception], None]
LONG = 10  # a call that takes this many settling times needs no settling: what disturbs it is over soon
SLOW_ROUNDS = 3  # of calls so long that they vary little, and cost minutes
MOST_CALLS = 50  # of a block on a device


class Block(Protocol):
    """A contender's turn: seconds of a call, given those of the turn before. `slow`: of a call that is long."""

    slow: float

    def __call__(self, last: float) -> float: ...


@dataclass
class HostBlock:
    """Calls of one contender, each timed by the processor's clock."""

    contender: Contender
    settings: Settings
    quiet: Quiet
    slow: float = 1.0

    def __call__(self, last: float) -> float:
        settle = 0.0 if last > LONG * self.settings.settle else self.settings.settle
        call = partial(self.contender.call, 0)
        if self.settings.processor_time:  # of which others take nothing
            return time_block(call, settle, self.settings.counted, time.process_time)
        return self.quiet.block(partial(time_block, call, settle, self.settings.counted))


@dataclass
class DeviceBlock:
    """Calls of one contender that are timed together.

    Args:
        calls: of a block; the first turn finds out how many last as long as a block should.
    """

    contender: Contender
    settings: Settings
    place: Place
    slow: float = 0.25
    calls: int = 0
    done: int = 0

    def __call__(self, last: float) -> float:
        if not self.calls:
            self.calls = 1
            self.calls = min(MOST_CALLS, max(1, round(self.settings.counted / max(self.time(), 1e-9))))
        return self.time()

    def time(self) -> float:
        """Seconds of a call."""
        if not self.contender.waits:
            return self.place.seconds(self.run) / self.calls
        start = time.perf_counter()
        self.run()
        return (time.perf_counter() - start) / self.calls

    def run(self) -> None:
        """All calls of a block; results die at the next call."""
        for _ in range(self.calls):
            self.contender.call(self.done)
            self.done += 1


def time_in_turn(
    blocks: Mapping[str, Block], rounds: int, tell: Callable[[str], None], fail: Fail
) -> dict[str, list[float]]:
    """Seconds of a call of each contender, one number a round.

    Args:
        tell: is told whose turn it is.
        fail: is told what failed; numbers that were measured before do not count then, and the others go on.
    """
    times: dict[str, list[float]] = {label: [] for label in blocks}
    with no_collections():
        for turn in range(rounds):
            for label, values in list(times.items()):
                last = values[-1] if values else 0.0
                if turn >= SLOW_ROUNDS and last >= blocks[label].slow:
                    continue
                tell(label)
                try:
                    values.append(blocks[label](last))
                except Exception as error:  # of any library
                    del times[label]
                    fail(label, error)
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


def time_block(call: Call, settle: float, counted: float, clock: Clock = time.perf_counter) -> float:
    """Median seconds of the calls of one block, at least one call."""
    run_for(call, settle)
    return median(run_for(call, counted, clock) or [time_once(call, clock)])


def run_for(call: Call, seconds: float, clock: Clock = time.perf_counter) -> list[float]:
    """Times of calls, until `seconds` have passed."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        times.append(time_once(call, clock))
    return times


def time_once(call: Call, clock: Clock = time.perf_counter) -> float:
    start = clock()
    call()
    return clock() - start
