"""Steps at which all rows of a group of blocks are over: they leave products and waits, and do what is left of a step.

What is left is the step simplified for rows that are over (`masked_rows.py`): states stay or are zeros, gradients go
on, and what the backward pass will read is computed as ever, since another group may be one of longer rows there. It is
elementwise work alone, in which blocks own what they own at other steps, so that nobody waits for anybody. Between
the two kinds of steps a group waits once.

Limits: of steps that have a product or a wait left, like those of attention whose context goes on, no group leaves
anything; a group whose last row is not over does all of a step for all its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rnnops.compiler.codegen.scan_module import BACKWARDS, LOW, ONE, STEP, STEPS, ZERO
from rnnops.compiler.ir.expressions import Cast, Expr, Load, Name, any_of, both, choice, compare, least, most
from rnnops.compiler.ir.kernel import Assign, For, If, Statement as Line
from rnnops.compiler.ir.layouts import Layout, dense
from rnnops.compiler.ir.nodes import Node, Product, Stage, node_reads, node_writes
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.compaction import lengths_of
from rnnops.compiler.schedule.drop_unread import live_nodes
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.compiler.schedule.masked_rows import simplify_rows
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.compiler.targets.cuda.cyclic_distribution import BY_ROWS, Region, regions_of, shared_by_rows
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.place_barriers import place_barriers
from rnnops.compiler.targets.cuda.row_parts import FIRST, RowNest

BEGIN, END, GROUP_BEGIN, GROUP_END, LONGEST = map(Name, ("begin", "end", "group_begin", "group_end", "longest"))
FIRST_STEP, ROW, M0, M1 = map(Name, ("first", "n", "m0", "m1"))


def let_finished_rows_leave(scan: Scan, plan: StepPlan, number: int, loop: Loop) -> Loop:
    """The loop with what a group does at a step when its rows are over, where that is less than all of the step.

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
    """The nodes of a loop that rows need which are over: what lasts, what other stages read, what may be wrong."""
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
    """A product of zeros with a bias becomes the bias; `masked_rows.py` has left it, as products add it for nothing."""
    if not isinstance(node, Product) or node.bias is None or node.accumulate:
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


def _regions(plan: StepPlan, number: int, loop: Loop, nodes: Sequence[Node]) -> tuple[Region, ...]:
    """Their regions; of a row that several blocks share the first block does it."""
    stage = Stage(tuple(nodes), True, plan.stages[number].cyclic)
    regions = regions_of(stage, plan, loop.period)
    if loop.parts == 1:
        return tuple(regions)
    private = frozenset[str]().union(*(region.private for region in loop.regions))
    by_rows = (region.period == BY_ROWS or region.written & private for region in regions)
    return tuple(_of_first(region, private) if rows else region for region, rows in zip(regions, by_rows, strict=True))


def _of_first(region: Region, private: frozenset[str]) -> Region:
    """Args: private: what each block of a row has for itself at other steps."""
    nests = fuse_nests(region.statements, folds_last=True)
    work = tuple(RowNest(nest, FIRST) for nest in nests)
    return Region(region.nodes, BY_ROWS, work=work, private=private & region.written)


# -- lines of a kernel ------------------------------------------------------------------------------------------------


def steps_of_group(lengths: Load) -> list[Line]:
    """From which step to which, not included, a row of a group is not over.

    Args:
        lengths: that of row `n`.
    """
    longer = Assign(LONGEST.name, most(LONGEST, Cast(lengths, dtype=ROW.dtype) - FIRST_STEP))
    begin = least(END, most(BEGIN, LOW + STEPS - LONGEST))
    end = least(END, most(BEGIN, LONGEST - LOW))
    return [
        Assign(LONGEST.name, ZERO),
        For(ROW.name, M0, M1, ONE, (longer,)),
        Assign(GROUP_BEGIN.name, choice(BACKWARDS, begin, BEGIN)),
        Assign(GROUP_END.name, choice(BACKWARDS, END, end)),
    ]


def first_wait() -> Expr:
    """1 where a group has waited once before its first step with waits."""
    return choice(GROUP_BEGIN > BEGIN, ONE, ZERO)


def two_kinds(steps: Sequence[Line], over: Sequence[Line], wait: Sequence[Line]) -> list[Line]:
    """A step, or what is left of it; a group waits where one kind follows the other.

    Args:
        wait: for the others of the group.
    """
    inside = both(compare(">=", STEP, GROUP_BEGIN), STEP < GROUP_END)
    outside = any_of(STEP < GROUP_BEGIN, compare(">=", STEP, GROUP_END))
    starts = both(compare("==", STEP, GROUP_BEGIN), GROUP_BEGIN > BEGIN)
    stops = both(compare("==", STEP, GROUP_END), GROUP_END > GROUP_BEGIN)
    return [
        If(inside, (If(starts, tuple(wait)), *steps)),
        If(outside, (If(stops, tuple(wait)), *over)),
    ]
