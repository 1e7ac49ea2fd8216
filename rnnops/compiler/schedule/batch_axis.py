"""The batch axis: which axis of each blob runs over the rows of the batch, and whether rows are independent.

What is known at first, by meaning and not by size, is that axis 0 of sequences and states runs over the batch. A
statement that reads one axis of a blob along one of its own hands the axis on to all that it reads or writes along it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rnnops.compiler.ir.statements import Access, Layout, Statement, dense
from rnnops.compiler.schedule.step_plan import LoweredStep, MixedError
from rnnops.types import Shape, Type


@dataclass(frozen=True)
class BatchAxes:
    """The batch axes of a step.

    Args:
        axes: owner of memory -> its batch axis; owners that are the same for all rows are absent.
        statements: all statements, with `row_axis` filled in where one of their axes runs over the batch.
        mixing: blobs of statements that read across rows in a way that no fold over the batch explains.
    """

    axes: dict[str, int]
    statements: tuple[Statement, ...]
    mixing: tuple[str, ...]


def find_batch_axes(statements: Iterable[Statement], types: Mapping[str, Type], known: Mapping[str, int]) -> BatchAxes:
    """Find the batch axis of every owner of memory.

    Args:
        types: of all owners.
        known: batch axes of sequences and states.
    """
    axes = dict(known)
    pending = list(statements)
    while sum(_hand_on(statement, types, axes) for statement in pending):
        pass
    marked, mixing = [], []
    for statement in pending:
        found = _row_axis(statement, types, axes)
        if (found is None and any(access.owner in axes for access in statement.accesses())) or (
            found is not None and not _is_row_local(statement, found, types, axes)
        ):
            mixing.append(statement.blob)
        marked.append(statement if statement.row_axis == found else replace(statement, row_axis=found))
    return BatchAxes(axes, tuple(marked), tuple(mixing))


def mark_rows(step: LoweredStep) -> LoweredStep:
    """Mark the axis of each statement that runs over the batch. Raises MixedError where a statement mixes rows."""
    found = find_batch_axes(step.statements, step.lowered.types, _known_axes(step))
    if found.mixing:
        raise MixedError(f"'{found.mixing[0]}' reads across rows")
    return replace(step, nodes=found.statements, batch_axes=found.axes)


def _known_axes(step: LoweredStep) -> dict[str, int]:
    """Batch axes by meaning: of what is read, and of what lies in tensors of sequences and states."""
    scan, types = step.scan, step.lowered.types
    known = {name: axis for name, axis in scan.batch_axes.items() if name in scan.reads}
    for owner, slot in step.slots.items():
        if owner not in scan.reads and slot.tensor in scan.row_tensors:
            known[owner] = len(types[owner].shape) - len(scan.tensors[slot.tensor].shape)
    return known


def axes_along(statement: Statement, axis: int, types: Mapping[str, Type]) -> dict[str, int]:
    """The axis of each owner that an axis of the statement runs along."""
    found = {a.owner: _owner_axis(a, axis, types[a.owner].shape) for a in statement.accesses()}
    return {owner: own for owner, own in found.items() if own is not None}


def _hand_on(statement: Statement, types: Mapping[str, Type], axes: dict[str, int]) -> bool:
    """Give the batch axis to what the statement reads or writes along its own; True where that was news."""
    row = _row_axis(statement, types, axes)
    if row is None:
        return False
    news = False
    for access in statement.accesses():
        if access.owner not in axes:
            axis = _owner_axis(access, row, types[access.owner].shape)
            if axis is not None:
                axes[access.owner] = axis
                news = True
    return news


def _row_axis(statement: Statement, types: Mapping[str, Type], axes: Mapping[str, int]) -> int | None:
    """The axis of the statement along which some operand's rows are read."""
    for access in statement.accesses():
        if access.owner in axes:
            own = axes[access.owner]
            shape = types[access.owner].shape
            stride = dense(shape).strides[own]
            for axis, size in enumerate(statement.extents):
                if size == shape[own] and size > 1 and access.layout.strides[axis] == stride:
                    return axis
    return None


def _owner_axis(access: Access, row: int, shape: Shape) -> int | None:
    """The axis of the owner that the statement's axis runs along."""
    size, stride = access.layout.shape[row], access.layout.strides[row]
    for axis, (own_size, own_stride) in enumerate(zip(shape, dense(shape).strides, strict=True)):
        if own_size == size and own_stride == stride:
            return axis
    return None


def _is_row_local(statement: Statement, row: int, types: Mapping[str, Type], axes: Mapping[str, int]) -> bool:
    """Whether row n of the statement reads and writes nothing but row n, or folds rows into something without rows."""
    target = statement.target
    if statement.form == "uniform" and row != 0:
        return False
    if target.owner not in axes and target.index is not None and target.index.layout.strides[row] != 0:
        return False  # rows are scattered
    for access in statement.accesses():
        if access.owner not in axes:
            if access.layout.strides[row] != 0:
                return False
            continue
        shape = types[access.owner].shape
        own = axes[access.owner]
        stride, size = dense(shape).strides[own], shape[own]
        if access.layout.strides[row] != stride or access.layout.shape[row] != size:
            return False
        if access.index is not None and access.index_step >= stride and size > 1 and access.owner in axes:
            return False
        if not _is_within_row(access.layout, row, stride, size):
            return False
    return True


def _is_within_row(layout: Layout, row: int, stride: int, size: int) -> bool:
    """Whether all elements of the first row lie at place 0 of the owner's axis of this stride and size.

    The place is `number // stride % size`. Steps that are whole turns of the axis leave it; if all others lead upwards,
    they end at `last`, which decides unless it is a turn further.
    """
    turn, others = stride * size, [axis for axis in range(len(layout.shape)) if axis != row]
    moves = [(layout.shape[axis], layout.strides[axis]) for axis in others]
    steps = [(extent, step) for extent, step in moves if step % turn]
    last = layout.offset % turn + sum((extent - 1) * step for extent, step in steps)
    if last < turn and all(step > 0 for _, step in steps):
        return last < stride
    first_row = layout.with_axes(tuple(others), tuple(extent for extent, _ in moves))
    return not ((first_row.numbers() // stride) % size).any()
