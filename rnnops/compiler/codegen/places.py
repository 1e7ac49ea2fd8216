"""Where in memory each blob of a step lies, addresses of its elements, and loops over rows.

**Places**. A blob that one pointwise kernel makes and uses lies in scratch of one row. One that passes from it to a
product within a step lies in scratch of one step, and one that passes from stage to stage, in scratch of a tile. The
rest lies in tensors.

**Addresses**: where the elements of a place lie at step `t`, or in a tile of steps, as expressions of sizes. What
drivers and kernels of a scan are given: parameters, numbers of a step, a thread's share, and a function that copies.

**Row shares**: how a driver goes through the rows of a thread, all of them, or those whose sequence has not ended. A
thread keeps its rows for a whole run. Where rows shrink, its share is a range of places in an order in which long and
short rows alternate (`ends`, `order`). `list_rows` writes down for each step of a tile which rows are not over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType

import numpy as np

from rnnops.compiler.codegen.pointwise_kernel import ONE, ZERO, SizeArguments
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import CastExpr, Expr, Literal, Load, Name, least, most, share_of, total
from rnnops.compiler.lower.scan import Role, Scan, StepPlan, TensorName, rows_of_sum
from rnnops.compiler.lower.statements import Stage, Statement, dense, node_reads, node_writes
from rnnops.compiler.schedule.batch_axis import resident_states
from rnnops.types import BOOL, Type

ALIGNMENT = 64  # bytes: a line of the cache
APART = 4096 + ALIGNMENT  # bytes: a page and a line, as processors prefetch lines only within a page
EXTENTS = ("row", "step", "tile")
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Place:
    """Where an owner lies: in array `array`, from number `start` on.

    Args:
        step: numbers from one step to the next; 0 if all steps share the place.
        over: the index of steps: `t`, `i` (the step within a tile), or `""`.
        shift: added to that index.
        ring: steps after which memory is used again; 0 if it never is.
        row: numbers from one row of the batch to the next.
        together: neighbouring rows that share a place: rows that add to one part of a sum, or heads of one row.
        rows: the index of rows: `n` (as the caller gave them); or an index among rows that are over, or among those
            that are not: `j` (within the tile), `r` (a thread's own within the step).
        thread: numbers from one thread to the next.
        apart: extra numbers between the rows of one thread and those of the next, if threads share out rows.
        extent: of a place in scratch: it is for a `row`, a `step`, a `tile` or a `segment`.
        size: numbers of scratch that it takes, for all threads.
    """

    array: str
    start: int = 0
    step: int = 0
    over: str = ""
    shift: int = 0
    ring: int = 0
    row: int = 0
    together: int = 1
    rows: str = "n"
    thread: int = 0
    apart: int = 0
    extent: str = ""
    size: int = 0


@dataclass(frozen=True)
class ResidentPlace:
    """The place of a row of a state that changes in place, and where it comes from and goes to.

    Args:
        own: the place within a tile.
        read, written: the places before and after the tile.
        size: numbers of the row.
        owners: the owner that a step reads in `own`, and the one that it writes there.
    """

    own: Place
    read: Place
    written: Place
    size: int
    dtype: str
    owners: tuple[str, str]


@dataclass(frozen=True)
class BorderPlace:
    """Where the row of a state is kept before the first step of each tile, and where that step reads it.

    Args:
        border: the place for the first tile; its `step` leads from one tile to the next.
        size: numbers of the row.
    """

    border: Place
    read: Place
    size: int
    dtype: str


@dataclass(frozen=True)
class Layouts:
    """All places, and the sizes of the scratch arrays.

    Args:
        scratch: dtype -> numbers of the array of scratch of this dtype.
        tensors, arrays: tensor or owner -> the array of the caller that it lies in.
        past_end: all places for the stages of rows that are over.
        residents: states that change in place, and where they lie between two tiles.
        borders: states that are kept before the first step of each tile.
        again: the layouts of forward steps that a backward pass runs again.
    """

    places: Mapping[str, Place]
    scratch: dict[str, int]
    tensors: Mapping[TensorName, str]
    arrays: Mapping[str, str]
    past_end: Mapping[str, Place] = field(default_factory=dict)
    residents: tuple[ResidentPlace, ...] = ()
    borders: tuple[BorderPlace, ...] = ()
    again: Layouts | None = None

    @property
    def aliases(self) -> dict[str, str]:
        """Owner -> the one whose memory it shares."""
        return {state.owners[1]: state.owners[0] for state in self.residents}

    def need(self, dtype: str) -> None:
        """Make sure that there is an array of scratch for a dtype. If nothing lies there, it has one number."""
        self.scratch.setdefault(dtype, 1)


class _Scratch:
    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def take(self, dtype: str, count: int) -> int:
        width = ALIGNMENT // np.dtype(dtype).itemsize
        start = self.sizes.get(dtype, 0)
        self.sizes[dtype] = start + -(-count // width) * width
        return start


def lay_out(
    scan: Scan,
    plan: StepPlan,
    tile: int,
    threads: int,
    least: Mapping[str, str] = NOTHING,
    copies: int = 1,
    used: Collection[str] | None = None,
    again: tuple[Scan, StepPlan] | None = None,
    apart: bool = False,
) -> Layouts:
    """Give every owner a place.

    Args:
        tile: steps in a tile.
        least: owners -> the least extent of their scratch, `step` or `tile`, even if a row's would be enough.
        copies: steps after which scratch of a step is used again.
        used: owners that need scratch, all if None; the others are in registers.
        again: steps of the forward pass that a backward pass runs again, segment by segment.
        apart: whether rows of different threads lie in different pages of a step's scratch. Otherwise a core prefetches
            lines that another core is about to write, and that write takes as long as an access to memory. This was a
            quarter of the time of a step of 8 rows of 64 numbers on two threads.
    """
    named = (name for name, tensor in scan.tensors.items() if not tensor.segment)
    tensors = {name: f"x{i}" for i, name in enumerate(named)}
    owners = (*sorted(plan.invariant), *plan.accumulators)
    arrays = {owner: f"x{i}" for i, owner in enumerate(owners, len(tensors))}
    found = _Layer(_Scratch(), tensors, arrays, tile, threads, apart)
    layouts = found.layouts(scan, plan, least, copies, used)
    if again is None:
        return layouts
    return replace(layouts, again=found.layouts(*again, least, copies, used))


@dataclass(frozen=True)
class _Layer:
    """Lays out steps that share memory.

    Args:
        segments: tensor of a segment -> its first number in scratch, the numbers of a step, and those of a thread.
    """

    scratch: _Scratch
    tensors: Mapping[TensorName, str]
    arrays: Mapping[str, str]
    tile: int
    threads: int
    apart: bool
    segments: dict[TensorName, tuple[int, int, int]] = field(default_factory=dict)

    def layouts(
        self, scan: Scan, plan: StepPlan, least: Mapping[str, str], copies: int, used: Collection[str] | None
    ) -> Layouts:
        """All places of a step."""
        scratch, tile, threads = self.scratch, self.tile, self.threads
        places = self._given(scan, plan)
        extents = (_scratch_extents(stages, places, least, used) for stages in (plan.stages, plan.past_end))
        lasting, over = (
            {**places, **_scratch_places(scratch, plan, some, tile, threads, copies, self.apart)} for some in extents
        )
        residents = []
        for state in resident_states(scan, plan):
            dtype, owners = plan.types[state.read].dtype, (state.read, state.written)
            place = _of_thread(scratch, dtype, state.size, threads)
            residents.append(ResidentPlace(place, places[state.read], places[state.written], state.size, dtype, owners))
            lasting[state.read] = lasting[state.written] = over[state.read] = over[state.written] = place
        written = {slot.tensor for owner, slot in plan.slots.items() if owner not in scan.reads}  # states: by forward
        kept = [name for name in scan.tensors if name.role is Role.BORDER and Role.STATE.of(name.blob) in written]
        borders = tuple(self._border(scan, plan, name, lasting) for name in kept)
        return Layouts(lasting, scratch.sizes, self.tensors, self.arrays, over, tuple(residents), borders)

    def _given(self, scan: Scan, plan: StepPlan) -> dict[str, Place]:
        """Places of values in tensors, and of values that all steps share."""
        places = {}
        for owner, kind in plan.types.items():
            row, heads = _row_stride(owner, kind, plan), plan.heads if kind.shape == (scan.batch,) else 1
            if owner in plan.slots and scan.tensors[plan.slots[owner].tensor].segment:
                places[owner] = self._in_segment(scan, plan, owner)
            elif owner in plan.slots:
                places[owner] = replace(_in_tensor(scan, plan, owner, row, self.tensors), together=heads)
            elif owner in plan.invariant or owner in plan.accumulators:
                together = rows_of_sum(scan.batch) if plan.accumulators.get(owner) else heads
                places[owner] = Place(self.arrays[owner], row=row, together=together)
        return places

    def _in_segment(self, scan: Scan, plan: StepPlan, owner: str) -> Place:
        """A place in a segment of one row. Steps lie 16 numbers further apart than they need, so that the processor
        does not take the addresses of a store and a load for the same."""
        slot, dtype = plan.slots[owner], plan.types[owner].dtype
        if slot.tensor not in self.segments:
            step = -(-prod(plan.types[owner].shape) // (scan.batch * plan.heads) // 16) * 16 + 16
            thread = step * (self.tile + 1)
            self.segments[slot.tensor] = self.scratch.take(dtype, thread * self.threads), step, thread
        start, step, thread = self.segments[slot.tensor]
        size = thread * self.threads
        return Place(f"w_{dtype}", start, step, "i", slot.shift, thread=thread, extent="segment", size=size)

    def _border(self, scan: Scan, plan: StepPlan, name: TensorName, places: Mapping[str, Place]) -> BorderPlace:
        """Where a state lies before each segment, and where its first step reads it."""
        state, tensor = Role.STATE.of(name.blob), scan.tensors[name]
        if state in self.segments:  # forward steps read it there, or only backward steps do
            start, step, thread = self.segments[state]
            read = Place(f"w_{tensor.dtype}", start, step, "i", int(scan.reverse), thread=thread, extent="segment")
        else:
            (read,) = (places[o] for o, slot in plan.slots.items() if o in scan.reads and slot.tensor == state)
        whole = prod(tensor.shape)
        size = whole // (scan.batch * plan.heads)
        return BorderPlace(Place(self.tensors[name], 0, whole, row=size), read, size, tensor.dtype)


def _scratch_places(
    scratch: _Scratch, plan: StepPlan, extents: Mapping[str, str], tile: int, threads: int, copies: int, apart: bool
) -> dict[str, Place]:
    places = {}
    for owner, extent in extents.items():
        kind = plan.types[owner]
        axis, row = plan.batch_axes.get(owner), _row_stride(owner, kind, plan)
        every = threads if plan.batch_axes and axis is None else 1
        steps = {"tile": tile, "step": copies, "row": 1}[extent]
        if apart and extent == "step" and axis == 0:
            place = _in_pages(scratch, kind, threads, row)
        else:
            place = _in_scratch(scratch, kind, extent, steps, threads, row, axis, every)
        places[owner] = _side_by_side(place, kind, extent, axis) if plan.lengths else place
    return places


def _side_by_side(place: Place, kind: Type, extent: str, batch_axis: int | None) -> Place:
    """The place with rows that are not over side by side, for plans that leave out other rows."""
    if extent == "row" or batch_axis is None or prod(kind.shape[:batch_axis]) != 1:
        return place
    return replace(place, step=0, over="", rows="j" if extent == "tile" else "r")


def _row_stride(owner: str, kind: Type, plan: StepPlan) -> int:
    axis = plan.batch_axes.get(owner)
    return 0 if axis is None else dense(kind.shape).strides[axis]


def _in_tensor(scan: Scan, plan: StepPlan, owner: str, row: int, tensors: Mapping[TensorName, str]) -> Place:
    slot = plan.slots[owner]
    tensor = scan.tensors[slot.tensor]
    ring = tensor.length if tensor.ring else 0
    return Place(tensors[slot.tensor], 0, prod(tensor.shape), "t", slot.shift, ring, row)


def _extents(stages: tuple[Stage, ...], placed: set[str]) -> dict[str, str]:
    """Owner -> `row`, `step` or `tile`: the extent for which its memory is needed."""
    extents: dict[str, str] = {}
    home: dict[str, tuple[int, int]] = {}
    for number, stage in enumerate(stages):
        segment = 0
        before: bool | None = None
        for node in stage.nodes:
            is_row = isinstance(node, Statement)
            segment += before is not None and before != is_row
            before = is_row
            for owner in dict.fromkeys((*node_reads(node), node_writes(node))):
                if owner in placed:
                    continue
                first = home.setdefault(owner, (number, segment))
                extent = (
                    "tile"
                    if first[0] != number or not stage.loop
                    else "step"
                    if first[1] != segment or not is_row
                    else "row"
                )
                extents[owner] = max(extents.get(owner, "row"), extent, key=EXTENTS.index)
    return extents


def _scratch_extents(
    stages: tuple[Stage, ...], placed: Collection[str], least: Mapping[str, str], used: Collection[str] | None
) -> dict[str, str]:
    extents = _extents(stages, set(placed))
    wanted = {owner: extent for owner, extent in extents.items() if used is None or owner in used}
    return {owner: max(extent, least.get(owner, extent), key=EXTENTS.index) for owner, extent in wanted.items()}


def _in_scratch(
    scratch: _Scratch, kind: Type, extent: str, steps: int, threads: int, row: int, batch_axis: int | None, every: int
) -> Place:
    """A place in scratch for each of `every` threads. Each thread computes values that are the same for all rows."""
    size = prod(kind.shape)
    if extent == "row" and batch_axis in (None, 0):
        return _of_thread(scratch, kind.dtype, size if batch_axis is None else row, threads)
    over = "i" if extent == "tile" or steps > 1 else ""
    ring = steps if over and extent != "tile" else 0
    own = -(-size * steps // 16) * 16 if every > 1 else 0
    whole = max(own * every, size * steps)
    start = scratch.take(kind.dtype, whole)
    step = size if over else 0
    return Place(f"w_{kind.dtype}", start, step, over, ring=ring, row=row, thread=own, extent=extent, size=whole)


def _in_pages(scratch: _Scratch, kind: Type, threads: int, row: int) -> Place:
    """A place in scratch of a step, with rows of different threads in different pages."""
    apart = APART // np.dtype(kind.dtype).itemsize
    whole = prod(kind.shape) + (threads - 1) * apart
    start = scratch.take(kind.dtype, whole)
    return Place(f"w_{kind.dtype}", start, row=row, apart=apart, extent="step", size=whole)


def _of_thread(scratch: _Scratch, dtype: str, size: int, threads: int) -> Place:
    """A place in scratch for one row of each thread."""
    width = -(-size // 16) * 16 + 16
    start = scratch.take(dtype, width * threads)
    return Place(f"w_{dtype}", start, thread=width, extent="row", size=width * threads)


T, LOW, RANK = Name("t"), Name("low"), Name("rank")


@dataclass(frozen=True)
class Addresses:
    """Writes addresses with the sizes of one module.

    Args:
        batched: whether there are rows.
    """

    sizes: SizeArguments
    batched: bool

    def of_row(self, place: Place, row: Expr) -> Expr:
        """The address of a row of step `t`, which is step `i` of its tile."""
        terms = self._start(place)
        if place.step and place.over:
            position = self._shifted(Name("i") if place.over == "i" else T, place)
            if place.ring:
                position = self._remainder(position, self.sizes.of(place.ring)) if place.ring > 1 else Literal(0)
            terms.append(position * self.sizes.of(place.step))
        if place.row and self.batched:
            sharing = row if place.together == 1 else self._quotient(row, self.sizes.of(place.together))
            terms.append(sharing * self.sizes.of(place.row))
        if place.thread:
            terms.append(RANK * self.sizes.of(place.thread))
        if place.apart:
            terms.append(Name("apart") * self.sizes.of(place.apart))
        return total(terms)

    def of_tile(self, place: Place) -> Expr:
        """The address of the first step of a tile."""
        terms = self._start(place)
        if place.over == "t":
            terms.append(self._shifted(LOW, place) * self.sizes.of(place.step))
        return total(terms)

    def _quotient(self, a: Expr, b: Expr) -> Expr:
        return a // b

    def _remainder(self, a: Expr, b: Expr) -> Expr:
        return a % b

    def _start(self, place: Place) -> list[Expr]:
        return [self.sizes.of(place.start)] if place.start else []

    def _shifted(self, step: Expr, place: Place) -> Expr:
        return step + self.sizes.of(place.shift) if place.shift else step


DRIVER_PARAMETERS = (
    ir.Parameter("rank"),
    ir.Parameter("threads"),
    *(ir.Parameter(name, "int64[]") for name in ("barrier", "status")),
)
SCALARS: Mapping[str, Expr | ir.Pointer] = {
    "t": CastExpr(Name("first") + Name("t"), dtype="int32"),
    "draw_t": Name("draw_t0") + Name("t"),
    "status": ir.Pointer("status", ZERO),
}


def array_parameters(scan: Scan, plan: StepPlan, layouts: Layouts) -> list[ir.Parameter]:
    """The parameters for arrays of the caller and for scratch. Bools are bytes."""
    tensors = [(array, scan.tensors[name].dtype, f"tensor {name}") for name, array in layouts.tensors.items()]
    arrays = [(array, plan.types[owner].dtype, owner) for owner, array in layouts.arrays.items()]
    scratch = [(f"w_{dtype}", dtype, "") for dtype in layouts.scratch]
    given = (*tensors, *arrays, *scratch)
    return [ir.Parameter(name, "uint8[]" if dtype == BOOL else f"{dtype}[]", blob) for name, dtype, blob in given]


def copy_function(name: str, dtype: str) -> ir.Function:
    """A function that copies numbers."""
    stored = "uint8" if dtype == BOOL else dtype
    taken = ir.Parameter("p0", f"{stored}*"), ir.Parameter("p1", f"{stored}*"), ir.Parameter("size")
    body = ir.Store("p0", Name("i0"), Load("p1", Name("i0"), dtype=stored))
    return ir.Function(name, taken, (ir.For("i0", ZERO, Name("size"), ONE, (body,)),))


def thread_share(
    names: tuple[str, str], rank: Expr, threads: Expr, count: Expr, block: Expr
) -> tuple[ir.Statement, ir.Statement]:
    """The statements that set the range of things that a thread takes (`share_of`)."""
    first, last = share_of(rank, threads, count, block)
    return ir.Assign(names[0], first), ir.Assign(names[1], last)


N, K, STEPS, HEAD, COUNT, ROWS = map(Name, ("N", "K", "steps", "head", "count", "rows"))
IN_TILE, J0, N0, N1, M0, M1 = map(Name, ("i", "j0", "n0", "n1", "m0", "m1"))


class AllRows:
    """Every row at every step.

    Args:
        firsts: row index (`Place.rows`) -> the first row of a thread's products at a step.
        count: the count of these rows: the thread's own, or all rows if threads share out columns.
        columns: whether threads may share out columns.
    """

    firsts: Mapping[str, Expr] = {"n": M0}
    count: Expr = M1 - M0
    columns = True

    def before_tile(self) -> list[ir.Statement]:
        """The code at the beginning of a tile."""
        return []

    def before_rows(self) -> list[ir.Statement]:
        """The code at the beginning of a step."""
        return []

    def each_row(self, body: Sequence[ir.Statement]) -> ir.Statement:
        """The loop over the thread's rows of a step."""
        return ir.For("n", N0, N1, ONE, tuple(body))

    def in_tile(self, rows: int, batch: int, sizes: SizeArguments) -> Expr:
        """The rows of a product in a tile, where one step of all rows of the batch has `rows`."""
        return STEPS * sizes.of(rows)


class RowsToEnd(AllRows):
    """Every row goes through all steps of a tile. `lasting` is the count of steps before the row's end.

    Args:
        heads: rows that stand for each row of the batch.
    """

    def __init__(self, heads: Expr) -> None:
        self.heads = heads

    def each_row(self, body: Sequence[ir.Statement]) -> ir.Statement:
        k, row = Name("k"), Name("row")
        last = most(least(Load("ends", row) - LOW, STEPS), 0)
        n = Load("order", row) * self.heads + k % self.heads
        return ir.For(
            "k", N0, N1, ONE, (ir.Assign("row", k // self.heads), ir.Assign("n", n), ir.Assign("lasting", last), *body)
        )


class LastingRows(AllRows):
    """Rows that are not over. `n` is a row, `j` its place in the tile, and `r` its place in the step."""

    firsts: Mapping[str, Expr] = {"n": N0, "j": J0, "r": N0}
    count = COUNT
    columns = False

    def before_tile(self) -> list[ir.Statement]:
        own = ir.Array("ends"), ir.Array("order"), LOW, STEPS, N0, N1, ir.Array("lists"), RANK * K * (N + 2)
        return [ir.Do("list_rows", own, ("rows",))]

    def before_rows(self) -> list[ir.Statement]:
        return [
            ir.Assign("head", (RANK * K + IN_TILE) * (N + 2)),
            ir.Assign("j0", Load("lists", HEAD)),
            ir.Assign("count", Load("lists", HEAD + 1)),
        ]

    def each_row(self, body: Sequence[ir.Statement]) -> ir.Statement:
        k = Name("k")
        places = ir.Assign("n", Load("lists", HEAD + 2 + k)), ir.Assign("j", J0 + k), ir.Assign("r", N0 + k)
        return ir.For("k", ZERO, COUNT, ONE, (*places, *body))

    def in_tile(self, rows: int, batch: int, sizes: SizeArguments) -> Expr:
        return ROWS * sizes.of(rows // batch)


class RowsPastEnd(LastingRows):
    """Rows that are over, with the same names. They come after the others in the lists."""

    def before_rows(self) -> list[ir.Statement]:
        return [
            ir.Assign("head", (RANK * K + IN_TILE) * (N + 2)),
            ir.Assign("j0", IN_TILE * N + N0 - Load("lists", HEAD)),
            ir.Assign("count", N1 - N0 - Load("lists", HEAD + 1)),
            ir.Assign("head", HEAD + Load("lists", HEAD + 1)),
        ]

    def in_tile(self, rows: int, batch: int, sizes: SizeArguments) -> Expr:
        return (STEPS * N - ROWS) * sizes.of(rows // batch)
