"""Rows that several blocks share, and steps at which all rows of a group are finished.

**Steps at which all rows of a group of blocks are over**: the group skips products and waits, and does the rest of the
step. The rest is the step simplified for rows that are over (`schedule/rows.py`): states stay or are zeros, and
gradients go on. Values for the backward pass are computed as always, because groups may have other rows there. Only
elementwise work is left, in which blocks own the same elements as at other steps, so that no block waits. Between the
two kinds of steps a group waits once.

Limits: if a product or a wait is left in such a step, as in attention whose context goes on, no group skips anything. A
group with one row that is not over does the whole step for all its rows.

**Rows that several blocks share**: work that goes row by row, in a group with more blocks than rows. Nests of a row's
work are shared out along an axis, with a part for each block of the row. So all blocks of a group read an encoder at
once. A wait comes between two nests if one reads values that other parts have written. Some small nests have results
that all parts need (a softmax over the positions of an encoder). All parts do these nests, each for itself, if that
costs less than waiting. Of results that outlast the step, each then writes its part. A count of successive accesses and
of waits decides which nests these are. Rows stay with one block each unless added waits save over twice their cost.

So attention has its energies by positions, its softmax in all parts and its context by features. That takes one more
wait a step.

Limits: if several rows add to one sum (in batches above 64), each row stays with one block. So does work without rows.
A fold over all of a row is done by all parts alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from rnnops.compiler.codegen.pointwise_kernel import ONE, ZERO
from rnnops.compiler.codegen.scan_module import BACKWARDS, LOW, STEP, STEPS
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import CastExpr, Expr, Load, Name, any_of, both, choice, compare, least, most
from rnnops.compiler.lower.scan import Scan, StepPlan, live_nodes, rows_of_sum
from rnnops.compiler.lower.statements import (
    Access,
    Layout,
    Node,
    Stage,
    Statement,
    StepProduct,
    dense,
    node_reads,
    node_writes,
)
from rnnops.compiler.schedule.loop_nests import Nest, fuse_nests
from rnnops.compiler.schedule.rows import lengths_of, simplify_rows
from rnnops.compiler.targets.cuda import lane_nests
from rnnops.compiler.targets.cuda.loop import (
    BY_ROWS,
    Loop,
    LoopRegion,
    is_number,
    numbers_of,
    place_barriers,
    regions_of,
    shared_by_rows,
)
from rnnops.compiler.targets.cuda.share_blocks import Blocks
from rnnops.kernels.cuda.facade import choose

BEGIN, END, GROUP_BEGIN, GROUP_END, LONGEST = map(Name, ("begin", "end", "group_begin", "group_end", "longest"))
FIRST_STEP, ROW, M0, M1 = map(Name, ("first", "n", "m0", "m1"))


def let_finished_rows_leave(scan: Scan, plan: StepPlan, number: int, loop: Loop) -> Loop:
    """The loop with a group's work at a step when its rows are over, if that is less than the whole step.

    Args:
        number: of the loop's stage.
    """
    if scan.timestep is None or not plan.batch_axes or not (loop.persistent and loop.waits and loop.products):
        return loop
    for lengths in lengths_of(scan):
        nodes = _left(scan, plan, number, lengths)
        if nodes is None or not all(isinstance(node, Statement) for node in nodes):
            continue
        regions = _regions(plan, number, loop, nodes)
        apart = not any(shared_by_rows(region.written, plan) for region in regions)
        if apart and not place_barriers(scan, plan, regions):
            return replace(loop, lengths=lengths, over=regions)
    return loop


def _left(scan: Scan, plan: StepPlan, number: int, lengths: str) -> list[Node] | None:
    """The nodes of a loop that are needed for rows that are over: for values that last, that other stages read, or that
    are checked. None if earlier stages are not simplified alike."""
    assert scan.timestep is not None
    before, through = (
        simplify_rows(replace(plan, stages=plan.stages[:count]), lengths, scan.timestep, True)
        for count in (number, number + 1)
    )
    if through[: len(before)] != before:
        return None
    stage = plan.stages[number].nodes
    others = [node for i, other in enumerate(plan.stages) if i != number for node in other.nodes]
    checked = [node.target.owner for node in stage if isinstance(node, Statement) and node.may_fail()]
    read = [owner for node in others for owner in node_reads(node)]
    nodes = [_without_product(node, plan, through) for node in through[len(before) :]]
    return live_nodes(nodes, [*plan.slots, *plan.accumulators, *read, *checked])


def _without_product(node: Node, plan: StepPlan, nodes: Sequence[Node]) -> Node:
    """The bias in place of a product of zeros that adds one. Other nodes stay."""
    if not isinstance(node, StepProduct) or node.bias is None or node.accumulate:
        return node
    kind, size = plan.types[node.target], node.bias.layout
    writers = [other for other in nodes if node_writes(other) == node.left]
    if kind.shape != (node.rows, node.columns) or not writers or not all(map(_is_zeros, writers)):
        return node
    bias = replace(node.bias, layout=Layout(size.offset, kind.shape, (0, size.strides[-1])))
    target, row = Access(node.target, dense(kind.shape)), plan.batch_axes.get(node.target)
    return Statement(node.blob, kind.shape, target, (bias,), "copy", None, kind.dtype, row_axis=row)


def _is_zeros(node: Node) -> bool:
    return isinstance(node, Statement) and node.form == "copy" and node.operands == (0,) and not node.fold


def _regions(plan: StepPlan, number: int, loop: Loop, nodes: Sequence[Node]) -> tuple[LoopRegion, ...]:
    """The regions of nodes. If several blocks share a row, only the first of them does its work."""
    stage = Stage(tuple(nodes), True, plan.stages[number].cyclic)
    regions = regions_of(stage, plan, loop.period)
    if loop.parts == 1:
        return tuple(regions)
    private = frozenset[str]().union(*(region.private for region in loop.regions))
    by_rows = (region.period == BY_ROWS or region.written & private for region in regions)
    return tuple(_of_first(region, private) if rows else region for region, rows in zip(regions, by_rows, strict=True))


def _of_first(region: LoopRegion, private: frozenset[str]) -> LoopRegion:
    """The region as work of the first block of each row.

    Args:
        private: owners that each block of a row has for itself at other steps.
    """
    nests = fuse_nests(region.statements, folds_last=True)
    work = tuple(lane_nests.RowNest(nest, lane_nests.FIRST) for nest in nests)
    return LoopRegion(region.nodes, BY_ROWS, work=work, private=private & region.written)


# -- lines of a kernel ------------------------------------------------------------------------------------------------


def steps_of_group(lengths: Load) -> list[ir.Statement]:
    """Statements that set the range of steps at which some row of a group is not over.

    Args:
        lengths: the length of row `n`.
    """
    longer = ir.Assign(LONGEST.name, most(LONGEST, CastExpr(lengths, dtype=ROW.dtype) - FIRST_STEP))
    begin = least(END, most(BEGIN, LOW + STEPS - LONGEST))
    end = least(END, most(BEGIN, LONGEST - LOW))
    return [
        ir.Assign(LONGEST.name, ZERO),
        ir.For(ROW.name, M0, M1, ONE, (longer,)),
        ir.Assign(GROUP_BEGIN.name, choice(BACKWARDS, begin, BEGIN)),
        ir.Assign(GROUP_END.name, choice(BACKWARDS, END, end)),
    ]


def first_wait() -> Expr:
    """1 if a group waits once before its first step with waits, else 0."""
    return choice(GROUP_BEGIN > BEGIN, ONE, ZERO)


def two_kinds(
    steps: Sequence[ir.Statement], over: Sequence[ir.Statement], wait: Sequence[ir.Statement]
) -> list[ir.Statement]:
    """A step of either kind: the whole step, or the rest for rows that are over. A group waits where the kind changes.

    Args:
        steps: the whole step.
        over: the rest.
        wait: statements that wait for the other blocks of the group.
    """
    inside = both(compare(">=", STEP, GROUP_BEGIN), STEP < GROUP_END)
    outside = any_of(STEP < GROUP_BEGIN, compare(">=", STEP, GROUP_END))
    starts = both(compare("==", STEP, GROUP_BEGIN), GROUP_BEGIN > BEGIN)
    stops = both(compare("==", STEP, GROUP_END), GROUP_END > GROUP_BEGIN)
    return [ir.If(inside, (ir.If(starts, tuple(wait)), *steps)), ir.If(outside, (ir.If(stops, tuple(wait)), *over))]


WAIT: int = choose(64, 20)  # accesses of a lane, one after another, that take as long as a wait of a group


def share_rows(
    scan: Scan, plan: StepPlan, loops: Mapping[int, Loop], blocks: Blocks
) -> tuple[StepPlan, dict[int, Loop]]:
    """Let blocks share rows in loops where that costs less. The plan then has owners that parts keep for themselves.

    Args:
        loops: number of a stage -> its loop.
        blocks: the resources of a launch.
    """
    found = dict(loops)
    for number, loop in loops.items():
        members = loop.members if loop.products else max(loop.members, blocks.count // loop.groups)
        parts = parts_of_rows(scan, plan, loop, members)
        if parts > 1:
            known = _Known(scan, plan, number, loop, members, parts, blocks.lanes)
            plan, found[number] = _cheapest(known)
    return plan, found


def parts_of_rows(scan: Scan, plan: StepPlan, loop: Loop, members: int) -> int:
    """The most blocks that a row of a loop may have.

    Args:
        members: blocks of a group.
    """
    rows = scan.batch if plan.batch_axes else 1
    by_rows = any(region.period == BY_ROWS for region in loop.regions)
    copied = any(shared_by_rows(region.written, plan) for region in loop.regions)
    if loop.apart or not by_rows or copied or rows_of_sum(rows) > 1:
        return 1
    return members // -(-rows // loop.groups)


@dataclass(frozen=True)
class _Known:
    """A loop whose rows have a block each.

    Args:
        number: of its stage.
        members: blocks of a group, if several share a row.
        parts: blocks of a row then.
        lanes: threads of a block.
    """

    scan: Scan
    plan: StepPlan
    number: int
    loop: Loop
    members: int
    parts: int
    lanes: int

    @property
    def stage(self) -> Stage:
        return self.plan.stages[self.number]

    def by_rows(self) -> list[LoopRegion]:
        """Regions whose rows blocks share out."""
        return [region for region in self.loop.regions if region.period == BY_ROWS]

    def cost(self) -> int:
        """The cost of a step: accesses of a lane, one after another, and waits."""
        nests = [nest for region in self.by_rows() for nest in fuse_nests(region.statements, folds_last=True)]
        return _cost(nests, self.lanes) + (WAIT * len(self.loop.waits) if self.loop.members > 1 else 0)

    def is_public(self, owner: str) -> bool:
        """True if several regions or stages use an owner, or it outlasts the step."""
        if owner in self.plan.slots or owner in self.plan.accumulators:
            return True
        users = [region for region in self.loop.regions if _uses(region.nodes, owner)]
        others = (stage for i, stage in enumerate(self.plan.stages) if i != self.number)
        return len(users) > 1 or any(_uses(stage.nodes, owner) for stage in others)

    def may_be_own(self, owner: str) -> bool:
        """True if each part can have an owner for itself: one statement writes all of it, and adds to nothing."""
        writers = [node for node in self.stage.nodes if node_writes(node) == owner]
        one = writers[0] if len(writers) == 1 else None
        if not isinstance(one, Statement):
            return False
        kept = [size for axis, size in enumerate(one.extents) if axis not in one.folded_axes()]
        whole = one.target.layout.offset == 0 and one.target.index is None
        return whole and not _adds(one) and prod(kept) == self.plan.types[owner].size

    def numbers(self) -> Iterator[str]:
        """Owners with one number for a row that its blocks read again. All parts compute them, as they are folds.

        Sums over steps are not among them: these have one place, and only the first part adds to it.
        """
        for region in self.by_rows():
            read = {owner for statement in region.statements for owner in node_reads(statement)}
            sums = {statement.target.owner for statement in region.statements if _adds(statement)}
            yield from (owner for owner in numbers_of(region.statements, self.plan) if owner in read - sums)


def _cheapest(known: _Known) -> tuple[StepPlan, Loop]:
    shared = _Shared(known, frozenset())
    candidates = list(shared.candidates())
    for first in (shared, _Shared(known, frozenset().union(*candidates))):
        best = first
        for owners in candidates:
            other = _Shared(known, best.every ^ owners)
            best = other if other.cost < best.cost else best
        shared = best if best.cost < shared.cost else shared
    gain, waits = known.cost() - shared.cost, len(shared.loop.waits) - len(known.loop.waits)
    return (shared.plan, shared.loop) if gain > max(0, waits) * WAIT else (known.plan, known.loop)


@dataclass(frozen=True)
class _Shared:
    """A loop whose rows several blocks share.

    Args:
        every: owners that each part computes for itself.
    """

    known: _Known
    every: frozenset[str]

    @cached_property
    def cost(self) -> int:
        """The cost of a step: accesses of a lane, one after another, and waits."""
        nests = [one.part(self.known.parts) for region in self.loop.regions for one in region.work]
        return _cost(nests, self.known.lanes) + WAIT * len(self.loop.waits)

    def candidates(self) -> Iterator[frozenset[str]]:
        """For each nest that parts share out, its results, if each part could compute them for itself."""
        for region in self.loop.regions:
            for one in region.work:
                owners = lane_nests.owners_written([one])
                if one.axis >= 0 and all(map(self.known.may_be_own, owners)):
                    yield owners

    # -- what each part keeps for itself -------------------------------------------------------------------------

    @cached_property
    def _twins(self) -> dict[str, str]:
        """Owner that is read elsewhere, too -> its twin, which each part has for itself."""
        chosen = sorted({*self.every, *self.known.numbers()})
        return {owner: f"{owner}/part" for owner in chosen if self.known.is_public(owner)}

    @cached_property
    def plan(self) -> StepPlan:
        """The plan with twins, and with copies of twins to their owners."""
        plan, twins = self.known.plan, self._twins
        stages = list(plan.stages)
        nodes = tuple(node for region in self._regions for node in region.nodes)
        stages[self.known.number] = replace(self.known.stage, nodes=nodes)
        types = {**plan.types, **{twin: plan.types[owner] for owner, twin in twins.items()}}
        axes = {twin: plan.batch_axes[owner] for owner, twin in twins.items() if owner in plan.batch_axes}
        return replace(plan, stages=tuple(stages), types=types, batch_axes={**plan.batch_axes, **axes})

    @cached_property
    def _regions(self) -> list[LoopRegion]:
        """The loop's regions, with twins in those that go by rows."""
        return [self._with_twins(region) for region in self.known.loop.regions]

    def _with_twins(self, region: LoopRegion) -> LoopRegion:
        twins = {owner: twin for owner, twin in self._twins.items() if owner in region.written}
        if region.period != BY_ROWS or not twins:
            return region
        nodes: list[Node] = [_renamed(statement, twins) for statement in region.statements]
        return replace(region, nodes=(*nodes, *(self._copied(owner, twin) for owner, twin in twins.items())))

    def _copied(self, owner: str, twin: str) -> Statement:
        kind = self.known.plan.types[owner]
        target, source = (Access(name, dense(kind.shape)) for name in (owner, twin))
        axis = self.known.plan.batch_axes.get(owner)
        return Statement(owner, kind.shape, target, (source,), "copy", None, kind.dtype, row_axis=axis)

    # -- the loop ------------------------------------------------------------------------------------------------

    @cached_property
    def loop(self) -> Loop:
        """The loop. Nests that follow each other without a wait are one region."""
        regions = [piece for region in self._regions for piece in self._pieces(region)]
        waits = place_barriers(self.known.scan, self.plan, regions)
        joined: list[LoopRegion] = []
        found: set[int] = set()
        for i, region in enumerate(regions):
            if i in waits:
                found.add(len(joined))
            elif joined and region.work and joined[-1].work and joined[-1].private == region.private:
                joined[-1] = _joined(joined[-1], region)
                continue
            joined.append(region)
        known = self.known
        shared = replace(known.loop, regions=tuple(joined), waits=frozenset(found))
        return replace(shared, members=known.members, parts=known.parts)

    def _pieces(self, region: LoopRegion) -> list[LoopRegion]:
        """A region for each nest of a region that goes by rows."""
        if region.period != BY_ROWS:
            return [region]
        work = self._work(region.statements)
        shared = {owner for owner in lane_nests.owners_written(work) if self.known.is_public(owner)}
        others = lane_nests.owners_written([one for one in work if one.axis != lane_nests.EVERY])
        private = lane_nests.owners_written(work) - shared - others
        return [LoopRegion(tuple(one.nest.statements), BY_ROWS, work=(one,), private=private) for one in work]

    def _work(self, statements: Sequence[Statement]) -> list[lane_nests.RowNest]:
        """The nests of a region, each with its share."""
        nests = fuse_nests(statements, folds_last=True)
        work = [lane_nests.RowNest(nest, self._axis(nest)) for nest in nests]
        while (i := self._of_first(work, statements)) is not None:
            work[i] = replace(work[i], axis=lane_nests.FIRST)
            read = {owner for other in work if other is not work[i] for owner in _reads(other.nest)}
            numbers = {
                owner for owner in lane_nests.owners_written([work[i]]) if is_number(owner, statements, self.plan)
            }
            if numbers & read:  # only in registers of the first part
                return [lane_nests.RowNest(nest, lane_nests.FIRST) for nest in nests]
        return work

    def _axis(self, nest: Nest) -> int:
        """The longest axis that parts can share out. `EVERY` if there is none, or if all parts need the results."""
        own = {*self.every, *self._twins.values()} - self._twins.keys()
        if {statement.target.owner for statement in nest.statements} <= own:
            return lane_nests.EVERY
        axes = [axis for axis in range(len(nest.extents)) if all(_in_parts(s, axis) for s in nest.statements)]
        return max(axes, key=lambda axis: nest.extents[axis], default=lane_nests.EVERY)

    def _of_first(self, work: Sequence[lane_nests.RowNest], statements: Sequence[Statement]) -> int | None:
        """The number of a nest that all parts do, although its results have elements that others read; else None."""
        others = lane_nests.owners_written([one for one in work if one.axis != lane_nests.EVERY])
        for i, one in enumerate(work):
            for statement in one.nest.statements if one.axis == lane_nests.EVERY else ():
                owner = statement.target.owner
                seen = self.known.is_public(owner) or owner in others
                if seen and not (is_number(owner, statements, self.plan) and not _adds(statement)):
                    return i
        return None


def _cost(nests: Sequence[Nest], lanes: int) -> int:
    return sum(lane_nests.cost_of_nest(nest, lanes, min(lane_nests.MATES, lanes)) for nest in nests)


def _in_parts(statement: Statement, axis: int) -> bool:
    folded = axis in statement.folded_axes() or statement.target.index is not None
    return not folded and lane_nests.stands_apart(statement, axis)


def _adds(statement: Statement) -> bool:
    return bool(statement.fold) and statement.start is None


def _reads(nest: Nest) -> set[str]:
    return {owner for statement in nest.statements for owner in node_reads(statement)}


def _uses(nodes: Collection[Node], owner: str) -> bool:
    return any(owner == node_writes(node) or owner in node_reads(node) for node in nodes)


def _joined(a: LoopRegion, b: LoopRegion) -> LoopRegion:
    return replace(a, nodes=(*a.nodes, *b.nodes), work=(*a.work, *b.work))


def _renamed(statement: Statement, names: Mapping[str, str]) -> Statement:
    """The statement with owners renamed."""

    def renamed(access: Access) -> Access:
        index = None if access.index is None else renamed(access.index)
        return replace(access, owner=names.get(access.owner, access.owner), index=index)

    operands = tuple(renamed(one) if isinstance(one, Access) else one for one in statement.operands)
    return replace(statement, target=renamed(statement.target), operands=operands)
