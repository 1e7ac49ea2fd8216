"""Rows that shrink: the plan of a step by which no row of the batch is in a masked product past its end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from rnnops.compiler.ir.nodes import Contraction, Node, Product, node_reads
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.ir.tensor_name import TensorName
from rnnops.compiler.schedule.drop_unread import live_nodes
from rnnops.compiler.schedule.gather_rows import gather_rows
from rnnops.compiler.schedule.masked_rows import simplify_rows
from rnnops.compiler.schedule.put_rows_outside import goes_outside
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.types import Type


def compact_rows(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan for rows that end; the plan as it is, with the reason, where rows cost as much past their end.

    rewrite: stages of all rows  -->  stages of rows that are not over, and fewer of rows that are
    """
    names = lengths_of(scan)
    if scan.timestep is None or not names:
        return plan
    alone = len(plan.stages) == 1 and goes_outside(scan, plan)  # two kinds of steps cost a row nothing then
    reason = "" if scan.batch == 1 and alone else plan.whole or _interleaved(scan, plan)
    for lengths in [] if reason else names:
        over, lasting = (simplify_rows(plan, lengths, scan.timestep, over) for over in (True, False))
        over = live_nodes(over, [*_stored(plan, scan.unseen), *_checked(scan, plan)])
        lasting = live_nodes(lasting, _stored(plan, ()))
        if _work(over) < _work(lasting) or alone:
            first = gather_rows(scan, plan, lasting, "lasting")
            second = gather_rows(scan, first, over, "over")
            return replace(second, stages=first.stages, past_end=second.stages, lengths=lengths)
        reason = f"'{lengths}' masks no product"
    return replace(plan, uncompacted=reason)


def _work(nodes: Sequence[Node]) -> tuple[int, int]:
    """Products, and nodes in all."""
    products = [node for node in nodes if not isinstance(node, Statement) or node.form == "product"]
    return len(products), len(nodes)


def _stored(plan: StepPlan, unseen: Collection[TensorName]) -> list[str]:
    return [*(owner for owner, slot in plan.slots.items() if slot.tensor not in unseen), *plan.accumulators]


def _checked(scan: Scan, plan: StepPlan) -> list[str]:
    """Owners of what is looked up: a wrong index or label is found in every row. What backward looks up is right."""
    statements = [node for stage in plan.stages for node in stage.nodes if isinstance(node, Statement)]
    return [] if scan.gradients else [s.target.owner for s in statements if s.may_fail()]


def past_end_reads(plan: StepPlan) -> frozenset[TensorName]:
    """Tensors that are read where a row is over: all where rows do not shrink."""
    if not plan.lengths:
        return frozenset(slot.tensor for slot in plan.slots.values())
    owners = {owner for stage in plan.past_end for node in stage.nodes for owner in node_reads(node)}
    return frozenset(plan.slots[owner].tensor for owner in owners if owner in plan.slots)


def lengths_of(scan: Scan) -> list[str]:
    """References that a step compares with its number, row by row."""
    names = []
    for call in scan.program.calls:
        inputs = call.op.inputs
        if call.op.type in ("SelectValid", "MaskRows"):
            names.append(inputs[-2])
        elif call.op.type in ("Less", "Greater") and scan.timestep in inputs:
            names += [name for name in inputs if name != scan.timestep]
    rows = Type("int32", (scan.batch,))
    return [name for name in dict.fromkeys(names) if name in scan.references and scan.program.types[name] == rows]


def _interleaved(scan: Scan, plan: StepPlan) -> str:
    """Why rows cannot be left out of products, `""` where they can: what products touch lies row by row."""
    for stage in plan.stages:
        for node in stage.nodes:
            if isinstance(node, Product | Contraction):
                sides = (node.left, node.target) if isinstance(node, Product) else (node.left, node.right)
                for owner in sides:
                    if not _lies_by_rows(owner, scan, plan):
                        return f"rows of '{owner}' do not lie side by side, as the product '{node.blob}' reads them"
    return ""


def _lies_by_rows(owner: str, scan: Scan, plan: StepPlan) -> bool:
    """Whether the batch axis comes first in a step of an owner; a window has its steps before that."""
    axis, shape = plan.batch_axes.get(owner), plan.types[owner].shape
    windows = len(shape) - len(scan.tensors[plan.slots[owner].tensor].shape) if owner in plan.slots else 0
    return axis is not None and axis >= windows and prod(shape[windows:axis]) == 1
