"""Rows of the batch that are part of a longer axis, as of `[N * places, C]`, get an axis of their own.

People flatten rows before a product and take them apart behind it. Such an axis hides the batch: no axis of the blob
has its size. An axis whose stride says that it runs through rows is cut into rows and what each of them has. Memory
stays as it is, and so do strides: only shapes change.

Limits: what lies in tensors has its rows in front, and is not cut; neither are statements of random numbers, which
count elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rnnops.compiler.lower.scan import LoweredStep
from rnnops.compiler.lower.statements import Access, Layout, Statement, dense
from rnnops.compiler.schedule.batch_axis import hand_on, known_axes, row_axis_of
from rnnops.compiler.schedule.product_axes import cut_axes
from rnnops.symbolic.sizes import is_symbolic
from rnnops.types import Type

UNCUT = ("uniform", "dropped", "labels")


def cut_merged_rows(step: LoweredStep) -> LoweredStep:
    """Cut axes that rows are merged into.

    rewrite: `y[32 * 64, 16] += x[32 * 64, 9] * w[9, 16]`  -->  `y[32, 64, 16] += x[32, 64, 9] * w[9, 16]`
    """
    types, statements = dict(step.lowered.types), list(step.statements)
    axes, fixed = known_axes(step), {*step.slots, *step.accumulators, *step.invariant}
    changed = True
    while changed:
        while sum(hand_on(statement, types, axes) for statement in statements):
            pass
        changed = False
        for number, statement in enumerate(statements):
            cut = _cut_statement(statement, types, axes)
            if cut is not None:
                statements[number], changed = cut, True
            changed |= _cut_owners(statements[number], types, axes, fixed)
    lowered = step.lowered.copy()
    lowered.types.update(types)
    return replace(step, lowered=lowered, nodes=tuple(statements))


def _cut_statement(statement: Statement, types: Mapping[str, Type], axes: Mapping[str, int]) -> Statement | None:
    """The statement with its rows apart; None where they are, or no axis has them."""
    if statement.form in UNCUT or row_axis_of(statement, types, axes) is not None:
        return None
    for access in statement.accesses():
        if access.owner in axes:
            shape, own = types[access.owner].shape, axes[access.owner]
            axis = _merged_axis(access.layout, shape[own], dense(shape).strides[own])
            if axis is not None:
                return _with_axis_cut(statement, axis, shape[own])
    return None


def _merged_axis(layout: Layout, rows: int, stride: int) -> int | None:
    """The axis of a layout that runs through so many rows, a stride apart, and through what each of them has."""
    for axis, (size, step) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        if is_symbolic((rows,)) and not is_symbolic((size,)):
            continue  # a number is a multiple of a symbol only by chance
        if step > 0 and size > rows > 1 and size % rows == 0 and step * (size // rows) == stride:
            return axis
    return None


def _with_axis_cut(statement: Statement, axis: int, rows: int) -> Statement:
    cuts = [(rows, size // rows) if place == axis else (size,) for place, size in enumerate(statement.extents)]
    operands = tuple(cut_axes(o, cuts) if isinstance(o, Access) else o for o in statement.operands)
    target = cut_axes(statement.target, cuts)
    return replace(statement, extents=target.layout.shape, target=target, operands=operands)


def _cut_owners(statement: Statement, types: dict[str, Type], axes: Mapping[str, int], fixed: set[str]) -> bool:
    """Cut shapes of owners along the rows of a statement; True where one was cut."""
    row = row_axis_of(statement, types, axes)
    found = False
    for access in statement.accesses() if row is not None else ():
        kind = types[access.owner]
        if row is None or access.owner in axes or access.owner in fixed:
            continue
        rows = statement.extents[row]
        axis = _merged_axis(dense(kind.shape), rows, access.layout.strides[row])
        if axis is not None:
            shape = (*kind.shape[:axis], rows, kind.shape[axis] // rows, *kind.shape[axis + 1 :])
            types[access.owner], found = replace(kind, shape=shape), True
    return found
