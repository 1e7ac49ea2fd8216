"""Along which axis the ops of a group run row by row, if along any."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from rnnops.compiler.ir.layouts import Layout
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.batch_axis import BatchAxes, axes_along, find_batch_axes
from rnnops.compiler.schedule.products import as_contraction, as_product
from rnnops.types import Type

Types = Mapping[str, Type]


def find_rows(
    before: Sequence[Statement], statements: Sequence[Statement], types: Types, known: Mapping[str, int]
) -> BatchAxes | None:
    """Rows of new statements; a group without rows gets an axis of the first statement, or what a product folds.

    Args:
        before: statements that the group has already.
        known: owner of memory -> its axis that runs over rows, as far as there are any.
    """
    if not statements:
        return BatchAxes(dict(known), (), ())
    if known:
        return _unless_across(before, rows_known(statements, types, known))
    first = statements[0]
    if not first.extents:
        return None
    leading = _leading_axis(first)
    axes = dict.fromkeys((0, leading, *first.folded_axes()))
    found = {axis: rows_known(statements, types, axes_along(first, axis, types)) for axis in axes}
    blocked = [rows for rows in found.values() if rows is not None and _is_blocked(rows, types)]
    if not blocked and leading and first.form == "product":
        return None  # such rows are for products in blocks, and for what is elementwise
    return blocked[0] if blocked else _unless_across(before, found[leading])


def _unless_across(before: Sequence[Statement], rows: BatchAxes | None) -> BatchAxes | None:
    """Rows that can be read and written in pieces; None for others."""
    if rows is None:
        return None
    made = {one.target.owner for one in (*before, *rows.statements) if one.form != "product" and not one.fold}
    return None if any(_is_across(statement, made) for statement in rows.statements) else rows


def _is_across(statement: Statement, made: Collection[str]) -> bool:
    """Whether rows of an elementwise statement lie side by side, so that no row is read or written in one piece.

    It is far slower to have each row by itself then than to leave the statement to a group of its own, whose rows do.
    What is transposed is read in pieces where it is written across; what is computed from that, `made` in the same
    group, is not read from memory at all, and mostly transposed back in the end.
    """
    row, extents = statement.row_axis, statement.extents
    if statement.form == "product" or statement.fold or row is None or extents[row] == 1:
        return False
    inner, outer = prod(extents[row + 1 :]), prod(extents[:row])
    if inner > 1 or outer == 1:
        return False
    return not any(_is_in_pieces(read.layout, row) or _is_made(read, made) for read in statement.reads())


def _is_in_pieces(layout: Layout, row: int) -> bool:
    """Whether elements of a row lie nearer to each other than to those of the next row."""
    apart = abs(layout.strides[row])
    return any(0 < abs(stride) < apart for axis, stride in enumerate(layout.strides) if axis != row)


def _is_made(read: Access, made: Collection[str]) -> bool:
    """Whether it is an array of elements of the group's own, each read once."""
    return read.owner in made and all(
        read.layout.strides[axis] or size == 1 for axis, size in enumerate(read.layout.shape)
    )


def _leading_axis(statement: Statement) -> int:
    """The first axis; that of steps where the batch is a single row, `[1, T, D]`, so that products run in blocks.

    Of `[1, D, 1]` it is the first: D are features, a sum of which is no sum over rows.
    """
    folded = statement.folded_axes()
    long = [axis for axis, size in enumerate(statement.extents) if axis not in folded and size != 1]
    return long[0] if len(long) > 1 else 0


def rows_known(statements: Sequence[Statement], types: Types, known: Mapping[str, int]) -> BatchAxes | None:
    found = find_batch_axes(statements, types, known)
    return None if found.mixing or any(s.row_axis is None for s in found.statements) else found


def _is_blocked(found: BatchAxes, types: Types) -> bool:
    """Whether the first statement is a product that runs in blocks."""
    first = found.statements[0]
    owners = {access.owner for access in first.accesses()}
    sizes, fixed = {owner: types[owner].size for owner in owners}, owners - set(found.axes)
    return bool(as_product(first, sizes, fixed) or as_contraction(first, sizes, fixed))
