"""What must hold of a step between two passes, and of its plan: all that is read is there, and lies within its memory.

Tests verify every step after every pass, so that an error names the pass that made it.

Limit: steps whose sizes are symbols are not looked into, as each comparison of symbols becomes a condition of a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from rnnops.compiler.ir.nodes import Contraction, Node, Product, node_reads, node_writes
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.step_plan import Step, StepPlan, carried_owners
from rnnops.sizes import is_symbolic
from rnnops.types import Type


class StepError(ValueError):
    """A step that means nothing."""


def verify_step(step: Step) -> None:
    """Raise StepError for a step that means nothing."""
    types = _as_read(step.lowered.types, step.accumulators, step.scan.batch)
    if _has_symbols(types):
        return
    for owner in step.stored:
        _need(owner in types, owner, "is stored, and has no type")
    for name in step.sums.values():
        blob = name in step.lowered.views or name in step.lowered.numbers
        _need(name in step.accumulators or blob, name, "is a sum, and nothing")
    there = _given(step.scan, step.invariant) | set(step.accumulators)
    _verify_nodes(step.nodes, types, there | _added_to(step), step.invariant)
    for statement in step.statements:
        if step.batch_axes and statement.row_axis is not None:
            rows = statement.extents[statement.row_axis]
            _need(rows == step.scan.batch, statement, f"{rows} rows, not {step.scan.batch}")


def verify_plan(scan: Scan, plan: StepPlan) -> None:
    """Raise StepError for the plan of a step that means nothing."""
    types = _as_read(plan.types, plan.accumulators, scan.batch)
    if _has_symbols(types):
        return
    carried = {reader for reader, _ in carried_owners(scan, plan.slots)}
    there = _given(scan, plan.invariant) | carried | set(plan.accumulators) | set(plan.slots)
    for stages in (plan.stages, plan.past_end):
        nodes = [node for stage in stages for node in stage.nodes]
        _verify_nodes(nodes, types, there, plan.invariant)
    for stage in (*plan.stages, *plan.past_end):
        batched = not any(isinstance(node, Statement) for node in stage.nodes)
        _need(stage.loop or batched, stage, "statements run step by step")
        _need(not stage.loop or not any(isinstance(node, Contraction) for node in stage.nodes), stage, "no tile")


def _given(scan: Scan, invariant: Iterable[str]) -> set[str]:
    """What is there when a step begins."""
    return {*scan.reads, *invariant, *([] if scan.timestep is None else [scan.timestep])}


def _as_read(types: Mapping[str, Type], accumulators: Mapping[str, bool], batch: int) -> dict[str, Type]:
    """Types of owners as statements see them: sums in parts have a place for each row, whoever shares it."""
    parts = {owner: types[owner] for owner, in_parts in accumulators.items() if in_parts}
    return {**types, **{owner: Type(kind.dtype, (batch, *kind.shape[1:])) for owner, kind in parts.items()}}


def _added_to(step: Step) -> set[str]:
    """Owners in tensors to which steps add."""
    return set(step.slots) & {node_writes(s) for s in step.statements if s.fold and s.start is None}


def _verify_nodes(nodes: Iterable[Node], types: Mapping[str, Type], there: set[str], invariant: Iterable[str]) -> None:
    """Each node reads what is there by then, and writes what may change."""
    fixed, there = set(invariant), set(there)
    for node in nodes:
        _need(node_writes(node) not in fixed, node, "writes what is the same at every step")
        _need(node_writes(node) in types, node, "its target has no type")
        for owner in node_reads(node):
            _need(owner in there, node, f"reads '{owner}', which nothing has written")
        there.add(node_writes(node))
        if isinstance(node, Statement):
            for access in node.accesses():
                _verify_access(node, access, types)
        else:
            _verify_product(node, types)


def _verify_access(statement: Statement, access: Access, types: Mapping[str, Type]) -> None:
    _need(access.owner in types, statement, "a target or an operand has no type")
    _need(access.layout.shape == statement.extents, statement, "other extents than those of an operand")
    first, last = access.layout.span()
    size = prod(types[access.owner].shape)
    if access.layout.size and not 0 <= first <= last < size:
        raise StepError(f"{statement}: '{access.owner}' has {size} numbers, not {first} to {last}")


def _verify_product(node: Product | Contraction, types: Mapping[str, Type]) -> None:
    target = types[node.target]
    _need(node.rows * node.columns == target.size, node, f"its target is {target}")


def _has_symbols(types: Mapping[str, Type]) -> bool:
    return any(is_symbolic(kind.shape) for kind in types.values())


def _need(holds: bool, where: object, problem: str) -> None:
    """Raise StepError for what does not hold; the text of a node is made for an error only."""
    if not holds:
        raise StepError(f"{where}: {problem}")
