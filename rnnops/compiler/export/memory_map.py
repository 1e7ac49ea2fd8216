"""Where the arrays of a recorded plan lie once it has left Python: in a caller's memory, or in its weights.

The memory begins with what a form of the plan needs for itself (a list of jobs, an address), then comes what stays from
call to call (a status, states), then results and scratch, which share memory where they live at different times.
Weights are what lasts and is only read: packed matrices, bound inputs, constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rnnops.compiler.buffers.arena import Interval, plan_arena
from rnnops.compiler.buffers.memory import rounded
from rnnops.compiler.execute.job_list import Recorded
from rnnops.compiler.execute.recorded_array import Region
from rnnops.kernels.cpu.exported import MEMORY, NUMBER, WEIGHTS
from rnnops.lazy import cached_property
from rnnops.types import Array


@dataclass(frozen=True, eq=False)
class MemoryMap:
    """The map of a recorded plan.

    Args:
        states: number of an input -> bytes: those that stay in the memory.
        state_of: number of an array that a caller would give -> the state that it is.
        start: bytes of the memory that come before the arrays.
        own: arrays that the jobs keep from call to call.
    """

    recorded: Recorded
    states: Mapping[int, int]
    state_of: Mapping[int, int]
    start: int
    own: tuple[Array, ...] = ()

    @property
    def count(self) -> int:
        """How many arrays a call is given, states among them."""
        return self.recorded.feeds + len(self.recorded.outputs)

    @cached_property
    def _staying(self) -> tuple[dict[int, int], dict[int, int], int]:
        """Offsets of what stays from call to call: of our own by address, of states by number; where it ends."""
        at, own, states = rounded(self.start), dict[int, int](), dict[int, int]()
        for array in self.own:
            own[_address(array)] = at
            at += rounded(array.nbytes)
        for number, nbytes in self.states.items():
            states[number] = at
            at += rounded(nbytes)
        return own, states, at

    def own_offset(self, array: Any) -> int:
        """Where an array lies that the jobs keep."""
        return self._staying[0][_address(array)]

    @property
    def state_offsets(self) -> dict[int, int]:
        """Of each state, by number."""
        return self._staying[1]

    @cached_property
    def _made(self) -> tuple[dict[int, int], int]:
        """Offsets of results and scratch by address, and where they end."""
        lives: dict[int, tuple[Region, int, int]] = {}
        for n, job in enumerate(self.recorded.jobs):
            for region, _ in job.places:
                if region.made and region.given < 0:
                    first = lives.get(region.start, (region, n, n))[1]
                    lives[region.start] = region, first, n
        intervals = [Interval(int(region.frame.nbytes), first, last) for region, first, last in lives.values()]
        arena, start = plan_arena(intervals), self._staying[2]
        return dict(zip(lives, (start + offset for offset in arena.offsets), strict=True)), start + arena.nbytes

    @property
    def nbytes(self) -> int:
        """Of the memory."""
        return rounded(self._made[1])

    @cached_property
    def _held(self) -> dict[tuple[int, int], tuple[int, Region]]:
        """Offset in the weights and what lies there, by address and size."""
        found, at = dict[tuple[int, int], tuple[int, Region]](), 0
        for job in self.recorded.jobs:
            for i, (region, _) in enumerate(job.places):
                key = region.start, int(region.frame.nbytes)
                stays = region.given < 0 and not region.made and region.start not in self._staying[0]
                if stays and key not in found and i not in job.unread:
                    found[key] = at, region
                    at += rounded(key[1])
        return found

    def weights(self) -> bytes:
        """What lasts and is only read; when the plan has been called once, with matrices packed."""
        parts = bytearray()
        for at, region in self._held.values():
            parts += bytes(at - len(parts)) + region.frame.tobytes()
        return bytes(parts)

    def place(self, region: Region, offset: int, unread: bool) -> tuple[int, int]:
        """What an address counts from (kernels/cpu/exported.py), and how far it is.

        Args:
            unread: whether nobody reads there, so that the address may be anything.
        """
        own, _, _ = self._staying
        if region.start in own:
            return MEMORY, own[region.start] + offset
        if region.made:
            return MEMORY, self._made[0][region.start] + offset
        found = self._held.get((region.start, int(region.frame.nbytes)))
        return (NUMBER, 0) if unread or found is None else (WEIGHTS, found[0] + offset)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
