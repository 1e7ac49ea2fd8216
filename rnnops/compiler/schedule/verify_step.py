"""Checks of a step after every pass, in every compile, so that an error names the pass that made it.

Every node reads owners that nodes before it have written, completely: a node that reads a sum that is not finished, or
a product that is added up elsewhere, would compute a wrong number. Accesses lie within the memory of their owners.

Limit: sizes that are symbols are not compared, as each comparison of symbols becomes a condition of a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod

from rnnops.compiler.ir.nodes import Contraction, Node, Product, node_reads, node_writes
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.step_plan import Step, StepPlan, carried_owners
from rnnops.errors import RnnopsError
from rnnops.sizes import is_symbolic
from rnnops.types import Type

HINT = "This is a fault of rnnops. Please report it with str(net); device='reference' computes the net meanwhile."


class PlanError(RnnopsError):
    """The compiler has planned a step that is not what its net says; a fault of the compiler, not of the net."""

    def __init__(self, problem: str, *, net: str | None = None) -> None:
        super().__init__(problem, net=net, hint=HINT)


def verify_step(step: Step, known: Collection[Node] = ()) -> None:
    """Raise PlanError for a step that means nothing.

    Args:
        known: nodes that were verified before: where they lie is not looked at again; that of the plan is, at the end.
    """
    types = _as_read(step.lowered.types, step.accumulators, step.scan.batch)
    for owner in step.stored:
        _need(owner in types, owner, "is stored, and has no type")
    for name in step.sums.values():
        blob = name in step.lowered.views or name in step.lowered.numbers
        _need(name in step.accumulators or blob, name, "is a sum, and nothing")
    there = _given(step.scan, step.invariant) | set(step.accumulators)
    _verify_nodes(step.nodes, types, there | _added_to(step.slots, step.nodes), step.invariant, {*map(id, known)})
    for statement in [] if _has_symbols(types) else step.statements:
        if step.batch_axes and statement.row_axis is not None:
            rows = statement.extents[statement.row_axis]
            _need(rows == step.scan.batch, statement, f"{rows} rows, not {step.scan.batch}")


def verify_plan(scan: Scan, plan: StepPlan) -> None:
    """Raise PlanError for the plan of a step that means nothing."""
    types = _as_read(plan.types, plan.accumulators, scan.batch)
    carried = {reader for reader, _ in carried_owners(scan, plan.slots)}
    there = _given(scan, plan.invariant) | carried | set(plan.accumulators)
    for stages in (plan.stages, plan.past_end):
        nodes = [node for stage in stages for node in stage.nodes]
        there |= _added_to(plan.slots, nodes)
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


def _added_to(slots: Iterable[str], nodes: Iterable[Node]) -> set[str]:
    """Owners in tensors to which steps add."""
    return {*slots} & {node_writes(s) for s in nodes if isinstance(s, Statement) and s.fold and s.start is None}


def _verify_nodes(
    nodes: Iterable[Node],
    types: Mapping[str, Type],
    there: set[str],
    invariant: Iterable[str],
    known: Collection[int] = (),
) -> None:
    """Each node reads what is there by then, complete, and writes what may change."""
    fixed, there, readers = set(invariant), set(there), dict[str, Node]()
    sized = not _has_symbols(types)
    for node in nodes:
        target = node_writes(node)
        _need(target not in fixed, node, "writes what is the same at every step")
        _need(target in types, node, "its target has no type")
        if target in readers:
            raise PlanError(f"{node}: writes '{target}', which was read before, by {readers[target]}")
        for owner in node_reads(node):
            if owner not in there:
                raise PlanError(f"{node}: reads '{owner}', which nothing has written")
            if owner != target:
                readers.setdefault(owner, node)
        there.add(target)
        if sized and id(node) not in known:
            _verify_places(node, types)


def _verify_places(node: Node, types: Mapping[str, Type]) -> None:
    """What a node touches lies in the memory of its owners."""
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
        raise PlanError(f"{statement}: '{access.owner}' has {size} numbers, not {first} to {last}")


def _verify_product(node: Product | Contraction, types: Mapping[str, Type]) -> None:
    target = types[node.target]
    _need(node.rows * node.columns == target.size, node, f"its target is {target}")


def _has_symbols(types: Mapping[str, Type]) -> bool:
    return any(is_symbolic(kind.shape) for kind in types.values())


def _need(holds: bool, where: object, problem: str) -> None:
    """Raise PlanError for what does not hold; the text of a node is made for an error only."""
    if not holds:
        raise PlanError(f"{where}: {problem}")
