"""Large products of a step: which matrix products run as blocked products, and how matrices are packed for them.

A product of rows with a matrix that is the same at every step is blocked (`Product`). A product whose inner axis runs
over the batch is blocked over a whole tile of steps (`Contraction`): the gradient of a weight. All other products stay
statements of pointwise kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from rnnops.compiler.ir.layouts import dense
from rnnops.compiler.ir.nodes import Contraction, Product
from rnnops.compiler.ir.statements import Access, Statement


def as_product(statement: Statement, sizes: Mapping[str, int], invariant: Collection[str]) -> Product | None:
    """The statement as a product of rows with a fixed matrix; None where it is none.

    Args:
        sizes: numbers from one step of an owner to the next.
    """
    if statement.form != "product" or statement.start is None or len(statement.extents) < 2:
        return None
    left, right = statement.operands
    inner = len(statement.extents) - 1
    if not isinstance(left, Access) or not isinstance(right, Access) or left.index or right.index:
        return None
    if left.owner in invariant or statement.extents[inner] == 1:  # an outer product is elementwise work
        return None
    columns = inner - 1
    moving = [axis for axis, stride in enumerate(right.layout.strides) if stride and statement.extents[axis] > 1]
    if right.owner not in invariant or not set(moving) <= {columns, inner} or statement.extents[columns] < 2:
        return None
    if left.layout.strides[columns] != 0 or statement.row_axis in (columns, inner):
        return None
    rows = prod(statement.extents[:columns])
    stride = _common_stride(left, range(columns), sizes[left.owner] // rows)
    if not _is_matrix(left, stride, rows, statement.extents[inner], left.layout.strides[inner], sizes):
        return None
    if statement.target.layout.strides[columns] != 1 or statement.target.layout != dense_over(statement, inner):
        return None
    extents = (statement.extents[inner], statement.extents[columns])
    matrix = replace(right, layout=right.layout.with_axes((inner, columns), extents))
    if packing_of(matrix) is None:
        return None
    return Product(
        statement.blob, left.owner, rows, *extents, left.layout.offset, stride or 0, matrix, statement.target.owner,
        rounding=statement.rounding,
    )  # fmt: skip


def dense_over(statement: Statement, inner: int) -> object:
    """The layout of a target that is written in full, in order, by a fold over axis `inner`."""
    shape = tuple(size for axis, size in enumerate(statement.extents) if axis != inner)
    order = [axis if axis < inner else None for axis in range(len(statement.extents))]
    return dense(shape).with_axes(tuple(order), statement.extents)


def as_contraction(
    statement: Statement, sizes: Mapping[str, int], invariant: Collection[str], whole: bool = False
) -> Contraction | None:
    """The statement as a product that folds the batch; None where it is none.

    Args:
        sizes: as for `as_product`.
        whole: whether all rows are one, so that every fold folds them.
    """
    if statement.form != "product" or statement.fold != "add":
        return None
    if not whole and statement.row_axis not in statement.folded_axes():
        return None
    left, right = statement.operands
    if not isinstance(left, Access) or not isinstance(right, Access) or left.index or right.index:
        return None
    if left.owner in invariant or right.owner in invariant:
        return None  # which has no rows for each step
    folded = statement.folded_axes()
    kept = [axis for axis, size in enumerate(statement.extents) if axis not in folded and size > 1]
    of_left = [axis for axis in kept if left.layout.strides[axis] and not right.layout.strides[axis]]
    of_right = [axis for axis in kept if right.layout.strides[axis] and not left.layout.strides[axis]]
    if len(of_left) != 1 or len(of_right) != 1 or len(kept) != 2:
        return None
    (row,), (column,) = of_left, of_right
    if statement.target.layout.strides[row] == 1:  # the target lies the other way round
        (left, row), (right, column) = (right, column), (left, row)
    inner = prod(statement.extents[axis] for axis in folded)
    strides = [_common_stride(side, folded, sizes[side.owner] // inner) for side in (left, right)]
    matrices = [
        _is_matrix(side, stride, inner, statement.extents[axis], side.layout.strides[axis], sizes)
        for side, stride, axis in ((left, strides[0], row), (right, strides[1], column))
    ]
    target = statement.target.layout
    extents = (statement.extents[row], statement.extents[column])
    if not all(matrices) or target.offset or target.strides[column] != 1 or target.strides[row] != extents[1]:
        return None
    return Contraction(
        statement.blob, left.owner, right.owner, inner, *extents, left.layout.offset, strides[0] or 0,
        right.layout.offset, strides[1] or 0, statement.target.owner, statement.rounding,
    )  # fmt: skip


def _common_stride(access: Access, axes: Iterable[int], single: int) -> int | None:
    """The stride of several axes taken as one, `single` where nothing moves, None where they are no one axis."""
    stride, step = None, 0
    for axis in reversed([axis for axis in axes if access.layout.shape[axis] > 1]):
        size, own = access.layout.shape[axis], access.layout.strides[axis]
        if stride is None:
            stride, step = own, own * size
        elif own == step:
            step = own * size
        else:
            return None
    return single if stride is None else stride


def _is_matrix(
    access: Access, stride: int | None, rows: int, columns: int, column_stride: int, sizes: Mapping[str, int]
) -> bool:
    """Whether an access is `[rows, columns]` within rows of `stride` numbers that make up one step of its owner."""
    if stride is None or stride <= 0 or rows * stride != sizes[access.owner]:
        return False
    within = access.layout.offset % stride + columns <= stride
    return within and (columns == 1 or column_stride == 1)


@dataclass(frozen=True)
class Packing:
    """How a matrix `[inner, columns]` lies in its owner: from `start` on in rows of `stride` numbers, at `column`."""

    start: int
    stride: int
    column: int
    transposed: bool


def packing_of(matrix: Access) -> Packing | None:
    """How to pack a matrix, None where neither its rows nor its columns are contiguous."""
    (inner, columns), (along, across) = matrix.layout.shape, matrix.layout.strides
    for transposed, rows, width, near, far in (
        (False, inner, columns, across, along),
        (True, columns, inner, along, across),
    ):
        stride = far if rows > 1 else width
        column = matrix.layout.offset % stride if rows > 1 and stride > 0 else 0
        if (near == 1 or width == 1) and stride >= width and column + width <= stride:
            return Packing(matrix.layout.offset - column, stride, column, transposed)
    return None
