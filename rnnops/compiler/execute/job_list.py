"""A plan as a list of jobs in memory, which one call of compiled code goes through.

What the list needs (results between ops, scratch, packed weights, numbers) is its own and stays where it is; only
addresses of feeds and of outputs are put in at each call. The first call packs what is the same at every call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.compiler.execute.recorder import Job
from rnnops.compiler.targets.cpu.team import perform_together
from rnnops.kernels.cpu.native import NativeFunction
from rnnops.kernels.cpu.runtime import threads as thread_library
from rnnops.kernels.cpu.team_memory import WORD_BYTES, new_barrier
from rnnops.types import Array, Shape


@dataclass(frozen=True, eq=False)
class Recorded:
    """What a plan does.

    Args:
        jobs: in order.
        outputs: name, dtype and shape of each.
        sizes: that drivers are given: the array, its numbers when nothing is packed yet, and from then on.
        status: says after a call whether an index was out of range.
        barrier: at which the threads of a driver meet.
        feeds: how many arrays are given before the outputs.
    """

    jobs: tuple[Job, ...]
    outputs: tuple[tuple[str, Any, Shape], ...]
    sizes: tuple[tuple[Array, Array, Array], ...]
    status: Array
    barrier: Array
    feeds: int

    @property
    def nbytes(self) -> int:
        """Of the memory that it needs, weights included."""
        regions = {id(region): region for job in self.jobs for region, _ in job.places if region.given < 0}
        return sum(int(region.frame.nbytes) for region in regions.values())


class JobList:
    """A recorded plan in memory, for one caller at a time."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.threads = max((job.threads for job in recorded.jobs), default=1)
        self._words = [np.array([*_addresses(job), *job.numbers], np.int64) for job in recorded.jobs]
        self._jobs = np.array([*map(self._entry, range(len(recorded.jobs)))], np.int64)
        self._places = np.array([*self._given_places()], np.int64).reshape(-1)
        self._barrier = new_barrier()
        counted = (_address(self._jobs), len(recorded.jobs), _address(self._places), len(self._places) // 3)
        self._list = np.array([self.threads, _address(self._barrier), *counted], np.int64)
        self._given = (ctypes.c_int64 * (recorded.feeds + len(recorded.outputs)))()  # set sooner than an array is
        self._call = _address(self._list), self.threads, ctypes.addressof(self._given), len(self._given)
        self._names = tuple(name for name, _, _ in recorded.outputs)
        self._kinds = tuple((shape, dtype) for _, dtype, shape in recorded.outputs)
        self._packed = False
        for array, unpacked, _ in recorded.sizes:
            array[:] = unpacked

    def __call__(self, feeds: Sequence[Array]) -> dict[str, Array] | None:
        """Outputs by name; None where an index or a label was out of range."""
        made = [np.empty(*kind) for kind in self._kinds]
        self._given[:] = [*map(id, feeds), *map(id, made)]
        perform_together(*self._call)
        if not self._packed:  # drivers pack before they look at an index, whatever comes of it
            self._packed = True
            for array, _, packed in self.recorded.sizes:
                array[:] = packed
        status = self.recorded.status
        if status[0]:
            status[0] = 0
            return None
        return dict(zip(self._names, made))  # noqa: B905 - they are as many

    def _entry(self, number: int) -> tuple[int, int, int, bool]:
        """A job for `kernels/cpu/jobs.py`; threads meet between two jobs unless both are for one."""
        job, following = self.recorded.jobs[number], self.recorded.jobs[number + 1 : number + 2]
        meets = self.threads > 1 and any(one.threads > 1 for one in (job, *following)) and bool(following)
        return _driver(job.driver), job.threads, _address(self._words[number]), meets

    def _given_places(self) -> Iterator[tuple[int, int, int]]:
        for words, job in zip(self._words, self.recorded.jobs, strict=True):
            for number, (region, offset) in enumerate(job.places):
                if region.given >= 0:
                    yield _address(words) + number * WORD_BYTES, region.given, offset


def _addresses(job: Job) -> list[int]:
    return [0 if region.given >= 0 else region.start + offset for region, offset in job.places]


def _driver(driver: Any) -> int:
    address: int = driver.address if isinstance(driver, NativeFunction) else thread_library().address(driver)
    return address


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
