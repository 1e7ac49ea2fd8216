"""What calls take, in turns: each for a while, round by round, so that all see the same machine.

Times are the process's processor time: calls here run on one thread, and others on the machine take nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import process_time

BLOCK, ROUNDS, WARM = 0.1, 5, 3  # seconds of a turn, turns of each, calls before the first
Clock = Callable[[], float]


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], block: float = BLOCK, rounds: int = ROUNDS, clock: Clock = process_time
) -> dict[str, float]:
    """Seconds of a call of each: the median over rounds of the mean over a turn of at least `block` seconds."""
    times: dict[str, list[float]] = {label: [] for label in calls}
    for call in calls.values():
        for _ in range(WARM):
            call()
    for _ in range(rounds):
        for label, call in calls.items():
            times[label].append(time_turn(call, block, clock))
    return {label: median(found) for label, found in times.items()}


def time_turn(call: Callable[[], object], block: float, clock: Clock) -> float:
    """Mean seconds of calls that take at least `block` seconds together, one call at least.

    The clock is read after 1, 3, 7, ... calls, as reading it takes as long as a part of a small one.
    """
    start, count, chunk = clock(), 0, 1
    while True:
        for _ in range(chunk):
            call()
        count, chunk = count + chunk, 2 * chunk
        now = clock()
        if now - start >= block:
            return (now - start) / count
