"""Where everything of a recorded plan lies once it has left Python: in a caller's memory, or in its weights.

The memory begins with the list of jobs (kernels/cpu/jobs.py): its numbers, the jobs, places, words, then what stays
from call to call (barriers, the status, states), then results and scratch, which share memory where they live at
different times. Weights are what lasts and is only read: packed matrices, bound inputs, constants, sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnops.compiler.buffers.arena import Interval, plan_arena
from rnnops.compiler.buffers.memory import rounded
from rnnops.compiler.execute.job_list import Recorded
from rnnops.compiler.execute.recorded_array import Region
from rnnops.kernels.cpu import exported, jobs
from rnnops.kernels.cpu.native import NativeFunction
from rnnops.kernels.cpu.team_memory import WORD_BYTES
from rnnops.lazy import cached_property

LIST_WORDS = 6


@dataclass(frozen=True)
class Word:
    """A word of the memory that is set before the first call.

    Args:
        offset: in the memory, bytes.
        base: `exported.NUMBER`, or what the value counts from.
    """

    offset: int
    base: int
    value: int


@dataclass(frozen=True, eq=False)
class MemoryMap:
    """The map of a recorded plan.

    Args:
        states: number of an input -> bytes: those that stay in the memory.
        state_of: number of an array that a caller would give -> the state that it is.
    """

    recorded: Recorded
    states: Mapping[int, int]
    state_of: Mapping[int, int]

    @property
    def count(self) -> int:
        """How many arrays a call is given, states among them."""
        return self.recorded.feeds + len(self.recorded.outputs)

    # -- the parts, one behind the other --------------------------------------------------------------------------

    @cached_property
    def drivers(self) -> dict[str, Any]:
        """Drivers by their names in LLVM, in the order of their numbers; equal ones are one."""
        return {symbol_of(job.driver): job.driver for job in self.recorded.jobs}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {symbol: number for number, symbol in enumerate(self.drivers)}

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Where the words of each job begin."""
        counts = [len(job.places) + len(job.numbers) for job in self.recorded.jobs]
        start = self._places_start + jobs.PLACE_BYTES * len(self._given)
        return tuple(start + WORD_BYTES * sum(counts[:n]) for n in range(len(counts) + 1))

    @cached_property
    def _given(self) -> list[tuple[int, int, Region, int]]:
        """What the caller gives: job, number of the word, memory, offset in it."""
        return [
            (n, i, region, offset)
            for n, job in enumerate(self.recorded.jobs)
            for i, (region, offset) in enumerate(job.places)
            if region.given >= 0
        ]

    @property
    def _jobs_start(self) -> int:
        return int(LIST_WORDS * WORD_BYTES)

    @property
    def _places_start(self) -> int:
        return self._jobs_start + int(jobs.JOB_BYTES) * len(self.recorded.jobs)

    @cached_property
    def _staying(self) -> tuple[dict[int, int], dict[int, int], int]:
        """Offsets of what stays from call to call: by address, of states by number; where it ends."""
        at, own, states = rounded(self.words[-1]), dict[int, int](), dict[int, int]()
        for array in (self.recorded.status, self.recorded.barrier):
            own[_address(array)] = at
            at += rounded(array.nbytes)
        for number, nbytes in self.states.items():
            states[number] = at
            at += rounded(nbytes)
        return own, states, at

    @property
    def status(self) -> int:
        """Offset of the status."""
        return self._staying[0][_address(self.recorded.status)]

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

    # -- weights --------------------------------------------------------------------------------------------------

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

    # -- what is set before the first call ------------------------------------------------------------------------

    def entries(self) -> Iterator[Word]:
        """All words of the list."""
        barrier = self._staying[0][_address(self.recorded.barrier)]
        count = len(self.recorded.jobs)
        head = ((0, 1), (1, barrier), (1, self._jobs_start), (0, count), (1, self._places_start), (0, len(self._given)))
        bases = exported.NUMBER, exported.MEMORY
        yield from (Word(i * WORD_BYTES, bases[base], value) for i, (base, value) in enumerate(head))
        for n, job in enumerate(self.recorded.jobs):
            at = self._jobs_start + n * jobs.JOB_BYTES
            yield Word(at, exported.DRIVER, self._numbers[symbol_of(job.driver)])
            yield Word(at + jobs.TEAM, exported.NUMBER, 1)
            yield Word(at + jobs.WORDS, exported.MEMORY, self.words[n])
            yield Word(at + jobs.MEETS, exported.NUMBER, 0)
            yield from self._words_of(n)
        for place, (n, i, region, offset) in enumerate(self._given):
            at = self._places_start + place * jobs.PLACE_BYTES
            yield Word(at, exported.MEMORY, self.words[n] + i * WORD_BYTES)
            yield Word(at + WORD_BYTES, exported.NUMBER, region.given)
            yield Word(at + 2 * WORD_BYTES, exported.NUMBER, offset)

    def _words_of(self, n: int) -> Iterator[Word]:
        job, at = self.recorded.jobs[n], self.words[n]
        for i, (region, offset) in enumerate(job.places):
            if region.given < 0:
                yield Word(at + i * WORD_BYTES, *self._place(region, offset, i in job.unread))
        for i, number in enumerate(job.numbers, len(job.places)):
            yield Word(at + i * WORD_BYTES, exported.NUMBER, number)

    def _place(self, region: Region, offset: int, unread: bool) -> tuple[int, int]:
        """What an address counts from, and how far it is."""
        own, _, _ = self._staying
        if region.start in own:
            return exported.MEMORY, own[region.start] + offset
        if region.made:
            return exported.MEMORY, self._made[0][region.start] + offset
        found = self._held.get((region.start, int(region.frame.nbytes)))
        return (exported.NUMBER, 0) if unread or found is None else (exported.WEIGHTS, found[0] + offset)


def symbol_of(driver: Any) -> str:
    """The name of a driver in LLVM."""
    return driver.name if isinstance(driver, NativeFunction) else str(driver)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
