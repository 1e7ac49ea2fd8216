"""The module of a scan: its kernels, and the driver that runs them over time.

**Write the plan of a scan as a module; a backward pass may run steps of the forward pass again, segment by segment**.
For each row, from the last segment to the first: its states come from the segment's border, all steps run again, which
leaves in scratch what backward reads of them, then all steps run backward. Nothing else of the forward pass was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import prod

import numpy as np

from rnnops.compiler.codegen.addresses import (
    DRIVER_PARAMETERS,
    SCALARS,
    Addresses,
    AllRows,
    LastingRows,
    RowsPastEnd,
    RowsToEnd,
    array_parameters,
    copy_function,
    thread_share,
)
from rnnops.compiler.codegen.pointwise_kernel import PointwiseKernel, PointwiseWriter, SizeArguments, StateWriter
from rnnops.compiler.lower.expressions import (
    Expr,
    Literal,
    Name,
    any_of,
    both,
    choice,
    compare,
    least,
)
from rnnops.compiler.lower.kernel import (
    Array,
    Assign,
    DeviceModule,
    Do,
    For,
    Function,
    If,
    MatrixOperand,
    Module,
    Parameter,
    Pointer,
    Statement as Line,
    Vector,
    shown,
)
from rnnops.compiler.lower.scalar_expressions import Constants
from rnnops.compiler.lower.scan import SUM_PARTS, Scan, StepPlan, rows_of_sum
from rnnops.compiler.lower.statements import Contraction, Node, Stage, Statement, StepProduct, node_reads, node_writes
from rnnops.compiler.schedule.batch_axis import copies, is_row_loop
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.compiler.schedule.places import BorderPlace, Layouts, Place, ResidentPlace
from rnnops.compiler.schedule.products import Packing, packing_of
from rnnops.compiler.targets.python import python_text
from rnnops.ops.linear_algebra import BYTES, INT8
from rnnops.types import BOOL, Type

HEADER_SIZES = ("T", "N", "K", "backwards", "unpacked", "seed", "draw_t0", "active", "first", "carry", "columns")
ROW_ARRAYS = ("order", "ends", "lists")  # the order of rows, their steps in it, and memory for `list_rows`
COLUMNS = 48  # what columns are shared out in: a panel of three vectors of 64 bytes
LINES = 16  # what columns of a sum over a tile are shared out in: a line of float32 numbers, whole vectors
ROWS = 8  # what rows of a tile's products are shared out in: those of a tile of the micro-kernel
AHEAD, LINE, MOST_LINES = 2, 64, 16  # steps that memory is asked for ahead, bytes of a line, lines of a row's numbers
MASKED = 60  # matrices that bits of `unpacked` tell of; the driver packs those whose bit is set, and all others

RANK, THREADS, SHARE, SHARES = map(Name, ("rank", "threads", "share", "shares"))
T, N, K, TILE, STEPS, LOW, STEP, IN_TILE = map(Name, ("T", "N", "K", "tile", "steps", "low", "step", "i"))
N0, N1, R0, R1, LASTING = map(Name, ("n0", "n1", "r0", "r1", "lasting"))
ZERO, ONE, TRUE = Literal(0), Literal(1), Literal(True, dtype=BOOL)
BACKWARDS, BY_COLUMNS = compare("!=", Name("backwards"), 0), compare("!=", Name("columns"), 0)
GOES_ON = any_of(TILE > 0, Name("carry") > 0)  # sums have a start that is not 0
WAIT = Do("wait", (Array("barrier"), THREADS))


@dataclass(frozen=True)
class ScanModule:
    """A generated module, and what its arguments are.

    Args:
        module: as kernel IR.
        sizes: numbers behind those of `HEADER_SIZES`.
        arrays: names of array parameters, in order.
        packed: matrices in the order of their parameters.
        render: makes Python of the module, given the lines that define its constants.
    """

    module: Module | DeviceModule
    constants: Constants
    sizes: tuple[int, ...]
    arrays: tuple[str, ...]
    packed: tuple[Packed, ...]
    render: Callable[..., str] = python_text

    def python(self) -> str:
        """A module of Python that does it: what a CUDA device runs, or what compiled code does."""
        return self.render(self.module, self.constants.lines())

    def shown(self) -> str:
        """The same for people, with names of blobs."""
        return self.render(shown(self.module), self.constants.lines(), for_people=True)


@dataclass(frozen=True)
class Packed:
    """A matrix that products read, packed once a run: `[inner, columns]` of its owner, rounded or not."""

    owner: str
    packing: Packing
    inner: int
    columns: int
    rounding: str = ""

    def dtype_of(self, products: str) -> str:
        """Of its memory, where products have a dtype; rounded numbers lie in words of the size of that."""
        return INT8 if self.rounding in (INT8, BYTES) else products


@dataclass(frozen=True)
class RowsPart:
    """The work on some of the rows."""

    stages: Sequence[Stage]
    places: Mapping[str, Place]
    shares: AllRows

    @cached_property
    def readers(self) -> dict[str, set[int]]:
        """Owner -> ids of the nodes that read it."""
        readers: dict[str, set[int]] = {}
        for node in (node for stage in self.stages for node in stage.nodes):
            for owner in node_reads(node):
                readers.setdefault(owner, set()).add(id(node))
        return readers


@dataclass
class ScanWriter:
    scan: Scan
    plan: StepPlan
    layouts: Layouts
    dtype: str
    constants: Constants = field(default_factory=Constants)
    sizes: SizeArguments = field(default_factory=SizeArguments)
    programs: list[PointwiseKernel] = field(default_factory=list)
    packed: dict[Packed, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)  # of the loop that is being written
    summed: set[str] = field(default_factory=set)  # what the rows before have added to in this tile
    copies: dict[str, str] = field(default_factory=dict)  # dtype -> function that copies numbers
    shared: dict[int, int] = field(default_factory=dict)  # columns of products -> number of the thread's share of them
    starts_at_borders: bool = False  # whether states come from borders, and do not go there
    part: RowsPart = field(init=False)

    def written(self) -> ScanModule:
        """The module."""
        body = self._driver()
        arrays = tuple(self._arrays())
        sizes = *HEADER_SIZES, *(f"c{i}" for i in range(len(self.sizes.values)))
        driver = Function("scan", DRIVER_PARAMETERS, tuple(body))
        copies = [copy_function(name, dtype) for dtype, name in self.copies.items()]
        programs = *(program.function(self.types) for program in self.programs), *copies
        module = Module(self.dtype, programs, driver, arrays, sizes)
        names = tuple(parameter.name for parameter in arrays)
        return ScanModule(module, self.constants, tuple(self.sizes.values), names, tuple(self.packed))

    @property
    def types(self) -> Mapping[str, Type]:
        """The types of the arrays that pointwise kernels are given."""
        return self.plan.types

    def _arrays(self) -> list[Parameter]:
        packed = [Parameter(name, f"{one.dtype_of(self.dtype)}[]") for one, name in self.packed.items()]
        rows = [Parameter(name, "int64[]") for name in ROW_ARRAYS if self.plan.lengths]
        return [*array_parameters(self.scan, self.plan, self.layouts), *packed, *rows]

    # -- the driver ----------------------------------------------------------------------------------------------

    def _driver(self) -> list[Line]:
        rows = N if self.plan.batch_axes else ONE
        together = self._size(rows_of_sum(self.scan.batch)) if self.scan.batch > SUM_PARTS else ONE
        parts = [RowsPart(self.plan.stages, self.layouts.places, self.shares())]
        if self.plan.past_end and not self.plan.rows_outside:  # behind the others, or before them in reverse
            over = RowsPart(self.plan.past_end, self.layouts.past_end, RowsPastEnd())
            parts = [over, *parts] if self.scan.reverse else [*parts, over]
        stages = [line for part in parts for line in self._stages(part)]
        tile = [
            Assign("steps", least(K, T - TILE)),
            Assign("low", choice(BACKWARDS, T - TILE - STEPS, TILE)),
            *parts[0].shares.before_tile(),
            *stages,
        ]
        shares = [*thread_share(("n0", "n1"), RANK, THREADS, rows, together), *self._column_shares(rows)]
        return [*shares, *self._packing(), For("tile", ZERO, T, K, tuple(tile))]

    def _column_shares(self, rows: Expr) -> list[Line]:
        """Who does what in products of a step: rows of its own, or columns of all rows."""
        places = *self.layouts.places.values(), *self.layouts.past_end.values()
        apart = [("apart", ZERO, RANK)] if any(place.apart for place in places) else []
        if not self.shared:
            return [Assign(name, mine) for name, _, mine in apart]
        own = [("m0", ZERO, N0), ("m1", rows, N1), ("share", RANK, ZERO), ("shares", THREADS, ONE), *apart]
        columns = [
            line
            for count, number in self.shared.items()
            for line in thread_share((f"a{number}", f"b{number}"), SHARE, SHARES, self._size(count), Literal(COLUMNS))
        ]
        return [*(Assign(name, choice(BY_COLUMNS, all_rows, mine)) for name, all_rows, mine in own), *columns]

    def _stages(self, part: RowsPart) -> list[Line]:
        """All stages of some rows."""
        self.part, result = part, []
        for stage in part.stages:
            result += self._stage(stage)
            if len(part.stages) > 1 or not stage.loop:
                result.append(WAIT)
        nodes = [node for stage in part.stages for node in stage.nodes]
        self.summed.update(node.target for node in nodes if isinstance(node, Contraction))
        return result

    def _packing(self) -> list[Line]:
        """Each matrix is packed by one of the threads, where it is not packed yet."""
        lines: list[Line] = []
        for i, (packed, name) in enumerate(self.packed.items()):
            array, how = self.layouts.arrays[packed.owner], packed.packing
            rows, columns = (packed.columns, packed.inner) if how.transposed else (packed.inner, packed.columns)
            source = self._matrix(array, self._size(how.start), self._size(rows), how.stride, how.column, columns)
            test = compare("==", RANK, Literal(i) % THREADS)
            if i < MASKED:
                test = both(test, compare("!=", Name("unpacked") >> i & 1, 0))
            pack = "pack_transposed_into" if how.transposed else "pack_into"
            lines.append(If(test, (Do(_of(pack, packed.rounding), (source, Array(name))),)))
        return [*lines, WAIT] if lines else []

    def _stage(self, stage: Stage) -> list[Line]:
        self.lines = []
        if not stage.loop:
            self._whole_tile(stage)
            return self.lines
        if self.plan.rows_outside and is_row_loop(stage):
            return [self._row_loop(stage)]
        self.lines += [
            Assign("i", choice(BACKWARDS, STEPS - 1 - STEP, STEP)),
            Assign("t", LOW + IN_TILE),
            *self.part.shares.before_rows(),
        ]
        for is_row, group in groupby(stage.nodes, key=lambda node: isinstance(node, Statement)):
            nodes = list(group)
            if is_row:
                self._rows([node for node in nodes if isinstance(node, Statement)])
            else:
                self._products([node for node in nodes if isinstance(node, StepProduct)])
        return [For("step", ZERO, STEPS, ONE, tuple(self.lines))]

    def _whole_tile(self, stage: Stage) -> None:
        """Products of all steps of a tile; one waits for another where it needs the complete result of it."""
        written: set[str] = set()
        for node in stage.nodes:
            read = {node.left} if isinstance(node, StepProduct) else {*node_reads(node)} - {node_writes(node)}
            if written & read:
                self.lines.append(WAIT)
                written = set()
            self._batched(node)
            written.add(node_writes(node))

    def shares(self) -> AllRows:
        """How a thread goes through its rows."""
        if not self.plan.lengths:
            return AllRows()
        return RowsToEnd(self._size(self.plan.heads)) if self.plan.rows_outside else LastingRows()

    def _row_loop(self, stage: Stage) -> Line:
        """A loop over rows around one over steps."""
        body = self.steps_of_row(stage, BACKWARDS)
        return self.part.shares.each_row(body)

    def steps_of_row(self, stage: Stage, backwards: Expr, tile: Expr = TILE) -> list[Line]:
        """All steps of a tile of one row; states come before the first and go after the last."""
        first = Assign("i", choice(backwards, STEPS - 1, ZERO)), Assign("t", LOW + IN_TILE)
        residents, borders = self.layouts.residents, self.layouts.borders
        come = [self._copied(state.own, state.read, state) for state in residents]
        come += [self._at_border(state, tile) for state in borders]
        go = [self._copied(state.written, state.own, state) for state in residents]
        return [*(first if come else ()), *come, *self._loops_over_steps(stage, backwards), *go]

    def _loops_over_steps(self, stage: Stage, backwards: Expr) -> list[Line]:
        """The steps that a row lasts, and those past its end, which come first where time runs backwards."""
        if not self.plan.lengths:
            return [self._loop_over_steps(stage, backwards, ZERO, STEPS)]
        lasts = STEPS - LASTING if self.scan.reverse else LASTING
        before, after = (ZERO, lasts), (lasts, STEPS)
        own = self.part
        loop = self._loop_over_steps(stage, backwards, *(after if self.scan.reverse else before))
        self.part = replace(own, stages=self.plan.past_end, places=self.layouts.past_end)
        ends = [replace(one, nodes=tuple(n for n in one.nodes if not self._stays(n))) for one in self.plan.past_end]
        over = before if self.scan.reverse else after
        others = [self._loop_over_steps(one, backwards, *over) for one in ends if one.nodes]
        self.part = own
        return [*others, loop] if self.scan.reverse else [loop, *others]

    def _loop_over_steps(self, stage: Stage, backwards: Expr, first: Expr, last: Expr) -> Line:
        self.lines = []
        self._rows([node for node in stage.nodes if isinstance(node, Statement)])
        (rows,) = self.lines
        assert isinstance(rows, For)
        body = rows.body[len(rows.body) - 1 :]  # the call; which row it is stands outside
        step = Assign("i", choice(backwards, STEPS - 1 - STEP, STEP)), Assign("t", LOW + IN_TILE)
        return For("step", first, last, ONE, (*self._prefetched(stage, backwards), *step, *body))

    def _stays(self, node: Node) -> bool:
        """True if a node copies a state that changes in place onto itself."""
        aliases = self.layouts.aliases
        return isinstance(node, Statement) and copies(node, aliases.get(node.target.owner, ""))

    def _at_border(self, state: BorderPlace, tile: Expr) -> Line:
        """The row of a state before the first step of a tile is kept; where steps run again, it comes from there."""
        border = self._address(state.border, Name("n")) + tile // K * self._size(state.border.step)
        places = [Pointer(state.border.array, border), Pointer(state.read.array, self._address(state.read, Name("n")))]
        ordered = places[::-1] if self.starts_at_borders else places
        return self._copy(ordered, state.size, state.dtype)

    def _copied(self, target: Place, source: Place, state: ResidentPlace) -> Line:
        """A row of a state from one place to another."""
        places = [Pointer(place.array, self._address(place, Name(place.rows))) for place in (target, source)]
        return self._copy(places, state.size, state.dtype)

    def _copy(self, places: Sequence[Pointer], size: int, dtype: str) -> Line:
        self.copies.setdefault(dtype, f"copy_{dtype}")
        return Do(self.copies[dtype], (*places, self._size(size)))

    def _prefetched(self, stage: Stage, backwards: Expr) -> list[Line]:
        """Prefetches a row's numbers of a later step: rows of one step after the other lie far apart."""
        owners = dict.fromkeys(owner for node in stage.nodes for owner in (*node_reads(node), node_writes(node)))
        rows, lines = self.scan.batch * self.plan.heads, list[Line]()
        for owner in owners:
            place, kind = self.part.places.get(owner), self.plan.types[owner]
            line = LINE // np.dtype(kind.dtype).itemsize
            size = prod(kind.shape) // rows
            if place and place.over == "t" and not place.ring and size <= line * MOST_LINES:
                start = self._address(place, Name(place.rows))
                ahead = Do("prefetch", (Pointer(place.array, start + Name("number")),))
                lines.append(For("number", ZERO, self._size(size), Literal(line), (ahead,)))
        then = STEP + AHEAD
        come = Assign("i", choice(backwards, STEPS - 1 - then, then)), Assign("t", LOW + IN_TILE)
        return [If(compare("<", then, STEPS), (*come, *lines))] if lines else []

    def _products(self, nodes: Sequence[StepProduct]) -> None:
        """Products of one step; where threads share out columns, each waits for all that it reads."""
        read: set[str] = set()
        written: set[str] = set()
        self._wait_for_columns()
        for node in nodes:
            if node.left in written or node.target in read:
                self._wait_for_columns()
                read, written = set(), set()
            self._product(node)
            read.add(node.left)
            written.add(node.target)
        self._wait_for_columns()

    def _wait_for_columns(self) -> None:
        if self.part.shares.columns:
            self.lines.append(Do("wait", (Array("barrier"), SHARES)))

    def _rows(self, statements: Sequence[Statement]) -> None:
        own, written = {id(s) for s in statements}, {s.target.owner for s in statements}
        outside = {owner for owner in written if not self.part.readers.get(owner, own) <= own}
        stored = outside | written & {*self.plan.slots, *self.plan.accumulators}
        name, plan = f"rows_{len(self.programs)}", self.plan
        known = name, plan.types, plan.batch_axes, stored, plan.scalars, self.sizes, self.constants
        writer = (StateWriter if plan.large_states else PointwiseWriter)(*known, self.layouts.aliases)
        called = "" if plan.large_states else self.dtype
        program = writer.write(fuse_nests(statements, large_apart=plan.large_states, products=called))
        self.programs.append(program)
        pointed = [self._place(owner) for owner in program.pointers]
        pointers = [Pointer(place.array, self._address(place, Name(place.rows))) for place in pointed]
        scalars = [self._scalar(name) for name in program.scalars]
        self.lines.append(self.part.shares.each_row([Do(name, (*scalars, *pointers, *map(Name, program.sizes)))]))

    def _scalar(self, name: str) -> Expr | Pointer:
        """The argument of a pointwise kernel for a number."""
        if name == "n":
            return Name("n") if self.plan.batch_axes else ZERO
        return SCALARS.get(name, Name(name))

    def _place(self, owner: str) -> Place:
        return self.part.places[owner]

    @cached_property
    def _addresses(self) -> Addresses:
        return Addresses(self.sizes, bool(self.plan.batch_axes))

    def _address(self, place: Place, row: Expr) -> Expr:
        return self._addresses.of_row(place, row)

    def _matrix(self, array: str, start: Expr, rows: Expr, stride: int, offset: int, columns: int) -> MatrixOperand:
        """A matrix whose first number lies `offset` behind the start, in rows of `stride` numbers."""
        column = offset % stride
        if column != offset:
            start = start + self._size(offset - column)
        return MatrixOperand(array, start, rows, self._size(stride), self._size(column), self._size(columns))

    def _product(self, node: StepProduct) -> None:
        """The part of a product of one step that is this thread's: its rows, or columns of all rows."""
        each = node.rows // self.scan.batch if self.plan.batch_axes else node.rows
        rows = self.part.shares.count * self._size(each)
        left, target = self._place(node.left), self._place(node.target)
        start, end = (self._address(place, self.part.shares.firsts[place.rows]) for place in (left, target))
        a = self._matrix(left.array, start, rows, node.row_stride, node.offset, node.inner)
        c = self._matrix(target.array, end, rows, node.columns, 0, node.columns)
        self._multiply(node, a, c, ZERO, rows)

    def _multiply(self, node: StepProduct, a: MatrixOperand, c: MatrixOperand, first: Expr, last: Expr) -> None:
        """Some rows of a product, in the columns that are the thread's: the same wherever there are as many."""
        begin, end = self._size(0), self._size(node.columns)
        if self.part.shares.columns:
            number = self.shared.setdefault(node.columns, len(self.shared))
            begin, end = Name(f"a{number}"), Name(f"b{number}")
        packed, accumulate = Array(self._packed_name(node)), Literal(node.accumulate, dtype=BOOL)
        arguments = a, packed, c, accumulate, self._bias(node), first, last, begin, end
        self.lines.append(Do(_of("gemm_packed", node.rounding), arguments))

    def _batched(self, node: Node) -> None:
        if isinstance(node, StepProduct):
            left, target = self._place(node.left), self._place(node.target)
            rows = self.part.shares.in_tile(node.rows, self.scan.batch, self.sizes)
            a = self._matrix(left.array, self._base(left), rows, node.row_stride, node.offset, node.inner)
            c = self._matrix(target.array, self._base(target), rows, node.columns, 0, node.columns)
            self.lines += thread_share(("r0", "r1"), RANK, THREADS, rows, Literal(ROWS))
            if self.part.shares.columns:
                self.lines.append(If(BY_COLUMNS, (Assign("r0", ZERO), Assign("r1", rows))))
            self._multiply(node, a, c, R0, R1)
        elif isinstance(node, Contraction):
            self._contraction(node)

    def _base(self, place: Place) -> Expr:
        return self._addresses.of_tile(place)

    def _contraction(self, node: Contraction) -> None:
        left, right, target = (self._place(owner) for owner in (node.left, node.right, node.target))
        rows = self.part.shares.in_tile(node.inner, self.scan.batch, self.sizes)
        a = self._matrix(left.array, self._base(left), rows, node.left_stride, node.left_offset, node.rows)
        b = self._matrix(right.array, self._base(right), rows, node.right_stride, node.right_offset, node.columns)
        c = self._matrix(
            target.array, ZERO, self._size(node.rows), node.target_stride, node.target_offset, node.columns
        )
        m, n = self._size(node.rows), self._size(node.columns)
        adds = TRUE if node.target in self.summed else GOES_ON
        if node.columns >= node.rows:
            share, part = thread_share(("r0", "r1"), RANK, THREADS, n, Literal(LINES)), [ZERO, m, R0, R1]
        else:
            share, part = thread_share(("r0", "r1"), RANK, THREADS, m, Literal(ROWS)), [R0, R1, ZERO, n]
        product = Do(_of("gemm_tn", node.rounding), (a, b, c, adds, *part))
        if self.plan.lengths:  # without rows there is nothing to add, but at first zeros must be written
            test = rows > 0 if adds is TRUE else any_of(rows > 0, both(*(compare("==", x, 0) for x in STARTS)))
            self.lines.append(If(test, (*share, product)))
        else:
            self.lines += [*share, product]

    def _packed_name(self, node: StepProduct) -> str:
        packing = packing_of(node.right)
        assert packing is not None
        inner, columns = node.right.layout.shape
        packed = Packed(node.right.owner, packing, inner, columns, node.rounding)
        return self.packed.setdefault(packed, f"packed{len(self.packed)}")

    def _bias(self, node: StepProduct) -> Vector:
        if node.bias is None:
            return Vector(f"w_{self.dtype}", ZERO, ZERO)
        array, offset = self.layouts.arrays[node.bias.owner], node.bias.layout.offset
        return Vector(array, self._size(offset), self._size(node.columns))

    def _size(self, value: int) -> Expr:
        return self.sizes.of(value)


STARTS = TILE, Name("carry")  # 0 where sums begin


def _of(function: str, rounding: str) -> str:
    """The function of the runtime for operands that are rounded so."""
    return f"{function}_{rounding}" if rounding else function


Again = tuple[Scan, StepPlan]  # steps of the forward pass


def write_scan(scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, again: Again | None = None) -> ScanModule:
    """Write a plan as a module."""
    if again is None:
        return ScanWriter(scan, plan, layouts, dtype).written()
    return SegmentWriter(scan, plan, layouts, dtype, again=again).written()


@dataclass
class SegmentWriter(ScanWriter):
    """Writes a backward pass around steps of the forward pass."""

    again: Again | None = None

    @property
    def types(self) -> Mapping[str, Type]:
        return self.plan.types if self.again is None else {**self.again[1].types, **self.plan.types}

    def _driver(self) -> list[Line]:
        assert self.again is not None
        assert self.layouts.again is not None
        (scan, plan), layouts = self.again, self.layouts.again
        ahead = ScanWriter(
            scan, plan, layouts, self.dtype, self.constants, self.sizes, self.programs, copies=self.copies,
            starts_at_borders=True,
        )  # fmt: skip
        ahead.part = RowsPart(plan.stages, layouts.places, ahead.shares())
        self.part = RowsPart(self.plan.stages, self.layouts.places, self.shares())
        back = Name("back")
        up = ahead.steps_of_row(plan.stages[0], compare("==", Name("backwards"), 0), back)
        down = self.steps_of_row(self.plan.stages[0], BACKWARDS)
        together = self.sizes.of(rows_of_sum(self.scan.batch)) if self.scan.batch > SUM_PARTS else ONE
        tile = [
            Assign("back", (T - 1) // K * K - TILE),
            Assign("steps", least(K, T - back)),
            Assign("low", choice(BACKWARDS, back, T - back - STEPS)),
            self.part.shares.each_row([*up, *down]),
        ]
        return [*thread_share(("n0", "n1"), RANK, THREADS, N, together), For("tile", ZERO, T, K, tuple(tile))]
