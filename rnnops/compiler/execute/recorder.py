"""A target that notes what a plan does instead of doing it: drivers and copies of memory, as a list of jobs.

A plan is recorded by running it with arrays whose elements are not there yet (`recorded_array.py`): loops, views and
calls of Python happen once, what is left is a list that compiled code goes through (kernels/cpu/jobs.py). What looks at
elements from Python is refused: `NotRecordedError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnops.compiler.buffers.memory import Buffer, Memory, Pool, rounded
from rnnops.compiler.codegen.scan_module import HEADER_SIZES, ScanModule
from rnnops.compiler.execute.added_rows import added_rows, sizes_of
from rnnops.compiler.execute.packed_once import packed_once
from rnnops.compiler.execute.recorded_array import NotRecordedError, RecordedArray, Region, held, made_array
from rnnops.compiler.ir.kernel import Module
from rnnops.compiler.lower.strided_views import views_of
from rnnops.compiler.schedule.row_order import scattered
from rnnops.compiler.schedule.share_work import Team
from rnnops.compiler.targets.target import Processor, Work
from rnnops.interpreter import Program, run_reference
from rnnops.kernels.cpu.drivers import GIVEN
from rnnops.kernels.cpu.row_order import MOST_ROWS
from rnnops.kernels.cpu.team_memory import new_barrier
from rnnops.schema import Call, RunContext, schema_of
from rnnops.types import Array

STATUS_WORDS = 4
UNPACKED = HEADER_SIZES.index("unpacked")


@dataclass(frozen=True)
class Job:
    """A driver with what it is given.

    Args:
        driver: a native function, or the name of one of the runtime's.
        threads: that run it.
        places: the memory of its arrays, and bytes from its beginning.
        numbers: the words behind these.
        unread: numbers of places that it reads only to pack what lies there, which is done once.
    """

    driver: Any
    threads: int
    places: tuple[tuple[Region, int], ...]
    numbers: tuple[int, ...]
    unread: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Recorder(Processor):
    """Notes jobs.

    Args:
        jobs: in order.
        sizes: the sizes that drivers among them are given.
        status: where all drivers say that an index was out of range.
        barrier: at which the threads of a driver meet.
        modules: what drivers were made of.
    """

    jobs: list[Job] = field(default_factory=list)
    sizes: list[Array] = field(default_factory=list)
    status: Array = field(default_factory=lambda: np.zeros(STATUS_WORDS, np.int64))
    barrier: Array = field(default_factory=new_barrier)
    pool: Pool = field(default_factory=lambda: Pool(RecordedBlock))
    modules: dict[Any, Module] = field(default_factory=dict)

    def note(self, driver: Any, threads: int, places: Sequence[tuple[Region, int]], numbers: Sequence[int]) -> None:
        """Note a job."""
        self.jobs.append(Job(driver, threads, tuple(places), tuple(numbers)))

    def clear(self) -> None:
        """Forget all jobs; memory that lasts from run to run stays."""
        self.jobs.clear()
        self.sizes.clear()

    def load(self, text: ScanModule, width: int | None) -> Any:
        function = super().load(text, width)
        assert isinstance(text.module, Module)
        self.modules[function] = text.module
        return function

    def call(self, function: Any, team: Team, work: Work, may_fail: bool) -> bool:
        _, _, sizes, *arrays = work
        given = [held(array, self.note) for array in (self.barrier, self.status, sizes)] + arrays
        once = packed_once(self.modules[function], int(sizes[UNPACKED]))
        names = (*GIVEN, *(array.name for array in self.modules[function].arrays))
        unread = frozenset(n for n, name in enumerate(names) if name in once)
        places, lengths = tuple(array.place for array in given), tuple(array.size for array in given)
        self.jobs.append(Job(function, team.threads, places, lengths, unread))
        self.sizes.append(sizes)
        return False

    @property
    def memory(self) -> Memory:
        return RecordedMemory(self)

    def flat(self, array: Any) -> RecordedArray:
        flat: RecordedArray = self._known(array).contiguous().reshape(-1)
        return flat.view(np.uint8) if flat.dtype == np.bool_ else flat

    def constant(self, array: Array) -> RecordedArray:
        return held(array, self.note)

    def order_rows(self, lengths: Any, steps: int, order: Any, ends: Any, part: tuple[int, int]) -> None:
        rows, (first, most) = len(lengths), part
        if rows > MOST_ROWS:
            raise NotRecordedError(f"{rows} rows by lengths; {MOST_ROWS} at most are put in order in compiled code")
        arrays = (self._known(lengths).contiguous(), order, ends, self.constant(np.argsort(scattered(rows))))
        self.note("order_rows", 1, [one.place for one in arrays], (rows, lengths.itemsize, steps, first, most))

    def total(self, array: Any, out: Any) -> Any:
        rows, columns = len(array), out.size
        text = added_rows(str(out.dtype), rows, columns)
        if text is None:
            raise NotRecordedError("NumPy adds up rows")
        sizes = np.array([*(0 for _ in HEADER_SIZES), *sizes_of(rows, columns)], np.int64)
        work = None, None, sizes, self.flat(array), self.flat(out)
        self.call(self.load(text, None), Team(1), work, may_fail=False)
        return out

    def references(self, program: Program) -> Mapping[str, Any]:
        return {call.op.key: RecordedReference(call, self) for call in program.calls}

    def _known(self, array: Any) -> RecordedArray:
        return array if isinstance(array, RecordedArray) else held(array, self.note)


class RecordedMemory(Memory):
    """Each buffer by itself, scratch one behind the other in the same memory."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __call__(self, buffer: Buffer, zeros: bool = False) -> Any:
        made = made_array(buffer.shape, buffer.dtype, self._recorder.note)
        if zeros:
            made.fill(0)
        return made

    def borrow(self, pool: Pool, nbytes: int) -> tuple[Any, int]:
        block = self._recorder.pool.take(nbytes)
        block.memory.memory.note = self._recorder.note
        return block, 0

    def give_back(self, pool: Pool, block: Any) -> None:
        self._recorder.pool.give(block)


class RecordedBlock:
    """Scratch of one driver at a time."""

    def __init__(self, nbytes: int) -> None:
        self.memory = made_array((nbytes,), "uint8", _unknown)

    def parts(self, user: object, wanted: Mapping[str, Buffer], offset: int = 0) -> dict[str, RecordedArray]:
        """The buffers that a user wants, side by side from an offset on."""
        parts = {}
        for name, buffer in wanted.items():
            parts[name] = self.memory[offset : offset + buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
            offset += rounded(buffer.nbytes)
        return parts


@dataclass(frozen=True)
class RecordedReference:
    """Notes what an op does that is not compiled. Raises NotRecordedError where it is more than moving elements."""

    call: Call
    recorder: Recorder

    def __call__(self, arrays: Sequence[Any], context: RunContext, **_: Any) -> tuple[Any, ...]:
        if not any(isinstance(array, RecordedArray) for array in arrays):
            results = run_reference(self.call, schema_of(self.call.op.type), arrays, context)
            return tuple(held(result, self.recorder.note) for result in results)
        layouts = views_of(self.call)
        if not layouts:
            raise NotRecordedError(f"{self.call.op.label} has no compiled form")
        return tuple(arrays[0].strided(one.offset, one.shape, one.strides) for one in layouts)


def _unknown(*_: Any) -> None:
    raise NotRecordedError("a block that nobody has borrowed")
