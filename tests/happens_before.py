"""What threads of a launch know of each other: vector clocks, by which accesses to memory are ordered.

A thread's own clock moves on whenever it may have told others of what it did. What it did at some time is before what
another thread does now if that one knows of the time. Threads that meet at a barrier know all that any of them knew;
who releases a place leaves there what it knows, and who acquires the place learns all that was left there: operations
in between only add to it, as atomic read-modify-writes go on with a release. So an access of one block to memory is
known in another one after a grid's `sync`, or after a release and an acquire, each with a barrier of its block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


class Clocks:
    """The clocks of all threads of a launch, by their numbers."""

    def __init__(self, count: int) -> None:
        self._known = [[int(i == j) for j in range(count)] for i in range(count)]
        self._left: dict[Hashable, list[int]] = {}

    def now(self, thread: int) -> int:
        """The time of a thread, by its own clock."""
        return self._known[thread][thread]

    def knows(self, thread: int, other: int, time: int) -> bool:
        """Whether what another thread did at a time of its own is before all that a thread does now."""
        return time <= self._known[thread][other]

    def meet(self, threads: Sequence[int]) -> None:
        """Threads have come to a barrier."""
        joined = _latest([self._known[thread] for thread in threads])
        for thread in threads:
            self._known[thread] = joined.copy()
            self._known[thread][thread] += 1

    def release(self, thread: int, place: Hashable) -> None:
        """A thread leaves what it knows at a place."""
        known = self._known[thread]
        self._left[place] = _latest([known, self._left.get(place, known)])
        known[thread] += 1

    def acquire(self, thread: int, place: Hashable) -> None:
        """A thread learns what was left at a place."""
        known = self._known[thread]
        self._known[thread] = _latest([known, self._left.get(place, known)])


def _latest(clocks: Sequence[Sequence[int]]) -> list[int]:
    return list(map(max, *clocks)) if len(clocks) > 1 else list(clocks[0])
