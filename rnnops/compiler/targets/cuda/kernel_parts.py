"""Kernel IR for the loops of a device: pointwise kernels, products, work past a barrier, reads before it.

**Pointwise kernels for a block of CUDA threads**: the same nests, with loops that the lanes of the block share out.
`lane_nests.py` chooses the loops. If lanes hold parts of a fold, it ends in shared memory: the lanes fold their parts
together, in one order, and one of them writes the result. If no loop can be shared out (scatters to places that
iterations may share), all lanes go through the nest, and only lane 0 writes.

After each nest the block waits, so that the next one may read values that any lane has written. All teams go through
the same number of iterations, so that all lanes come to each wait. In iterations past the end they do nothing. Limits:
in a nest without loops, all lanes do the same.

**Pointwise kernels for single features**: the same nests, each lane of a CUDA device going through those of its own. A
lane calls the function for a row and a feature `u`. It does all nests of the program for them, one after another, and
needs no other lane. Loops along the axis of features take `u, u + P, u + 2P, ...`, where P is the period (`loop.py`).
If a value has only one number for a row, all lanes compute it, and the lane of feature 0 writes it.

**Pointwise kernels for a block that has a part of a row**: some iterations of these nests. If parts share out a nest, a
block does its part of one axis. Other nests it does as a whole or not at all (`lane_nests.py`). Values that all parts
compute stay in memory of each part. The first part also writes those that others read.

**Copies of results in shared memory**: elementwise work may store a block's numbers of a product's left side there,
too. It does so if blocks share out the inner axis of a loop's only product. A block then multiplies the numbers that
its lanes have just written. The product reads them from shared memory instead of from L2, which is 270 cycles away.
Products of a whole tile read the numbers in memory.

**Products**: those whose inner axis blocks share out, and those that the driver starts: of a whole tile, or of a step
if weights leave the chip. Products that do not depend on each other are started together (`loop.py`).

**Deferred elementwise work**: values that only sums over steps, and products of a tile, will read. A region before a
wait is split in two. Values that products of this step or later steps read are computed before the block signals its
arrival. The rest is computed between that and the wait, when lanes would be idle. LSTM's gradient of a bias is such
work: each lane adds to numbers in memory, one after another. A block may do it while others are past the wait, because
it reads nothing that another region of the loop changes. Limits: this is only for work feature by feature, with all
operands in memory anyway. Between the region and the wait there may be only products that make partial sums.

**Early reads**: while blocks wait, they fetch values that they will read between this wait and the next one. No block
writes these values in the loop. They are preactivations that a product is added to, and kept values of the forward pass
that elementwise work after the wait reads, in this step or the next one. They lie in memory behind L2. Limits: rows of
such a blob must lie one after another, with a whole number of features in each. Values that are the same at every step
are in L2 already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rnnops.compiler.codegen.places import Addresses, Layouts, Place
from rnnops.compiler.codegen.pointwise_kernel import ONE, ZERO, PointwiseWriter, SizeArguments
from rnnops.compiler.codegen.scan_module import BACKWARDS, GOES_ON, LOW, STEP, STEPS, TRUE
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import INDEX, Expr, Literal, Name, ScalarCall, choice, compare, names_in
from rnnops.compiler.lower.scan import Scan, StepPlan
from rnnops.compiler.lower.statements import FOLDS, Contraction, Node, Statement, StepProduct, node_reads, node_writes
from rnnops.compiler.schedule.loop_nests import Nest
from rnnops.compiler.targets.cuda.lane_nests import EVERY, FIRST, RowNest, Share, remainder, share_lanes
from rnnops.compiler.targets.cuda.loop import (
    BY_ROWS,
    PARTIAL,
    Loop,
    LoopRegion,
    apart,
    by_features,
    feature_axis,
    numbers_of,
)
from rnnops.kernels.cuda.lane_functions import fold_name
from rnnops.kernels.cuda.step_product import TILE, PartialSums, padded, staged_width
from rnnops.types import BOOL, INTEGERS

LANE, LANES, MATE, MATES, TEAM, TEAMS = map(Name, ("lane", "lanes", "mate", "mates", "team", "teams"))
FOLDING = {  # lanes that fold together -> the first of them, their distance, this lane's place among them, their count
    "all": (ZERO, ONE, LANE, LANES),
    "team": (LANE - MATE, ONE, MATE, MATES),
    "across": (MATE, MATES, TEAM, TEAMS),
}
SYNC = ir.Do("cuda.syncthreads")
DTYPES = ("float32", "float64", *INTEGERS, BOOL)
SHARED = {  # shared memory in which lanes fold, by name; bools are bytes
    f"shared_{dtype}": ir.Parameter(f"shared_{dtype}", "uint8[]" if dtype == BOOL else f"{dtype}[]") for dtype in DTYPES
}


class BlockPointwiseWriter(PointwiseWriter):
    """Writes the nests of one pointwise kernel for the lanes of a block. All lanes call it for the same row."""

    writes_out = False  # lanes share out loops
    share: Share  # the share of the nest that is being written
    inside: Expr  # true if a team has an iteration of this nest

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.share, self.inside = self._shared(nest), TRUE
        self._scalars("lane", "lanes")
        super()._nest(nest, needed)
        self.lines.append(SYNC)

    def _range(self, nest: Nest, depth: int) -> tuple[Expr, Expr, Expr]:
        (first, last), share = self._bounds(nest, depth), self.share
        if depth not in (share.lanes, share.teams):
            return first, last, ONE
        if share.teams is None:
            own, count = self._scalars("lane", "lanes")
            return _after(first, own), last, count
        own, count = self._scalars("team", "teams") if depth == share.teams else self._scalars("mate", "mates")
        if depth == share.inner:
            return choice(self.inside, _after(first, own), last), last, count
        self.inside = Name(f"i{depth}") < last
        return _after(first, own), own + last, count

    def _shared(self, nest: Nest) -> Share:
        """How lanes share out a nest."""
        return share_lanes(nest)

    def _bounds(self, nest: Nest, depth: int) -> tuple[Expr, Expr]:
        """The range of a loop that a block does, without its end."""
        return ZERO, self._size(nest.extents[depth])

    def _finish_register(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        who = self.share.folds(statement)
        if who:
            name, dtype = self.accumulators[id(statement)], self.types[statement.target.owner].dtype
            arguments = (name, LANE, *FOLDING[who], self._scalar(f"shared_{dtype}"))
            self._scalars("lane", *sorted(set().union(*map(names_in, FOLDING[who]))))
            folded = ScalarCall(self._fold_of_lanes(statement), arguments, dtype=name.dtype)
            self.lines.append(ir.Assign(name.name, folded))
        super()._finish_register(statement, depth, needed)

    def _fold_of_lanes(self, statement: Statement) -> str:
        """The function that folds the lanes' parts. A fold that not all modules have is added to the kernel."""
        name: str = fold_name(statement.fold)
        if statement.fold not in FOLDS:
            name = f"{self.result.name}_fold_{len(self.result.folds)}"
            a, b = Name("a", dtype=statement.dtype), Name("b", dtype=statement.dtype)
            self.result.folds.append(ir.LaneFold(name, self._combined(statement, a, b)))
        return name

    def _write(self, depth: int, line: ir.Store) -> None:
        """Add a store. If several lanes would write the same element, only one of them does."""
        share = self.share
        if share.inner is not None and depth > share.inner:
            super()._write(depth, line)
        elif share.outer is not None and depth > share.outer:
            alike = self._scalar("mate" if share.outer == share.teams else "team")
            self.lines.append(ir.If(compare("==", alike, 0), (ir.If(self.inside, (line,)),)))
        elif share.lanes is None and depth > 0:
            self.lines.append(ir.If(compare("==", Name("lane"), 0), (line,)))
        else:  # all lanes have read before one writes, and read again after it
            self.lines += [SYNC, ir.If(compare("==", Name("lane"), 0), (line,)), SYNC]

    def _scalars(self, *names: str) -> tuple[Name, ...]:
        return tuple(map(self._scalar, names))


def _after(first: Expr, place: Expr) -> Expr:
    return place if first == ZERO else first + place


class FeaturePointwiseWriter(PointwiseWriter):
    """Writes a pointwise kernel whose features are independent (`by_features`)."""

    writes_out = False
    period: int  # the period of features
    written: Collection[str]  # owners that the kernel writes, without those that have one number for a row
    axis: int | None  # the axis of features of the nest that is being written

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.axis = feature_axis(nest, self.written, self.period)
        self._scalar("u")
        super()._nest(nest, needed)

    def _range(self, nest: Nest, depth: int) -> tuple[Expr, Expr, Expr]:
        if depth != self.axis:
            return super()._range(nest, depth)
        size, own = nest.extents[depth], Name("u")
        if size == self.period:
            return own, own + 1, Literal(1)
        return own, self._size(size), self._size(self.period)

    def _write(self, depth: int, line: ir.Store) -> None:
        if depth > 0:
            super()._write(depth, line)
        else:
            self.lines.append(ir.If(compare("==", Name("u"), 0), (line,)))


PART = "part"  # the number of a block among those of its row


class PartPointwiseWriter(BlockPointwiseWriter):
    """Writes the nests of a region that several blocks do together for one row.

    Args:
        work: `id` of a nest -> the nest's share.
        private: owners that each block has for itself.
        parts: blocks of a row.
        bounds: size of an axis -> the range of it that a block has.
        own: the nest that is being written.
    """

    work: Mapping[int, RowNest]
    private: Collection[str]
    parts: int
    bounds: Callable[[int], tuple[Name, Name]]
    own: RowNest

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.own = self.work[id(nest)]
        if self.own.axis != FIRST:
            super()._nest(nest, needed)
            return
        outside, self.lines = self.lines, []
        super()._nest(nest, needed)
        self.lines = [*outside, ir.If(self._is_first(), tuple(self.lines))]

    def _shared(self, nest: Nest) -> Share:
        return share_lanes(self.own.part(self.parts))

    def _bounds(self, nest: Nest, depth: int) -> tuple[Expr, Expr]:
        if depth != self.own.axis:
            return super()._bounds(nest, depth)
        first, last = self.bounds(self.own.size)
        self._scalars(first.name, last.name)
        return first, last

    def _write(self, depth: int, line: ir.Store) -> None:
        if self.own.axis != EVERY or line.blob in self.private:
            super()._write(depth, line)
            return
        outside, self.lines = self.lines, []
        super()._write(depth, line)
        self.lines = [*outside, ir.If(self._is_first(), tuple(self.lines))]

    def _is_first(self) -> Expr:
        return compare("==", self._scalar(PART), 0)


class MirroredPointwiseWriter(FeaturePointwiseWriter):
    """Writes a pointwise kernel for single features. It stores the owner `mirrored` in shared memory as well."""

    mirrored: str

    def _write(self, depth: int, line: ir.Store) -> None:
        super()._write(depth, line)
        if line.blob == self.mirrored:
            buffer, first, count = (self._scalar(name) for name in ("own_row", "own_first", "own_count"))
            place = ScalarCall("own_number", (line.index, self._size(self.period), first, count), dtype=INDEX)
            self.lines.append(ir.Store(buffer.name, place, line.value))


def mirrored(loop: Loop, plan: StepPlan, batch: int) -> dict[int, str]:
    """Number of a region -> the owner that it also stores in shared memory, where the next product reads it.

    Empty if the product reads its left side from memory.
    """
    numbers = [number for number, region in enumerate(loop.regions) if region.part == PARTIAL]
    if len(loop.products) != 1 or numbers in ([], [0]):
        return {}
    (product,), before = loop.products, loop.regions[numbers[0] - 1]
    writers = [region for region in loop.regions if product.left in region.written]
    lies_so = product.rows == batch and product.offset == 0 and product.row_stride == product.inner
    if before.product or before.period == BY_ROWS or writers != [before] or not lies_so:
        return {}
    return {numbers[0] - 1: product.left} if plan.batch_axes.get(product.left) == 0 else {}


GROUP, MEMBER = Name("group"), Name("member")


@dataclass(frozen=True)
class SplitLines:
    """Writes lines of a kernel for products whose inner axis blocks share out.

    Args:
        rows: of the batch.
        scratch: the array in which partial sums lie.
        size: writes a number of the plan.
        features: first and last feature of a member, for a period.
    """

    loop: Loop
    rows: int
    scratch: str
    size: Callable[[int], Expr]
    features: Callable[[int], tuple[Name, Name]]

    def load(self, node: StepProduct, period: int, weights: str, place: int) -> ir.Do:
        """Load a block's rows of the weights into shared memory."""
        layout, size = node.right.layout, self.size
        where = tuple(map(size, (layout.offset, *layout.strides, node.inner, node.columns, period)))
        members, width = size(self.loop.members), size(self._sums(node, period).width)
        kept = ir.Pointer("kept", size(place))
        return ir.Do("load_rows", (ir.Array(weights), *where, members, width, *self.features(period), kept))

    def clear(self, node: StepProduct, period: int) -> ir.Do:
        """Clear the shared memory for a block's numbers of a left side."""
        rows = padded(self.loop.sharing(self.rows).rows_of(node))
        return ir.Do("clear_own", (self._shared(self.loop.staged), self.size(rows * self._pitch(node, period))))

    def own_row(self, number: int, row: Expr) -> dict[str, ir.Argument]:
        """Name in kernels -> argument: the place of a row of the left side of region `number`, and its features."""
        node, period = self._region(number)
        first, last = self.features(period)
        place = ir.Pointer("shared", self.size(self.loop.staged) + row * self.size(self._pitch(node, period)))
        return {"own_row": place, "own_first": first, "own_count": last - first}

    def partial(self, number: int, left: str, first: Expr, rows: Expr, place: int, there: bool) -> ir.Do:
        """Compute the partial sums of region `number`.

        Args:
            left: the array in which the left side lies, from `first` on.
            place: of the weights in shared memory.
            there: whether a block's numbers of the left side are in shared memory already.
        """
        node, period = self._region(number)
        size = self.size
        a = ir.Array(left), first + size(node.offset), size(node.row_stride), rows, size(node.inner)
        kept, staged, sums = (
            ir.Pointer("kept", size(place)),
            self._shared(self.loop.staged),
            self._shared(self.loop.sums),
        )
        chip = kept, staged, size(self._pitch(node, period)), Literal(there, dtype="bool"), sums
        shape, own = self._shape(node, period), self.features(period)
        return ir.Do("partial_product", (*a, *chip, *self._partials(number), *shape, size(period), *own))

    def total(self, number: int, target: tuple[ir.Array, Expr], rows: Expr, bias: tuple[ir.Array, Expr]) -> ir.Do:
        """Compute the totals of partial sums, in region `number`."""
        node, period = self._region(number)
        size, sums = self.size, self._shared(self.loop.sums)
        array, start = self._partials(number)
        partials: tuple[ir.Argument, ...] = (array, start, rows, *self._shape(node, period))
        c = *target, size(node.columns), size(period), *self.features(period)
        return ir.Do("add_partials", (*partials, sums, *c, Literal(node.accumulate, dtype="bool"), *bias))

    def _pitch(self, node: StepProduct, period: int) -> int:
        pitch: int = staged_width(node.inner, period, self.loop.members) + TILE
        return pitch

    def _shared(self, place: int) -> ir.Pointer:
        return ir.Pointer("shared", self.size(place))

    def _region(self, number: int) -> tuple[StepProduct, int]:
        region = self.loop.regions[number]
        assert region.product is not None
        return region.product, region.period

    def _sums(self, node: StepProduct, period: int) -> PartialSums:
        return self.loop.sharing(self.rows).sums_of(node, period)

    def _shape(self, node: StepProduct, period: int) -> tuple[Expr, ...]:
        sums = self._sums(node, period)
        return self.size(sums.height), self.size(sums.width), MEMBER, self.size(self.loop.members)

    def _partials(self, number: int) -> tuple[ir.Array, Expr]:
        """The place of a group's partial sums at a step. Steps use copies in turn."""
        node, period = self._region(number)
        splits = [region.nodes for region in self.loop.regions if region.part == PARTIAL]
        start = self.loop.scratch + self.loop.partials[splits.index(self.loop.regions[number].nodes)]
        part: Expr = GROUP
        if self.loop.copies > 1:
            turn = remainder(STEP, self.size(self.loop.copies))
            part = turn * self.size(self.loop.groups) + GROUP
        return ir.Array(self.scratch), self.size(start) + part * self.size(self._sums(node, period).of_group)


@dataclass
class DriverProducts:
    """Writes the products that a driver launches.

    Args:
        has_rows: whether blobs of a step have an axis of the batch.
        summed: owners that earlier products have added to in this tile.
    """

    layouts: Layouts
    sizes: SizeArguments
    has_rows: bool
    summed: set[str] = field(default_factory=set)

    def of_tile(self, nodes: Sequence[Node]) -> list[ir.Statement]:
        """Products of all steps of a tile."""
        lines: list[ir.Statement] = [ir.Do("on.multiply", tuple(map(self._of_tile, some))) for some in apart(nodes)]
        self.summed.update(node.target for node in nodes if isinstance(node, Contraction))
        return lines

    def of_step(self, nodes: Sequence[Node]) -> list[ir.Statement]:
        """Products of the current step."""
        return [ir.Do("on.multiply", tuple(map(self._of_step, some))) for some in apart(nodes)]

    def bias(self, node: StepProduct) -> tuple[str, Expr]:
        """The array of a product's bias, and the bias's place in it. Without a bias: the target's array and -1."""
        if not node.bias:
            return self._place(node.target).array, Literal(-1)
        return self.layouts.arrays[node.bias.owner], self.sizes.of(node.bias.layout.offset)

    def _of_step(self, node: StepProduct | Contraction) -> ir.MatrixProduct:
        assert isinstance(node, StepProduct)
        left, target = (self._addresses.of_row(self._place(owner), ZERO) for owner in (node.left, node.target))
        return self._product(node, left, target, self.sizes.of(node.rows))

    def _of_tile(self, node: StepProduct | Contraction) -> ir.MatrixProduct:
        if isinstance(node, Contraction):
            return self._contraction(node)
        left, target = (self._base(self._place(owner)) for owner in (node.left, node.target))
        return self._product(node, left, target, STEPS * self.sizes.of(node.rows))

    def _product(self, node: StepProduct, left: Expr, target: Expr, rows: Expr) -> ir.MatrixProduct:
        layout, size = node.right.layout, self.sizes.of
        a = ir.StridedMatrix(self._place(node.left).array, left + size(node.offset), size(node.row_stride), ONE)
        weights = self.layouts.arrays[node.right.owner]
        b = ir.StridedMatrix(weights, size(layout.offset), size(layout.strides[0]), size(layout.strides[1]))
        c = ir.StridedMatrix(self._place(node.target).array, target, size(node.columns), ONE)
        bias = self.bias(node) if node.bias else None
        adds = Literal(node.accumulate, dtype="bool")
        return ir.MatrixProduct(a, b, c, (rows, size(node.columns), size(node.inner)), adds, bias, node.rounding)

    def _contraction(self, node: Contraction) -> ir.MatrixProduct:
        size = self.sizes.of
        left, right, target = (self._place(owner) for owner in (node.left, node.right, node.target))
        a = ir.StridedMatrix(left.array, self._base(left) + size(node.left_offset), ONE, size(node.left_stride))
        b = ir.StridedMatrix(right.array, self._base(right) + size(node.right_offset), size(node.right_stride), ONE)
        c = ir.StridedMatrix(target.array, size(node.target_offset), size(node.target_stride), ONE)
        adds = TRUE if node.target in self.summed else GOES_ON
        sizes = size(node.rows), size(node.columns), STEPS * size(node.inner)
        return ir.MatrixProduct(a, b, c, sizes, adds, rounding=node.rounding)

    def _place(self, owner: str) -> Place:
        return self.layouts.places[owner]

    def _base(self, place: Place) -> Expr:
        return self._addresses.of_tile(place)

    @cached_property
    def _addresses(self) -> Addresses:
        return Addresses(self.sizes, self.has_rows)


def deferred(loop: Loop, plan: StepPlan, number: int) -> tuple[LoopRegion, LoopRegion | None]:
    """Region `number` in two parts: work to do first, and work to do while blocks wait. The second may be None."""
    region = loop.regions[number]
    if region.period == BY_ROWS or not region.statements or not _waits_next(loop, number):
        return region, None
    owners = _owners(loop, plan, region)
    late = [s for s in region.statements if s.target.owner in owners]
    early = [s for s in region.statements if s.target.owner not in owners]
    if not late or not early or not all(by_features(part, plan, region.period) for part in (early, late)):
        return region, None
    return replace(region, nodes=tuple(early)), replace(region, nodes=tuple(late))


def _waits_next(loop: Loop, number: int) -> bool:
    """True if nothing but partial sums comes between a region and the next wait of the same step."""
    following = loop.regions[number + 1 :]
    for i, region in enumerate(following, number + 1):
        if i in loop.waits:
            return loop.persistent
        if region.part != PARTIAL:
            return False
    return False


def _owners(loop: Loop, plan: StepPlan, region: LoopRegion) -> set[str]:
    """Owners that may be written late: in the loop only late work reads them."""
    others = [node for one in loop.regions if one.nodes != region.nodes for node in one.nodes]
    needed = {owner for node in others for owner in node_reads(node)}
    numbers, read = numbers_of(region.statements, plan), _tensors([*others, *region.nodes], plan, node_reads)
    found = {
        owner
        for owner in region.written - needed - numbers
        if owner in plan.accumulators or owner not in plan.slots or plan.slots[owner].tensor not in read
    }
    in_memory = {*needed, *plan.slots, *plan.accumulators, *plan.invariant}
    changed = _tensors(others, plan, lambda node: [node_writes(node)]) | {node_writes(node) for node in others}
    while True:
        early = [s for s in region.statements if s.target.owner not in found]
        wrong = {owner for statement in early for owner in _operands(statement)}
        for statement in region.statements:
            there = set(_operands(statement)) <= found | in_memory
            if not there or not _is_own(statement, changed, region, plan):
                wrong.add(statement.target.owner)
        if not found & wrong:
            return found
        found -= wrong


def _operands(statement: Statement) -> list[str]:
    return [owner for owner in node_reads(statement) if owner != statement.target.owner]


def _tensors(nodes: Sequence[Node], plan: StepPlan, touched: Callable[[Node], list[str]]) -> set[object]:
    """Tensors that nodes read, or write."""
    return {plan.slots[owner].tensor for node in nodes for owner in touched(node) if owner in plan.slots}


def _is_own(statement: Statement, changed: Collection[object], region: LoopRegion, plan: StepPlan) -> bool:
    """True if no other node changes a value that a statement reads. Other blocks may be past the wait by then."""
    for access in statement.reads():
        slot = plan.slots.get(access.owner)
        tensor = slot.tensor if slot else access.owner
        if tensor in changed or (slot and access.owner not in region.written and _is_written(tensor, region, plan)):
            return False
    return True


def _is_written(tensor: object, region: LoopRegion, plan: StepPlan) -> bool:
    return any(owner in plan.slots and plan.slots[owner].tensor == tensor for owner in region.written)


M0, M1, N0, N1 = map(Name, ("m0", "m1", "n0", "n1"))


def step_of_tile(step: Expr) -> tuple[ir.Statement, ir.Statement]:
    """Statements that set the numbers of a step: `i` within its tile, and `t` among all steps."""
    return ir.Assign("i", choice(BACKWARDS, STEPS - 1 - step, step)), ir.Assign("t", LOW + Name("i"))


@dataclass(frozen=True)
class FetchLines:
    """Writes the early reads of a kernel.

    Args:
        size: writes a number of the plan.
        address: writes the address of a row of a place at a step.
        features: first and last feature of a member, for a period.
    """

    scan: Scan
    plan: StepPlan
    layouts: Layouts
    loop: Loop
    size: Callable[[int], Expr]
    address: Callable[[Place, Expr], Expr]
    features: Callable[[int], tuple[Name, Name]]

    def before(self, number: int) -> list[ir.Statement]:
        """The statements for the time in which blocks wait before region `number`."""
        regions, waits = self.loop.regions, sorted(self.loop.waits)
        later = [wait for wait in waits if wait > number]
        lines = list(self._of(regions[number : later[0] if later else None]))
        following = [] if later else list(self._of(regions[: waits[0]]))
        if following:
            there = compare("<", STEP + 1, Name("end"))
            lines.append(ir.If(there, (*step_of_tile(STEP + 1), *following, *step_of_tile(STEP))))
        return lines

    def _of(self, regions: Sequence[LoopRegion]) -> Iterator[ir.Statement]:
        for owner, period in self._owners(regions).items():
            place, own = self.layouts.places[owner], self.features(period) if period else None
            width = self.size(place.row)
            first, last = (M0, M1) if own else (N0, N1)
            share = (self.size(period), *own) if own else (width, Literal(0), width)
            where = ir.Array(place.array), self.address(place, first), last - first, width
            yield ir.Do("fetch_columns", (*where, *share))

    def _owners(self, regions: Sequence[LoopRegion]) -> dict[str, int]:
        """Distant owner that regions read -> the period with which a block reads it. A tensor has one owner here."""
        found: dict[str, int] = {}
        newest: dict[object, str] = {}
        for region in regions:
            for owner in dict.fromkeys(owner for node in region.nodes for owner in node_reads(node)):
                if not self._is_far(owner, region):
                    continue
                slot = self.plan.slots.get(owner)
                tensor = slot.tensor if slot else owner
                known = newest.setdefault(tensor, owner)
                if known != owner and self._is_newer(owner, known):
                    found.pop(known, None)
                    newest[tensor] = owner
                if newest[tensor] == owner:
                    found[owner] = region.period
        return found

    def _is_newer(self, owner: str, other: str) -> bool:
        """True if an owner is of a newer step than another in the same tensor. No earlier step has read that one."""
        shift, known = (self.plan.slots[name].shift for name in (owner, other))
        return shift < known if self.scan.reverse else shift > known

    def _is_far(self, owner: str, region: LoopRegion) -> bool:
        place = self.layouts.places.get(owner)
        if place is None or self.plan.batch_axes.get(owner) != 0 or owner in self.plan.invariant:
            return False
        if not place.row or place.together > 1 or (region.period != BY_ROWS and place.row % region.period):
            return False
        product = region.product
        if product and (owner != product.target or product.rows != self.scan.batch):
            return False
        lasting = owner in self.plan.slots or place.extent == "tile"
        return lasting and not self._is_written(owner, region)

    def _is_written(self, owner: str, region: LoopRegion) -> bool:
        """True if a step writes an owner. A product that adds to it does not count."""
        slot = self.plan.slots.get(owner)
        others = {name for one in self.loop.regions if one.nodes != region.nodes for name in one.written}
        others |= set() if region.product else region.written
        tensors = {self.plan.slots[name].tensor for name in others if name in self.plan.slots}
        return owner in others or (slot is not None and slot.tensor in tensors)
