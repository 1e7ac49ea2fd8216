"""Heads as rows: an axis behind that of the batch which nothing folds or mixes is part of it.

Each row has less of a state then, and a batch of one row has more of them than one, which threads share out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import prod

from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.batch_axis import BatchAxes, find_batch_axes
from rnnops.compiler.schedule.loop_nests import joined_statement
from rnnops.compiler.schedule.step_plan import StepPlan, carried_owners
from rnnops.types import Type

LEAST_HEAD = 1024  # bytes of the largest state of a head that is to be a row: a row costs a call at each step


def join_heads(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan with an axis behind that of the batch as part of it, where all that has rows has that axis.

    rewrite: rows `[N]` of blobs `[N, K, ...]`  -->  rows `[N * K]` of blobs `[N * K, ...]`
    """
    statements = _statements(plan)
    if statements is None:
        return plan
    return _heads_as_rows(scan, plan, statements) if scan.batch == 1 else _joined_plan(plan, statements)


def _statements(plan: StepPlan) -> list[Statement] | None:
    """All that a step does, None where that is more than statements."""
    nodes = [node for stage in (*plan.stages, *plan.past_end) for node in stage.nodes]
    statements = [node for node in nodes if isinstance(node, Statement)]
    return statements if len(statements) == len(nodes) else None


def _with_statements(plan: StepPlan, statements: Iterable[Statement]) -> StepPlan:
    """The plan with others in place of its statements."""
    rest = iter(statements)
    stages, over = (
        tuple(replace(stage, nodes=tuple(next(rest) for _ in stage.nodes)) for stage in some)
        for some in (plan.stages, plan.past_end)
    )
    return replace(plan, stages=stages, past_end=over)


# -- a batch of one row ------------------------------------------------------------------------------------------------


def _heads_as_rows(scan: Scan, plan: StepPlan, statements: Sequence[Statement]) -> StepPlan:
    """The plan of a batch of one row with the axis behind that of the batch as its rows, or with the row as all rows.

    rewrite: one row of blobs `[1, K, ...]`  -->  rows `[K]` of blobs `[K, ...]`
    """
    carried = {owner for pair in carried_owners(scan, plan.slots) for owner in pair}
    heads = _heads_of([plan.types[owner].shape for owner in carried])
    found = find_batch_axes(statements, plan.types, dict.fromkeys(carried, 1))
    nbytes = max((plan.types[owner].nbytes for owner in carried), default=0)
    if heads < 2 or nbytes < LEAST_HEAD * heads or plan.accumulators or not _are_rows(plan, found):
        return replace(plan, batch_axes=dict.fromkeys(carried, 0))  # of scratch each thread has its own anyway
    types = {
        name: replace(kind, shape=kind.shape[found.axes[name] :]) if name in found.axes else kind
        for name, kind in plan.types.items()
    }
    plan = _with_statements(plan, found.statements)
    return replace(plan, types=types, batch_axes=dict.fromkeys(found.axes, 0), heads=heads, whole="")


def _are_rows(plan: StepPlan, found: BatchAxes) -> bool:
    """Whether heads are independent, and lie one behind the other in all that is written."""
    if found.mixing or any(prod(plan.types[owner].shape[:axis]) != 1 for owner, axis in found.axes.items()):
        return False
    for statement in found.statements:
        if statement.target.owner not in found.axes or statement.form in ("uniform", "dropped"):
            return False
        if statement.row_axis is None or statement.row_axis in statement.folded_axes():
            return False
    return True


# -- several rows ------------------------------------------------------------------------------------------------------


def _joined_plan(plan: StepPlan, statements: Sequence[Statement]) -> StepPlan:
    owners = {access.owner for s in statements for access in s.accesses()} & plan.batch_axes.keys()
    owners -= _numbers_of_rows(statements, plan)
    heads = _heads_of([plan.types[owner].shape for owner in owners])
    if heads < 2 or plan.accumulators or any(plan.batch_axes[owner] for owner in owners):
        return plan
    found = find_batch_axes(statements, plan.types, dict.fromkeys(owners, 1))
    if found.mixing or found.axes.keys() != owners:
        return plan
    if not all(_can_join(s, h, owners) for s, h in zip(statements, found.statements, strict=True)):
        return plan
    joined = (_joined(s, h.row_axis) for s, h in zip(statements, found.statements, strict=True))
    types = {name: _joined_type(kind) if name in owners else kind for name, kind in plan.types.items()}
    return replace(_with_statements(plan, joined), types=types, heads=heads)


def _numbers_of_rows(statements: Sequence[Statement], plan: StepPlan) -> set[str]:
    """Owners of a number for each row that heads share, as where it ends."""
    written = {s.target.owner for s in statements}
    return {owner for owner in plan.batch_axes if len(plan.types[owner].shape) == 1 and owner not in written}


def _heads_of(shapes: Collection[tuple[int, ...]]) -> int:
    """The size of the axis behind that of the batch, 1 where not all have the same."""
    sizes = [shape[1] if len(shape) > 1 else 1 for shape in shapes]
    return sizes[0] if sizes and all(size == sizes[0] for size in sizes) else 1


def _can_join(statement: Statement, with_heads: Statement, owners: Collection[str]) -> bool:
    """Whether a statement has neither of the two axes, or both, a step of rows being a turn of heads in `owners`."""
    rows, heads = statement.row_axis, with_heads.row_axis
    if rows is None or heads is None:
        return rows is heads
    if statement.form in ("uniform", "dropped") or {rows, heads} & set(statement.folded_axes()):
        return False
    strides = [access.layout.strides for access in statement.accesses() if access.owner in owners]
    return all(one[rows] == one[heads] * statement.extents[heads] for one in strides)


def _joined(statement: Statement, heads: int | None) -> Statement:
    """The statement over rows and heads as one axis, its first."""
    rows = statement.row_axis
    if rows is None or heads is None:
        return statement
    others = (axis for axis in range(len(statement.extents)) if axis not in (rows, heads))
    return replace(joined_statement(statement.moved((rows, heads, *others)), 0), row_axis=0)


def _joined_type(kind: Type) -> Type:
    rows, heads, *rest = kind.shape
    return replace(kind, shape=(rows * heads, *rest))
