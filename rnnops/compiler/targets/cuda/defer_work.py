"""Elementwise work that no wait needs to wait for: what only sums over steps, and products of a tile, will read.

A region before a wait is split in two: what products of the step read, or a later step, comes before the block says
that it has arrived, the rest between that and the wait, when lanes would be idle. LSTM's gradient of a bias is such:
each lane adds to numbers in memory, one after another. A block may do it while others are past the wait: it reads
nothing that another region of the loop changes. Limits: only what is done feature by feature, all of whose operands lie
in memory anyway; only where no product but partial sums is between the region and the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from rnnops.compiler.ir.nodes import Node, node_reads, node_writes
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.compiler.targets.cuda.cyclic_distribution import (
    BY_ROWS,
    PARTIAL,
    Region,
    by_features,
    numbers_of,
)
from rnnops.compiler.targets.cuda.loop import Loop


def deferred(loop: Loop, plan: StepPlan, number: int) -> tuple[Region, Region | None]:
    """Region `number` of a loop as what comes first, and what may be done while blocks wait after it."""
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
    """Whether nothing but partial sums comes between a region and the next wait of the same step."""
    following = loop.regions[number + 1 :]
    for i, region in enumerate(following, number + 1):
        if i in loop.waits:
            return loop.persistent
        if region.part != PARTIAL:
            return False
    return False


def _owners(loop: Loop, plan: StepPlan, region: Region) -> set[str]:
    """What may be written late: nobody in the loop reads it but what is written late itself."""
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


def _is_own(statement: Statement, changed: Collection[object], region: Region, plan: StepPlan) -> bool:
    """Whether nobody else changes what it reads, nor reads what it writes: blocks may be past the wait by then."""
    for access in statement.reads():
        slot = plan.slots.get(access.owner)
        tensor = slot.tensor if slot else access.owner
        if tensor in changed or (slot and access.owner not in region.written and _is_written(tensor, region, plan)):
            return False
    return True


def _is_written(tensor: object, region: Region, plan: StepPlan) -> bool:
    return any(owner in plan.slots and plan.slots[owner].tensor == tensor for owner in region.written)
