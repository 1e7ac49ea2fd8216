"""Recording a plan: one run with placeholders for arrays becomes a list of jobs.

**A list of jobs** (`Recorded`, `JobList`) is one call of compiled code, which does all jobs (kernels/cpu/threads.py).
The list has its own memory for results between ops, scratch, packed weights and numbers. At each call only the
addresses of feeds and outputs are filled in. The first call packs the matrices that are the same at every call.

**Recording** (`Recorder`): a plan runs on a target that notes drivers and copies of memory instead of doing them. Its
arrays (`RecordedArray`) have no elements yet. So Python's loops, views and calls happen once, while recording. Python
must not read elements (`NotRecordedError`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.compiler.codegen.places import DRIVER_PARAMETERS
from rnnops.compiler.codegen.scan_module import HEADER_SIZES, ScanModule
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import Constants, Expr, Literal, Load, Name
from rnnops.compiler.lower.movements import views_of
from rnnops.compiler.memory.memory import OUTPUT, SCRATCH, Buffer, Memory, Pool, allocate, rounded
from rnnops.compiler.schedule.batch_axis import ScanTeam, scattered
from rnnops.compiler.targets.target import Processor, Work, perform_together
from rnnops.interpreter import Program, run_reference
from rnnops.kernels.cpu.native import NAMES, PRODUCTS, NativeFunction, threads as thread_library
from rnnops.kernels.cpu.threads import GIVEN, MOST_ROWS, memory_address
from rnnops.kernels.cpu.words import WORD_BYTES, new_barrier
from rnnops.net.schema import Call, RunContext, schema_of
from rnnops.types import FLOATS, Array, Shape, TwinArray, Type

PACKS = tuple(name for name in (*PRODUCTS, *NAMES) if name.startswith("pack_"))


def packed_once(module: ir.Module, to_pack: int) -> frozenset[str]:
    """Names of arrays that a driver reads only to pack them, once and not in each call.

    Args:
        to_pack: bit mask of the packed matrices that are packed again in each call.
    """
    packs, others = dict[str, bool](), set[str]()
    for statement in ir.statements_of(module.driver.body):
        if isinstance(statement, ir.Do) and statement.function in PACKS:
            matrix, packed = statement.arguments
            assert isinstance(matrix, ir.MatrixOperand)
            assert isinstance(packed, ir.Array)
            again = to_pack >> int(packed.buffer.removeprefix("packed")) & 1
            packs[matrix.buffer] = packs.get(matrix.buffer, True) and not again
        else:
            others |= ir.buffers_of(statement)
    return frozenset(name for name, once in packs.items() if once and name not in others)


@dataclass(frozen=True, eq=False)
class Recorded:
    """A recorded plan.

    Args:
        jobs: the jobs, in order.
        outputs: (name, dtype, shape) of each output.
        sizes: the arrays of sizes that drivers are given: (array, its contents at the first call, its contents at later
            calls).
        status: not 0 after a call in which an index was out of range.
        barrier: where the threads of a driver meet.
        given: the number of arrays that a caller gives, outputs included.
        checked: (number of a given array, the type that it must have).
    """

    jobs: tuple[Job, ...]
    outputs: tuple[tuple[str, Any, Shape], ...]
    sizes: tuple[tuple[Array, Array, Array], ...]
    status: Array
    barrier: Array
    given: int
    checked: tuple[tuple[int, Type], ...] = ()

    def without_copies(self) -> Recorded:
        """The recording without final copies into arrays of the caller: jobs write into these arrays directly.

        Only copies of a whole piece of memory are left out. The old recording must not be used any more, because both
        share the memory that is changed here. An array for an output must not be an array of a feed.
        """
        last = len(self.jobs)
        while last and self.jobs[last - 1].driver == "copy_box":
            last -= 1
        return replace(self, jobs=(*self.jobs[:last], *(job for job in self.jobs[last:] if not _made_there(job))))

    @property
    def nbytes(self) -> int:
        """Bytes of all memory that it needs, weights included."""
        regions = {id(region): region for job in self.jobs for region, _ in job.places if region.given < 0}
        return sum(int(region.frame.nbytes) for region in regions.values())


class JobList:
    """A recorded plan in memory, for one caller at a time.

    `perform(words)` does all jobs with the addresses of arrays that a caller gives. It returns False if an index or a
    label was out of range, else True. The first `perform` packs weights. `answer(arrays)` does the same with the arrays
    themselves, and checks their types. It also returns False if a type is wrong, or before the first `perform`.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.threads = max((job.threads for job in recorded.jobs), default=1)
        self._words = [np.array([*_addresses(job), *job.numbers], np.int64) for job in recorded.jobs]
        self._jobs = np.array([*map(self._entry, range(len(recorded.jobs)))], np.int64)
        self._places = np.array([*self._given_places()], np.int64).reshape(-1)
        self._kinds = np.array([word for place, kind in recorded.checked for word in _kind(place, kind)], np.int64)
        self._barrier, self._given = new_barrier(), np.zeros(recorded.given, np.int64)
        counted = (_address(self._jobs), len(recorded.jobs), _address(self._places), len(self._places) // 3)
        call = 0, _address(self._given), recorded.given, _address(recorded.status)
        checked = _address(self._kinds), len(recorded.checked), id(False), id(True)
        self._list = np.array([self.threads, _address(self._barrier), *counted, *call, *checked], np.int64)
        self.answer: Callable[[list[Any]], bool] = lambda _: False
        self.perform: Callable[[list[int]], bool] = self._pack
        for array, unpacked, _ in recorded.sizes:
            array[:] = unpacked

    def __call__(self, feeds: Sequence[Array]) -> dict[str, Array] | None:
        """Outputs by name; None if an index or a label was out of range."""
        made = {name: np.empty(shape, dtype) for name, dtype, shape in self.recorded.outputs}
        return made if self.do([*feeds, *made.values()]) else None

    def do(self, arrays: list[Array], check: bool = False) -> bool:
        """Do all jobs: by `answer` if types are to be checked, else by `perform`."""
        return self.answer(arrays) if check else self.perform([*map(memory_address, arrays)])

    def _pack(self, words: list[int]) -> bool:
        """The first call, which packs weights."""
        right = self._method("perform")(words)
        for array, _, packed in self.recorded.sizes:  # drivers pack before they check indices, even if the call fails
            array[:] = packed
        self.answer, self.perform = self._method("answer"), self._method("perform")
        return right

    def _method(self, name: str) -> Callable[[list[Any]], bool]:
        method = thread_library().method(name, self._list)
        return method if self.threads == 1 else partial(perform_together, self.threads, self._list, method)

    def _entry(self, number: int) -> tuple[int, int, int, bool]:
        """A job in the form of `kernels/cpu/threads.py`. Threads meet after a job unless this and the next job have one
        thread."""
        job, following = self.recorded.jobs[number], self.recorded.jobs[number + 1 : number + 2]
        meets = self.threads > 1 and any(one.threads > 1 for one in (job, *following)) and bool(following)
        return _driver(job.driver), job.threads, _address(self._words[number]), meets

    def _given_places(self) -> Iterator[tuple[int, int, int]]:
        for words, job in zip(self._words, self.recorded.jobs, strict=True):
            for number, (region, offset) in enumerate(job.places):
                if region.given >= 0:
                    yield _address(words) + number * WORD_BYTES, region.given, region.base + offset


def _kind(place: int, kind: Type) -> tuple[int, ...]:
    """A type to be checked, in the form of `kernels/cpu/threads.py`."""
    return place, id(np.ndarray), id(np.dtype(kind.dtype)), len(kind.shape), *kind.shape


def _made_there(copy: Job) -> bool:
    """Let a copied piece of memory be the caller's array from now on. Returns False, and changes nothing, if the piece
    is not copied as a whole, or is not the plan's own."""
    (target, into), (source, start) = copy.places
    run, *axes = copy.numbers
    whole = into == start == 0 and run == source.frame.nbytes and axes[::3] == [1] * BOX_AXES
    if not whole or target.given < 0 or source.given >= 0 or not source.made or source.scratch:
        return False
    source.given = target.given
    return True


LARGE = 1 << 16  # from this size in bytes on, arrays come from the free list


def array_maker(shape: tuple[int, ...], dtype: Any) -> Callable[[], Array]:
    """A function that makes new arrays: small ones by NumPy, large ones by `allocate`, from memory that has pages."""
    kind = np.dtype(dtype)
    if prod(shape) * kind.itemsize < LARGE:
        return partial(np.empty, shape, kind)
    return partial(allocate, Buffer("recorded", OUTPUT, kind.name, shape))


def _addresses(job: Job) -> list[int]:
    return [0 if region.given >= 0 else region.start + offset for region, offset in job.places]


def _driver(driver: Any) -> int:
    address: int = driver.address if isinstance(driver, NativeFunction) else thread_library().address(driver)
    return address


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


BOX_AXES = 3  # axes of a `copy_box` job, around its runs of bytes
Note = Callable[..., None]


class NotRecordedError(Exception):
    """A plan does something with an array for which there is no job."""


class Region:
    """A piece of memory.

    Args:
        frame: its bytes. They are not read while a plan is recorded; those of a given array are never used.
        note: notes jobs.
        given: number of the caller's array that it stands for; -1 for memory of the plan's own.
        made: whether each call writes it anew.

    Attributes:
        scratch: whether it is scratch of one driver at a time.
        base: offset in the caller's array where it begins, in bytes.
        start: its address.
    """

    def __init__(self, frame: Array, note: Note, given: int = -1, made: bool = False) -> None:
        self.frame, self.note, self.given, self.made, self.scratch, self.base = frame, note, given, made, False, 0
        self.start: int = frame.__array_interface__["data"][0]


class RecordedArray(TwinArray):
    """An array whose elements are not there yet.

    Args:
        memory: the piece of memory that it is in.
        twin: the array as a view of the memory's frame.
    """

    memory: Region
    where: ClassVar[str] = "a plan that is recorded"

    @property
    def place(self) -> tuple[Region, int]:
        """The memory, and the offset of the first element in bytes."""
        return self.memory, self.offset

    def assign(self, value: Any) -> None:
        """Note copies from another array, or of one number to all elements."""
        source = value if isinstance(value, RecordedArray) else held(np.asarray(value, self.dtype), self.memory.note)
        for target, part in boxes(self, source.broadcast_to(self.shape)):
            self.memory.note("copy_box", 1, (target.place, part.place), box_of(target.twin, part.twin))

    def fill(self, number: Any) -> None:
        """Note that all elements are set to a number."""
        if number == 0 and self.flags.c_contiguous:
            self.memory.note("clear", 1, (self.place,), (self.nbytes,))
        else:
            self.assign(np.asarray(number, self.dtype))

    def copy(self) -> RecordedArray:
        made = made_array(self.shape, self.dtype, self.memory.note)
        made.assign(self)
        return made

    def __getattr__(self, name: str) -> Any:
        """Raise NotRecordedError: any other method of NumPy's arrays reads elements."""
        if name.startswith("__"):  # NumPy asks for such names to find out what an object is
            raise AttributeError(name)
        raise NotRecordedError(f"NumPy's `{name}` is called from Python")

    def __array__(self, *_given: Any, **_named: Any) -> Any:
        raise NotRecordedError("elements are looked at from Python")

    def __iadd__(self, other: Any) -> RecordedArray:
        raise NotRecordedError("NumPy adds arrays")


def made_array(shape: Shape, dtype: Any, note: Note, given: int = -1) -> RecordedArray:
    """An array in new memory, or, if `given` is not negative, an array that the caller gives."""
    kind = np.dtype(dtype)
    nbytes = prod(shape) * kind.itemsize
    frame = allocate(Buffer("recorded", SCRATCH, "uint8", (nbytes,))) if given < 0 else np.empty(nbytes, np.uint8)
    return RecordedArray(Region(frame, note, given, made=True), frame.view(kind).reshape(shape))


def held(array: Array, note: Note) -> RecordedArray:
    """An array that the plan holds from call to call."""
    plain = np.asarray(array, order="C")
    return RecordedArray(Region(plain.reshape(-1).view(np.uint8), note), plain)


def box_of(target: Array, source: Array) -> tuple[int, ...]:
    """The numbers of a `copy_box` job (kernels/cpu/threads.py) for two arrays of one shape."""
    run, axes = _run_and_axes(target, source)
    ones = [(1, 0, 0)] * (BOX_AXES - len(axes))
    return (run, *(number for axis in (*ones, *axes) for number in axis))


def boxes(target: RecordedArray, source: RecordedArray) -> Iterator[tuple[RecordedArray, RecordedArray]]:
    """Two arrays of one shape, cut into parts such that one job can copy a part."""
    if target.size == 0:
        return
    _, axes = _run_and_axes(target.twin, source.twin)
    if len(axes) <= BOX_AXES:
        yield target, source
        return
    for index in product(*map(range, target.shape[: target.ndim - BOX_AXES])):
        yield target[index], source[index]


def _run_and_axes(target: Array, source: Array) -> tuple[int, Sequence[tuple[int, int, int]]]:
    """The length in bytes of runs without gaps in both arrays; and the axes around them, each as (count, stride in the
    source, stride in the target)."""
    run, axes = target.itemsize, list[tuple[int, int, int]]()
    for count, out, into in zip(target.shape[::-1], source.strides[::-1], target.strides[::-1], strict=True):
        if count == 1:
            continue
        if not axes and out == into == run:
            run *= count
        elif axes and (out, into) == (axes[0][0] * axes[0][1], axes[0][0] * axes[0][2]):
            axes[0] = (axes[0][0] * count, *axes[0][1:])
        else:
            axes.insert(0, (count, out, into))
    return run, axes


BLOCK, LONGEST = 8, 128  # NumPy adds up to 128 floats of a column in 8 lanes; more are halved first
Body = tuple[ir.For | ir.Store, ...]


def added_rows(dtype: str, rows: int, columns: int, goes_on: bool = False) -> ScanModule | None:
    """The module that adds up the rows of `x [rows, columns]` into `y [columns]`. It may overwrite x. None if NumPy
    would add in another order.

    Args:
        goes_on: whether rows are added to the contents of y, one after the other.
    """
    by_eights = dtype in FLOATS and columns == 1 and rows >= BLOCK
    if dtype == "bool" or rows == 0 or (by_eights and rows > LONGEST):
        return None
    arrays = tuple(ir.Parameter(name, f"{dtype}[]") for name in ("x", "y"))
    sizes = *HEADER_SIZES, "height", "width", "whole"
    body = _by_eights(dtype) if by_eights and not goes_on else _by_rows(dtype, goes_on)
    module = ir.Module(
        dtype if dtype in FLOATS else "float32", (), ir.Function("scan", DRIVER_PARAMETERS, body), arrays, sizes
    )
    return ScanModule(module, Constants(), sizes_of(rows, columns), ("x", "y"), ())


def sizes_of(rows: int, columns: int) -> tuple[int, int, int]:
    """Rows, columns, and the number of rows in whole blocks."""
    return rows, columns, rows - rows % BLOCK


def _by_rows(dtype: str, goes_on: bool) -> Body:
    """Statements that add row after row."""
    row, column, width = Name("row"), Name("column"), Name("width")
    first = ir.Store("y", column, Load("x", column, dtype=dtype))
    more = Load("y", column, dtype=dtype) + Load("x", row * width + column, dtype=dtype)
    zero, one = Literal(0), Literal(1)
    add = (ir.For("column", zero, width, one, (ir.Store("y", column, more),)),)
    rows = ir.For("row", zero if goes_on else one, Name("height"), one, add)
    return (rows,) if goes_on else (ir.For("column", zero, width, one, (first,)), rows)


def _by_eights(dtype: str) -> Body:
    """Statements that add in eight lanes, then add the lanes two by two, then the rows that are left."""
    row, lane, zero, one, block = Name("row"), Name("lane"), Literal(0), Literal(1), Literal(BLOCK)
    more = Load("x", lane, dtype=dtype) + Load("x", row + lane, dtype=dtype)
    sums: list[Expr] = [Load("x", Literal(place), dtype=dtype) for place in range(BLOCK)]
    while len(sums) > 1:
        sums = [one_sum + other for one_sum, other in zip(sums[::2], sums[1::2], strict=True)]
    left = Load("y", zero, dtype=dtype) + Load("x", row, dtype=dtype)
    return (
        ir.For("row", block, Name("whole"), block, (ir.For("lane", zero, block, one, (ir.Store("x", lane, more),)),)),
        ir.Store("y", zero, sums[0]),
        ir.For("row", Name("whole"), Name("height"), one, (ir.Store("y", zero, left),)),
    )


STATUS_WORDS = 4
TO_PACK = HEADER_SIZES.index("to_pack")


@dataclass(frozen=True)
class Job:
    """One job: a driver and its arguments.

    Args:
        driver: a native function, or the name of a function of the runtime.
        threads: the number of threads that run it.
        places: its arrays, each as (memory, offset in bytes).
        numbers: its numbers, which come after the arrays.
        unread: numbers of places that it reads only to pack the array there, which is done once.
    """

    driver: Any
    threads: int
    places: tuple[tuple[Region, int], ...]
    numbers: tuple[int, ...]
    unread: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Recorder(Processor):
    """A target that notes jobs instead of doing them.

    Args:
        jobs: the jobs so far, in order.
        sizes: the arrays of sizes that drivers are given.
        status: where drivers note that an index was out of range.
        barrier: where the threads of a driver meet.
        pool: scratch of drivers.
        modules: driver -> the module that it was made from.
    """

    jobs: list[Job] = field(default_factory=list)
    sizes: list[Array] = field(default_factory=list)
    status: Array = field(default_factory=lambda: np.zeros(STATUS_WORDS, np.int64))
    barrier: Array = field(default_factory=new_barrier)
    pool: Pool = field(default_factory=lambda: Pool(RecordedBlock))
    modules: dict[Any, ir.Module] = field(default_factory=dict)

    def note(self, driver: Any, threads: int, places: Sequence[tuple[Region, int]], numbers: Sequence[int]) -> None:
        """Note a job."""
        self.jobs.append(Job(driver, threads, tuple(places), tuple(numbers)))

    def clear(self) -> None:
        """Forget all jobs. Memory that lasts from run to run stays."""
        self.jobs.clear()
        self.sizes.clear()

    def load(self, text: ScanModule, width: int | None) -> Any:
        function = super().load(text, width)
        assert isinstance(text.module, ir.Module)
        self.modules[function] = text.module
        return function

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        _, _, sizes, *arrays = work
        given = [held(array, self.note) for array in (self.barrier, self.status, sizes)] + arrays
        once = packed_once(self.modules[function], int(sizes[TO_PACK]))
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
        return self._added(array, out, len(array), False)

    def add(self, array: Any, other: Any) -> None:
        self._added(other, array, 1, True)

    def _added(self, array: Any, out: Any, rows: int, goes_on: bool) -> Any:
        columns = out.size
        text = added_rows(str(out.dtype), rows, columns, goes_on)
        if text is None or not out.flags.c_contiguous:
            raise NotRecordedError("NumPy adds up rows")
        sizes = np.array([*(0 for _ in HEADER_SIZES), *sizes_of(rows, columns)], np.int64)
        work = None, None, sizes, self.flat(array), self.flat(out)
        self.call(self.load(text, None), ScanTeam(1), work, may_fail=False)
        return out

    def references(self, program: Program) -> Mapping[str, Any]:
        return {call.op.key: RecordedReference(call, self) for call in program.calls}

    def _known(self, array: Any) -> RecordedArray:
        return array if isinstance(array, RecordedArray) else held(array, self.note)


class RecordedMemory(Memory):
    """Makes new memory for each buffer. Drivers use the same scratch, one after the other."""

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
    """A block of scratch, which one driver at a time uses."""

    def __init__(self, nbytes: int) -> None:
        self.memory = made_array((nbytes,), "uint8", _unknown)
        self.memory.memory.scratch = True

    def parts(self, user: object, wanted: Mapping[str, Buffer], offset: int = 0) -> dict[str, RecordedArray]:
        """The wanted buffers, one after the other from an offset on."""
        parts = {}
        for name, buffer in wanted.items():
            parts[name] = self.memory[offset : offset + buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
            offset += rounded(buffer.nbytes)
        return parts


@dataclass(frozen=True)
class RecordedReference:
    """Notes the work of an op that is not compiled.

    Raises NotRecordedError if the op does more than move elements.
    """

    call: Call
    recorder: Recorder

    def __call__(self, arrays: Sequence[Any], context: RunContext, **_: Any) -> tuple[Any, ...]:
        if not any(isinstance(array, RecordedArray) for array in arrays):
            results = run_reference(self.call, schema_of(self.call.op.type), arrays, context)
            return tuple(held(result, self.recorder.note) for result in results)
        layouts = views_of(self.call)
        if self.call.op.type == "Identity":
            made = made_array(arrays[0].shape, arrays[0].dtype, self.recorder.note)
            made.assign(arrays[0])
            return (made,)
        if not layouts:
            raise NotRecordedError(f"{self.call.op.label} has no compiled form")
        return tuple(arrays[0].strided(one.offset, one.shape, one.strides) for one in layouts)


def _unknown(*_: Any) -> None:
    raise NotRecordedError("a block that was not borrowed")
