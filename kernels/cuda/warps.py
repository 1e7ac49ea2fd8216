"""Lanes of a warp that do something together, in the simulator, which knows no warps: each brings what it holds.

On a device a warp's instruction is one for all 32 lanes. Here lanes are threads, which come one after another; who
comes last does it for all. Tests put another object in the place of `simulated`, whose threads take turns.
Limits: all 32 lanes of a warp come, in the same order of instructions; blocks have one axis of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rnnops.kernels.cuda.matrix_fragments import WARP

SECONDS = 60.0  # in which all lanes come; a lane that has failed never does


class Meeting:
    """Where the lanes of one warp come together."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.round = 0
        self._brought: dict[int, Any] = {}
        self._found: Sequence[Any] = ()

    def bring(self, lane: int, given: Any, together: Callable[[list[Any]], Sequence[Any]]) -> None:
        """A lane has come; the last of a round does what is to be done."""
        self._brought[lane] = given
        if len(self._brought) == WARP:
            self._found = together([self._brought[lane] for lane in range(WARP)])
            self._brought = {}
            self.round += 1
            self.changed.notify_all()

    def taken(self, lane: int) -> Any:
        """What a lane gets of the round that is over; the next one is not before all have come again."""
        return self._found[lane]


class Warps:
    """The meetings of all warps, by their blocks' objects in the simulator."""

    def __init__(self) -> None:
        self._meetings: dict[tuple[int, int], Meeting] = {}

    def do(self, given: Any, together: Callable[[list[Any]], Sequence[Any]]) -> Any:
        """What the lane that calls gets of what all lanes of its warp have brought.

        Args:
            together: from what lanes have brought, in their order, to what they get.
        """
        thread: Any = threading.current_thread()
        warp, lane = divmod(thread.thread_id, WARP)
        meeting = self._meetings.setdefault((id(self.block_of(thread)), warp), Meeting())
        with meeting.changed:
            before = meeting.round
            meeting.bring(lane, given, together)
            while meeting.round == before:
                self.wait(thread, meeting)
            return meeting.taken(lane)

    def block_of(self, thread: Any) -> Any:
        """What the threads of a block have in common."""
        return thread._manager

    def wait(self, thread: Any, meeting: Meeting) -> None:
        """Let other lanes come."""
        if thread.abort or not meeting.changed.wait(SECONDS):
            raise RuntimeError(f"lane {thread.thread_id} waits for others of its warp, which do not come")


simulated = Warps()
