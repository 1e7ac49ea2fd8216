"""Native calls of one run: lists of jobs, by the types of feeds.

A list is made when two calls in a row have feeds of the same types, as those of a stream or of a server have: making
one takes as long as planning. Sequences of ever other lengths run as their plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from rnnops.compiler.execute.job_list import JobList, Recorded
from rnnops.compiler.execute.recorded_array import NotRecordedError
from rnnops.types import Array

KINDS = 8  # types of feeds whose lists are kept
LARGEST = 1 << 28  # bytes that a list may have of its own: all results of a plan lie in memory at the same time


class NativeCalls:
    """Lists of jobs for one caller at a time each; tables are replaced and never changed, so there is no lock.

    Args:
        make: records a call with certain feeds.
    """

    def __init__(self, make: Callable[[Sequence[Array]], Recorded]) -> None:
        self._make = make
        self._idle: dict[Hashable, list[JobList]] = {}  # by the types of feeds; the last was used last
        self._refused: dict[Hashable, str] = {}
        self._last: Hashable = None

    def call(self, kinds: Hashable, feeds: Sequence[Array]) -> dict[str, Array] | None:
        """Outputs by name; None where there is no list for such feeds, or an index or a label is out of range."""
        idle = self._idle.get(kinds)
        if idle is None:
            if kinds != self._last or kinds in self._refused:
                return None
            idle = self._idle_for(kinds)
        jobs = self._list(idle, kinds, feeds)
        if jobs is None:
            return None
        try:
            return jobs(feeds)
        finally:
            idle.append(jobs)

    def answered(self, kinds: Hashable) -> None:
        """Feeds of these types were right, and were answered without a list."""
        self._last = kinds

    def refused(self, kinds: Hashable) -> str | None:
        """Why such feeds have no list, None where nothing is known of them."""
        return self._refused.get(kinds)

    def _list(self, idle: list[JobList], kinds: Hashable, feeds: Sequence[Array]) -> JobList | None:
        try:
            return idle.pop()
        except IndexError:
            pass
        try:
            recorded = self._make(feeds)
            if recorded.nbytes > LARGEST:
                raise NotRecordedError(f"all results of the plan take {recorded.nbytes} bytes")
            return JobList(recorded)
        except NotRecordedError as reason:
            self._refused = {**dict([*self._refused.items()][1 - KINDS :]), kinds: str(reason)}
            self._idle = {kind: lists for kind, lists in self._idle.items() if kind != kinds}
            return None

    def _idle_for(self, kinds: Hashable) -> list[JobList]:
        kept = dict([*self._idle.items()][1 - KINDS :])
        idle = kept.setdefault(kinds, [])
        self._idle = kept
        return idle
