"""Pointwise kernels for blocks of CUDA threads: a row a block, a feature a lane, a part of a row.

**Pointwise kernels for a block of CUDA threads**: the same nests, whose loops the lanes of the block share out. Which
loops, `lane_nests.py` says. A fold that lanes have parts of ends in shared memory: they fold together what each has
gathered, in one order, and one of them writes it. Where no loop can be shared out (scatters to places that iterations
may share), all lanes go through the nest, and only lane 0 writes.

After each nest the block waits, so that the next one may read what any lane has written. Teams take as many iterations
each, so that all lanes come to each wait: in those past the end they do nothing. Limits: a nest without loops is done
by all lanes alike.

**Pointwise kernels for single features**: the same nests, each lane of a CUDA device going through those of its own. A
lane calls the function for a row and a feature `u`, and does all nests of the program for it, one after another,
without a look at any other lane. Loops along the axis of features take `u, u + P, u + 2P, ...`. What a row has but one
number of is computed by all lanes alike, and written by the one of feature 0.

**Pointwise kernels for a block that has a part of a row**: some iterations of nests of `row_kernels.py`. Of a nest that
parts share out a block does its part of one axis, of others all or nothing (`lane_nests.py`). What all parts compute
each keeps for itself; numbers that others read the first part writes for them.

**Elementwise work that leaves a block's numbers of a product's left side in its shared memory too**. Where blocks share
out the inner axis of a loop's only product, what a block multiplies is what its lanes have just written: the product
then reads it there, and not from L2, 270 cycles away, where products of the tile will find it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rnnops.compiler.codegen.pointwise_kernel import ONE, ZERO, PointwiseWriter
from rnnops.compiler.lower.expressions import INDEX, Expr, Literal, Name, ScalarCall, choice, compare, names_in
from rnnops.compiler.lower.kernel import Assign, Do, If, LaneFold, Parameter, Store
from rnnops.compiler.lower.scan import StepPlan
from rnnops.compiler.lower.statements import FOLDS, Statement
from rnnops.compiler.schedule.loop_nests import Nest
from rnnops.compiler.targets.cuda.lane_nests import EVERY, FIRST, RowNest, Share, share_lanes
from rnnops.compiler.targets.cuda.loop import BY_ROWS, PARTIAL, Loop, feature_axis
from rnnops.kernels.cuda.tiles import fold_name
from rnnops.types import BOOL, INTEGERS

LANE, LANES, MATE, MATES, TEAM, TEAMS = map(Name, ("lane", "lanes", "mate", "mates", "team", "teams"))
FOLDING = {  # who folds: the first of them, how far they are apart, a lane's place among them, how many they are
    "all": (ZERO, ONE, LANE, LANES),
    "team": (LANE - MATE, ONE, MATE, MATES),
    "across": (MATE, MATES, TEAM, TEAMS),
}
SYNC = Do("cuda.syncthreads")
TRUE = Literal(True, dtype="bool")
DTYPES = ("float32", "float64", *INTEGERS, BOOL)
SHARED = {  # what lanes fold in, by name; bools are bytes
    f"shared_{dtype}": Parameter(f"shared_{dtype}", "uint8[]" if dtype == BOOL else f"{dtype}[]") for dtype in DTYPES
}


class BlockPointwiseWriter(PointwiseWriter):
    """Writes the nests of one pointwise kernel for the lanes of a block; each lane calls it for the same row."""

    writes_out = False  # lanes share out loops
    share: Share  # of the nest that is being written
    inside: Expr  # whether a team has an iteration of it

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
        """First and last, not included, of what a block does of a loop."""
        return ZERO, self._size(nest.extents[depth])

    def _finish_register(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        who = self.share.folds(statement)
        if who:
            name, dtype = self.accumulators[id(statement)], self.types[statement.target.owner].dtype
            arguments = (name, LANE, *FOLDING[who], self._scalar(f"shared_{dtype}"))
            self._scalars("lane", *sorted(set().union(*map(names_in, FOLDING[who]))))
            folded = ScalarCall(self._fold_of_lanes(statement), arguments, dtype=name.dtype)
            self.lines.append(Assign(name.name, folded))
        super()._finish_register(statement, depth, needed)

    def _fold_of_lanes(self, statement: Statement) -> str:
        """The function that folds what lanes have gathered, written beside the program where no module has it."""
        name: str = fold_name(statement.fold)
        if statement.fold not in FOLDS:
            name = f"{self.result.name}_fold_{len(self.result.folds)}"
            a, b = Name("a", dtype=statement.dtype), Name("b", dtype=statement.dtype)
            self.result.folds.append(LaneFold(name, self._combined(statement, a, b)))
        return name

    def _write(self, depth: int, line: Store) -> None:
        """A line that writes to memory, for one lane where several would write the same element."""
        share = self.share
        if share.inner is not None and depth > share.inner:
            super()._write(depth, line)
        elif share.outer is not None and depth > share.outer:
            alike = self._scalar("mate" if share.outer == share.teams else "team")
            self.lines.append(If(compare("==", alike, 0), (If(self.inside, (line,)),)))
        elif share.lanes is None and depth > 0:
            self.lines.append(If(compare("==", Name("lane"), 0), (line,)))
        else:  # all lanes have read before one writes, and read again after it
            self.lines += [SYNC, If(compare("==", Name("lane"), 0), (line,)), SYNC]

    def _scalars(self, *names: str) -> tuple[Name, ...]:
        return tuple(map(self._scalar, names))


def _after(first: Expr, place: Expr) -> Expr:
    return place if first == ZERO else first + place


class FeaturePointwiseWriter(PointwiseWriter):
    """Writes a pointwise kernel whose features stand by themselves (`by_features`)."""

    writes_out = False
    period: int  # of features
    written: Collection[str]  # owners that the program writes
    axis: int | None  # of the nest that is being written

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

    def _write(self, depth: int, line: Store) -> None:
        if depth > 0:
            super()._write(depth, line)
        else:
            self.lines.append(If(compare("==", Name("u"), 0), (line,)))


PART = "part"  # the number of a block among those of its row


class PartPointwiseWriter(BlockPointwiseWriter):
    """Writes the nests of a region that several blocks do together for one row."""

    work: Mapping[int, RowNest]  # by the nest's `id`
    private: Collection[str]
    parts: int  # blocks of a row
    bounds: Callable[[int], tuple[Name, Name]]  # of what a block has of an axis of some size
    own: RowNest  # the nest that is being written

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.own = self.work[id(nest)]
        if self.own.axis != FIRST:
            super()._nest(nest, needed)
            return
        outside, self.lines = self.lines, []
        super()._nest(nest, needed)
        self.lines = [*outside, If(self._is_first(), tuple(self.lines))]

    def _shared(self, nest: Nest) -> Share:
        return share_lanes(self.own.part(self.parts))

    def _bounds(self, nest: Nest, depth: int) -> tuple[Expr, Expr]:
        if depth != self.own.axis:
            return super()._bounds(nest, depth)
        first, last = self.bounds(self.own.size)
        self._scalars(first.name, last.name)
        return first, last

    def _write(self, depth: int, line: Store) -> None:
        if self.own.axis != EVERY or line.blob in self.private:
            super()._write(depth, line)
            return
        outside, self.lines = self.lines, []
        super()._write(depth, line)
        self.lines = [*outside, If(self._is_first(), tuple(self.lines))]

    def _is_first(self) -> Expr:
        return compare("==", self._scalar(PART), 0)


class MirroredPointwiseWriter(FeaturePointwiseWriter):
    """Writes a pointwise kernel for single features, and one owner to shared memory as well."""

    mirrored: str  # the owner

    def _write(self, depth: int, line: Store) -> None:
        super()._write(depth, line)
        if line.blob == self.mirrored:
            buffer, first, count = (self._scalar(name) for name in ("own_row", "own_first", "own_count"))
            place = ScalarCall("own_number", (line.index, self._size(self.period), first, count), dtype=INDEX)
            self.lines.append(Store(buffer.name, place, line.value))


def mirrored(loop: Loop, plan: StepPlan, batch: int) -> dict[int, str]:
    """The region whose result goes to shared memory too, and that; empty where the product reads it from memory."""
    numbers = [number for number, region in enumerate(loop.regions) if region.part == PARTIAL]
    if len(loop.products) != 1 or numbers in ([], [0]):
        return {}
    (product,), before = loop.products, loop.regions[numbers[0] - 1]
    writers = [region for region in loop.regions if product.left in region.written]
    lies_so = product.rows == batch and product.offset == 0 and product.row_stride == product.inner
    if before.product or before.period == BY_ROWS or writers != [before] or not lies_so:
        return {}
    return {numbers[0] - 1: product.left} if plan.batch_axes.get(product.left) == 0 else {}
