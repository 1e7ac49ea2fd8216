"""The CUDA device as a target: writing of scans, memory, interpreted ops, launches and graphs.

**Checks of numbers in a pass** (`LateCheck`). Kernels replace an index out of range by the nearest valid one, and note
it. The host asks for the note only at the end of a pass, because it must wait for the answer. Without an open check,
each scan with checked numbers is asked by itself.

**Ops that are not compiled, on arrays of a CUDA device** (`DeviceReference`): an op that only moves elements is a view
there, or a copy. Limit: other ops without a compiled form go through the host, and so do arrays without elements.

**The CUDA device as a target of scans** (`Cuda`): loops over steps are kernels, products over tiles are launched by
themselves. Arrays stay on the device from the first op to the last, also those of recurrences that Python steps
through.

**CUDA graphs** (`Replays`): runs with many launches are recorded. A recorded run is launched by one call if arrays have
the same addresses again. Python takes longer to launch a small kernel than a device to run it. The first run with
certain arrays launches as usual, the second is recorded, and from the third on one call launches all. In a loop of
training, memory pools give the same addresses again and again. Kernels read numbers that change from run to run (seeds)
from an array that is written anew.

Limits: recording needs CuPy, for its binding of CUDA graphs. The last `KEPT` sets of addresses of each driver are
remembered. A run that cannot be recorded is launched as before, and `Replays.refused` has the reason.

**Calls of a generated module's driver** (`Launches`): launches of its kernels, and products over whole tiles. All work
of a scan on a device goes through one object, so that launches are counted and go into one stream.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rnnops.compiler.codegen.places import ALIGNMENT, Layouts, lay_out
from rnnops.compiler.codegen.scan_module import HEADER_SIZES, ScanModule
from rnnops.compiler.lower.movements import views_of
from rnnops.compiler.lower.scan import Scan, StepPlan
from rnnops.compiler.memory.memory import Buffer, Memory, Pool, on_host, rounded
from rnnops.compiler.schedule.batch_axis import ScanTeam
from rnnops.compiler.targets.cuda.lane_nests import LANES
from rnnops.compiler.targets.cuda.loop import BY_ROWS, COPIES, Loop
from rnnops.compiler.targets.cuda.module import owners_in_memory, write_cuda_scan
from rnnops.compiler.targets.cuda.share_blocks import Blocks, check_lanes, instruction_lines, share_loop
from rnnops.compiler.targets.cuda.share_rows import let_finished_rows_leave, share_rows
from rnnops.compiler.targets.target import Work, Written, load_module
from rnnops.errors import DeviceError
from rnnops.interpreter import Program, run_reference
from rnnops.kernels.cuda.device_array import (
    DeviceArray,
    empty,
    numbers_on_device,
    on_device,
    renew,
    settled,
    written,
    zeros,
)
from rnnops.kernels.cuda.facade import SIMULATED, address_of, card, choose, launch, prepared, record
from rnnops.kernels.cuda.gemm import Product, multiply
from rnnops.kernels.cuda.lane_functions import WORDS
from rnnops.kernels.cuda.memory import current_lender, current_stream, in_stream, is_captured, refuse_in_graph
from rnnops.kernels.cuda.tensor_cores import INSTRUCTIONS, WARP
from rnnops.net.schema import Call, RunContext, schema_of
from rnnops.types import Array
from rnnops.util import cached_property

LEAST = 32  # launches of a run that is worth recording
KEPT = 8  # recorded runs of a driver
KNOWN = 256  # arrays of a driver's numbers on the device, some 200 bytes each: enough for all parts of a schedule
SEEN, PLAIN = "seen", "plain"


class RecordedGraph:
    """A run that was recorded as a CUDA graph."""

    def __init__(self, run: ScanRun, sizes: Any) -> None:
        self.sizes, self.written = on_device(sizes), sizes.tobytes()
        self.replay = record(lambda stream: run.start(self.sizes, stream))

    def start(self, sizes: Any, stream: Any) -> None:
        """Launch the graph, after the numbers that kernels read are renewed."""
        numbers, lent = sizes.tobytes(), current_lender() is not None
        if lent or self.written != numbers:
            renew(self.sizes, sizes, stream)
            self.written = b"" if lent else numbers  # a graph that has captured this may rewrite them at any time
        self.replay(stream)


class Replays:
    """The runs of one driver."""

    def __init__(self) -> None:
        self.launches: int | None = None  # the most launches of a run that was not recorded; None before the first
        self.recorded = 0  # runs that were recorded
        self.refused = ""  # the reason why recording failed last
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._sizes: OrderedDict[Hashable, Any] = OrderedDict()  # numbers that are on the device, by stream and value
        self._lock = threading.Lock()

    def start(self, run: ScanRun, sizes: Any, stream: Any) -> None:
        """Launch a run as usual, record it, or launch its recorded graph.

        Args:
            sizes: numbers that kernels read, as a NumPy array.
            stream: of the device.
        """
        few = self.launches is not None and self.launches < LEAST
        found = PLAIN if few else self._found(run, sizes, stream)
        if isinstance(found, RecordedGraph):
            found.start(sizes, stream)
        else:
            self.launches = max(self.launches or 0, run.start(self._on_device(sizes, stream), stream))

    def _on_device(self, sizes: Any, stream: Any) -> Any:
        """Numbers that kernels read, on the device. Most runs have the same numbers at every call: only new ones are
        copied."""
        if current_lender() is not None:  # it may capture a graph, and owns the memory of a run
            return written(sizes.tolist(), stream)
        key = address_of(stream), sizes.tobytes()  # memory is reused only in its stream
        with self._lock:
            found = self._sizes.pop(key, None)
            found = self._sizes[key] = on_device(sizes) if found is None else found
            while len(self._sizes) > KNOWN:
                self._sizes.popitem(last=False)
        return found

    def _found(self, run: ScanRun, sizes: Any, stream: Any) -> Any:
        key = run.key(stream)
        with self._lock:
            found = self._known.pop(key, None)
            if found is SEEN:
                found = self._recorded(run, sizes)
            self._known[key] = SEEN if found is None else found
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found

    def _recorded(self, run: ScanRun, sizes: Any) -> Any:
        """A recorded run. `PLAIN` if recording fails; `refused` then has the reason."""
        try:
            found = RecordedGraph(run, sizes)
        except Exception as error:  # of CuPy, cuBLAS or the driver: the run is launched as usual
            self.refused = f"{type(error).__name__}: {error}"
            return PLAIN
        if found.replay is None:
            self.refused = "CuPy is missing"
            return PLAIN
        self.recorded += 1
        return found


class Launches:
    """The launches of one run of a scan.

    Args:
        sizes: numbers that kernels read, on the device.
        status: an array on the device in which kernels note a wrong number, such as an index out of range.
        counters: words on the device by which the blocks of a group wait for each other.
        lanes: threads of a block.
        stream: of the device.
    """

    def __init__(self, sizes: Any, status: Any, counters: Any, lanes: int, stream: Any = 0) -> None:
        self.sizes, self.status, self.counters, self.lanes, self.stream = sizes, status, counters, lanes, stream
        self.count = 0
        self._prepared: dict[int, tuple[Any, Any]] = {}  # by id; the array is kept alive, so that its id stays unique

    def launch(
        self, kernel: Any, blocks: int, shared_bytes: int, low: int, begin: int, end: int, steps: int, *arrays: Any
    ) -> None:
        """Run a kernel for steps `begin ... end - 1` of a tile.

        Args:
            shared_bytes: bytes of shared memory for a block.
            low: the first step of the tile.
            steps: of the tile.
        """
        self.count += 1
        prepared_arrays = map(self._argument, (self.sizes, self.status, self.counters, *arrays))
        launch(kernel, blocks, self.lanes, shared_bytes, self.stream, low, begin, end, steps, *prepared_arrays)

    def _argument(self, array: Any) -> Any:
        found = self._prepared.get(id(array))
        if found is None:
            if not array.flags.c_contiguous:
                raise ValueError(f"kernels take arrays without gaps, not strides of {array.strides} bytes")
            found = self._prepared[id(array)] = array, prepared(array)
        return found[1]

    def multiply(self, *products: Product) -> None:
        """Compute products that do not depend on each other."""
        self.count += multiply(*products, stream=self.stream)


@dataclass(frozen=True)
class ScanRun:
    """One run of a driver.

    Args:
        driver: `scan(on, numbers, *arrays)` of a generated module.
        numbers: the numbers that the driver reads.
        fixed: those numbers on which its launches depend.
        status: as of `Launches`.
        lanes: threads of a block.
        counters: as of `Launches`. They belong to the stream, in which runs follow each other.
    """

    driver: Callable[..., None]
    numbers: Sequence[int]
    fixed: Sequence[int]
    arrays: Sequence[Any]
    status: Any
    lanes: int
    counters: Any

    def start(self, sizes: Any, stream: Any) -> int:
        """Launch the run. Returns the count of launches.

        Args:
            sizes: numbers that kernels read, on the device.
        """
        on = Launches(sizes, self.status, self.counters, self.lanes, stream)
        with in_stream(stream, ordered=False):
            self.driver(on, self.numbers, *self.arrays)
        return on.count

    def key(self, stream: Any) -> Hashable:
        """The key that two runs share if they launch the same."""
        return address_of(stream), *self.fixed, *(array.pointer for array in (self.status, *self.arrays))


_STATE = threading.local()


class LateCheck:
    """The check of one pass, in one stream."""

    @cached_property
    def status(self) -> DeviceArray:
        """The array in which kernels note a wrong number. The first scan that checks numbers makes it."""
        return zeros((4,), "int64")

    def failed(self) -> bool:
        """True if a number was wrong. Waits for all work so far, if a scan has checked numbers."""
        return "status" in self.__dict__ and bool(self.status.to_host()[0] != 0)


def current_check() -> LateCheck | None:
    """The check of the pass that this thread runs; None if there is none."""
    return getattr(_STATE, "check", None)


@contextmanager
def checked_late() -> Iterator[LateCheck]:
    """Scans within this context leave the question for wrong numbers to its end."""
    before, _STATE.check = current_check(), LateCheck()
    try:
        yield _STATE.check
    finally:
        _STATE.check = before


class DeviceBlock:
    """Memory of the device that is lent to one scan at a time."""

    def __init__(self, nbytes: int) -> None:
        self.memory = empty((nbytes,), "uint8")

    def parts(self, user: object, wanted: Mapping[str, Buffer], offset: int = 0) -> dict[str, DeviceArray]:
        """The buffers that a user wants, one after another from an offset on."""
        parts = {}
        for name, buffer in wanted.items():
            parts[name] = self.memory[offset : offset + buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
            offset += rounded(buffer.nbytes)
        return parts


class DeviceMemory(Memory):
    """Memory of the device: a new array for each buffer, scratch from a pool of the current stream.

    Work in one stream keeps its order, so that scratch may be reused at once. A lender has a pool of its own, and owns
    the memory of its graphs: its memory goes back to it.
    """

    def __init__(self) -> None:
        self._pools: dict[int, Pool] = {}
        self._numbers: Any = None  # 0, 1, 2 and so on

    def __call__(self, buffer: Buffer, zeros: bool = False) -> Any:
        made = empty(buffer.shape, buffer.dtype)
        if zeros:
            made.fill(0)
        return made

    def timesteps(self, first: int, count: int) -> Any:
        numbers = self._numbers
        if numbers is None or len(numbers) < first + count:
            numbers = self._numbers = settled(on_device(super().timesteps(0, 2 * (first + count))))
        return numbers[first : first + count]

    def borrow(self, pool: Pool, nbytes: int) -> tuple[Any, int]:
        return (DeviceBlock(nbytes) if current_lender() else self._pool().take(nbytes)), 0

    def give_back(self, pool: Pool, block: Any) -> None:
        if current_lender() is None:
            self._pool().give(block)

    def _pool(self) -> Pool:
        return self._pools.setdefault(address_of(current_stream()), Pool(DeviceBlock))


@dataclass(frozen=True)
class DeviceReference:
    """Runs one op that is not compiled."""

    call: Call

    def __call__(self, arrays: Sequence[Any], context: RunContext, **_: Any) -> tuple[Any, ...]:
        if arrays and isinstance(arrays[0], DeviceArray):
            layouts = views_of(self.call)
            if layouts:
                return tuple(arrays[0].strided(one.offset, one.shape, one.strides) for one in layouts)
            if self.call.op.type == "Concat":
                return (_side_by_side(self.call, arrays),)
        schema = schema_of(self.call.op.type)
        if not arrays and not schema.uses_context:
            return self._constants(context)
        results = run_reference(self.call, schema, [*map(on_host, arrays)], context)
        if arrays and not any(isinstance(array, DeviceArray) for array in arrays):
            return results
        return tuple(on_device(result) if isinstance(result, np.ndarray) else result for result in results)

    def _constants(self, context: RunContext) -> tuple[Any, ...]:
        """Constants, copied to the device once, and read-only."""
        if "constants" not in self.call.derived:
            results = run_reference(self.call, schema_of(self.call.op.type), [], context)
            made = tuple(settled(on_device(result)) for result in results)
            for array in made:
                array.flags.writeable = False
            self.call.derived["constants"] = made
        found: tuple[Any, ...] = self.call.derived["constants"]
        return found


def _side_by_side(call: Call, arrays: Sequence[Any]) -> DeviceArray:
    """Arrays joined along the axis of a Concat."""
    kind = call.output_types[0]
    made, end = empty(kind.shape, kind.dtype), 0
    before = (slice(None),) * (call.attr("axis") % len(kind.shape))
    for array in map(on_device, arrays):
        start, end = end, end + array.shape[len(before)]
        place = (*before, slice(start, end))
        made[place] = array
    return made


FIXED_BYTES = 8192  # of shared memory: for folds of lanes, and for the device itself
READ_BY_KERNELS = ("seed", "draw_t0", "first")  # numbers that only kernels read, so that no launch depends on them
TENSOR_CORES = 8, 0  # the least compute capability that has `mma.sync` for all formats
WITHOUT_TENSOR_CORES, WITH_TENSOR_CORES = ("float32",), ("float32", *INSTRUCTIONS)  # precisions
TILE_ROWS = choose(16384, 512)  # rows of a tile: many, because each launch of a loop reads the recurrent weights


@dataclass(frozen=True)
class Cuda:
    """Kernels of a CUDA device.

    Args:
        lanes: threads of a block.
        blocks: blocks that run at the same time.
        shared_bytes: bytes of shared memory that a block may ask for.
        weights: the dtype in which loops keep weights on chip: `"float16"` for float32 weights, or empty for their own.
        net: the name of the compiled net, for errors.
        split: as in `Blocks`.
    """

    lanes: int = 3
    blocks: int = 1
    shared_bytes: int = 48 * 1024
    weights: str = ""
    net: str = ""
    split: bool | None = None
    tile_rows: int = TILE_ROWS
    compacts: bool = False
    in_place: float = inf
    calls: bool = False
    worker: str = "block"
    precisions: tuple[str, ...] = WITH_TENSOR_CORES
    weight_types: tuple[str, ...] = ()
    memory: DeviceMemory = field(default_factory=DeviceMemory, compare=False, repr=False)
    counters: dict[int, DeviceArray] = field(default_factory=dict, compare=False, repr=False)
    replays: WeakKeyDictionary[Any, Replays] = field(default_factory=WeakKeyDictionary, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= LANES:
            raise DeviceError("no such number of lanes", wanted=f"an integer from 1 to {LANES}", came=repr(self.lanes))

    def write(self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None) -> Written:
        check_lanes(plan, self.lanes, self.net)
        weights = self._weights(scan, dtype)
        blocks = Blocks(self.blocks, self.lanes, self.shared_bytes, self.split)
        loops = {
            n: share_loop(scan, plan, stage, blocks, dtype, weights)
            for n, stage in enumerate(plan.stages)
            if stage.loop
        }
        plan, loops = share_rows(scan, plan, loops, blocks)
        loops = {n: let_finished_rows_leave(scan, plan, n, loop) for n, loop in loops.items()}
        team = ScanTeam(max([1, *(loop.blocks for loop in loops.values())]))
        known = scan, plan, tile, team.threads, _least_extents(plan, loops), COPIES
        layouts = lay_out(*known, used=owners_in_memory(scan, plan, lay_out(*known), dtype, loops))
        layouts.need(dtype)
        loops = with_scratch(loops, layouts, dtype)
        notes = [
            line
            for n, loop in loops.items()
            if plan.stages[n].cyclic
            for line in (*loop.lines(np.dtype(dtype).itemsize), *instruction_lines(loop))
        ]
        text = write_cuda_scan(scan, plan, layouts, dtype, loops, weights)
        return Written(team, layouts, text, tuple(notes), plan)

    def _weights(self, scan: Scan, dtype: str) -> str:
        if self.weights and dtype != "float32":
            problem = "weights on chip are float16 for float32 only"
            raise DeviceError(problem, net=self.net, wanted="float32 feeds", came=dtype, hint="Leave weights= out.")
        return self.weights or dtype

    def load(self, text: ScanModule, width: int | None) -> Any:
        return load_module(text.python()).scan

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        _, status, sizes, *arrays = work
        stream = current_stream()
        if is_captured():
            self._capture(function, sizes, arrays, stream)
            return False
        check = current_check() if may_fail else None
        status = status if check is None else check.status
        numbers = [int(size) for size in sizes]
        fixed = [number for name, number in zip_longest(HEADER_SIZES, numbers) if name not in READ_BY_KERNELS]
        run = ScanRun(function, numbers, fixed, arrays, status, self.lanes, self._counters(stream))
        self.replays.setdefault(function, Replays()).start(run, sizes, stream)
        if not may_fail or check is not None or status.to_host()[0] == 0:
            return False
        status.fill(0)
        return True

    def _capture(self, function: Any, sizes: Any, arrays: Sequence[Any], stream: Any) -> None:
        """Launch into a stream that is being captured, with memory that belongs to the graph.

        An index out of range is not reported: kernels take the nearest valid one.
        """
        if function not in self.replays or self.replays[function].launches is None:
            refuse_in_graph("a kernel would have to be loaded, as it has not run yet")
        status, counters = zeros((4,), "int64"), zeros((WORDS * self.blocks,), "uint32")
        run = ScanRun(function, sizes.tolist(), (), arrays, status, self.lanes, counters)
        run.start(numbers_on_device(sizes, stream), stream)

    def _counters(self, stream: Any) -> DeviceArray:
        """Words by which the blocks of a group wait for each other. Runs in one stream use the same words in turn."""
        address = address_of(stream)
        if address not in self.counters:
            made = empty((WORDS * self.blocks,), "uint32")
            made.fill(0)
            self.counters[address] = made
        return self.counters[address]

    def flat(self, array: Any) -> Any:
        flat = array.contiguous().reshape(-1)
        return flat.view("uint8") if flat.dtype == np.bool_ else flat

    def constant(self, array: Array) -> DeviceArray:
        return settled(on_device(array))

    def order_rows(self, lengths: Any, steps: int, order: Any, ends: Any, part: tuple[int, int]) -> None:
        raise NotImplementedError("products on a CUDA device take all rows, so that rows need no order")

    def total(self, array: Any, out: Any) -> Any:
        return array.sum(axis=0, out=out)

    def add(self, array: Any, other: Any) -> None:
        array += other

    def references(self, program: Program) -> Mapping[str, Any]:
        return {call.op.key: DeviceReference(call) for call in program.calls}


def _least_extents(plan: StepPlan, loops: Mapping[int, Loop]) -> dict[str, str]:
    """Owner -> the least extent of its scratch, `step` or `tile`. Lanes by features work on many rows, or steps, at
    once."""
    least: dict[str, str] = {}
    for loop in loops.values():
        for region in (*loop.regions, *loop.over):
            for owner in region.written:
                apart = region.period != BY_ROWS or plan.batch_axes.get(owner, 0) != 0
                if apart or (region.work and owner not in region.private):
                    least[owner] = "tile" if loop.apart else "step"
    return least


def with_scratch(loops: Mapping[int, Loop], layouts: Layouts, dtype: str) -> dict[int, Loop]:
    """Loops with a place in scratch for partial sums. All have the same place, because one loop runs at a time."""
    numbers = max((loop.partials[-1] for loop in loops.values() if loop.partials), default=0)
    if not numbers:
        return dict(loops)
    line = ALIGNMENT // np.dtype(dtype).itemsize
    first = -(-layouts.scratch[dtype] // line) * line
    layouts.scratch[dtype] = first + numbers
    return {n: replace(loop, scratch=first) for n, loop in loops.items()}


def cuda_target(net: str, weights: str | None, precision: str = "float32") -> Cuda:
    """The target of device `"cuda"`: the current card. Raises DeviceError if there is none.

    Args:
        net: the name of the net to be compiled, for errors.
        weights: as in `Cuda`.
        precision: the dtype that operands of products are rounded to.
    """
    found = card(net)
    if weights not in (None, "float16"):
        wanted = "'float16', or None for their own dtype"
        raise DeviceError("no such dtype of weights on chip", net=net, wanted=wanted, came=repr(weights))
    rounds = precision in INSTRUCTIONS
    if rounds and weights:
        problem, hint = "weights= and precision= both give the dtype of weights", "Leave one of them out."
        raise DeviceError(problem, net=net, came=f"{weights!r} and {precision!r}", hint=hint)
    if SIMULATED:
        lanes, precisions = (WARP, WITH_TENSOR_CORES) if rounds else (3, WITHOUT_TENSOR_CORES)
        return Cuda(lanes=lanes, weights=weights or "", net=net, precisions=precisions)
    if rounds and found.capability < TENSOR_CORES:
        wanted, came = (f"compute capability {a}.{b}" for a, b in (TENSOR_CORES, found.capability))
        problem, hint = f"the device has no tensor cores for {precision}", "Leave precision= out."
        raise DeviceError(problem, net=net, wanted=f"{wanted} or more", came=f"{found.name} of {came}", hint=hint)
    precisions = WITH_TENSOR_CORES if found.capability >= TENSOR_CORES else WITHOUT_TENSOR_CORES
    room = found.multiprocessors, found.shared_bytes - FIXED_BYTES
    return Cuda(LANES, *room, weights or "", net, precisions=precisions)
