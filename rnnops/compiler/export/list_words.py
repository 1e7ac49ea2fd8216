"""The list of jobs of a recorded plan (kernels/cpu/jobs.py) as it lies at the beginning of a caller's memory.

Its numbers come first, then the jobs, places, words; a table says what each word is set to before the first call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rnnops.compiler.execute.job_list import Recorded
from rnnops.compiler.execute.recorded_array import Region
from rnnops.compiler.export.memory_map import MemoryMap
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
class ListWords:
    """The words of a list.

    Args:
        plan: where arrays lie, behind the list.
    """

    plan: MemoryMap

    @property
    def recorded(self) -> Recorded:
        """What is done."""
        return self.plan.recorded

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

    def entries(self) -> Iterator[Word]:
        """All words of the list."""
        barrier = self.plan.own_offset(self.recorded.barrier)
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
                yield Word(at + i * WORD_BYTES, *self.plan.place(region, offset, i in job.unread))
        for i, number in enumerate(job.numbers, len(job.places)):
            yield Word(at + i * WORD_BYTES, exported.NUMBER, number)


def symbol_of(driver: Any) -> str:
    """The name of a driver in LLVM."""
    return driver.name if isinstance(driver, NativeFunction) else str(driver)


def list_bytes(recorded: Recorded) -> int:
    """Of the list of a plan."""
    places = [region.given >= 0 for job in recorded.jobs for region, _ in job.places]
    words = LIST_WORDS + len(places) + sum(len(job.numbers) for job in recorded.jobs)
    return int(words * WORD_BYTES + jobs.JOB_BYTES * len(recorded.jobs) + jobs.PLACE_BYTES * sum(places))
