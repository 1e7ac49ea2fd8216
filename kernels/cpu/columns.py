"""Sums down columns, and rows added up where indices send them: gradients of biases and of look-ups.

Every column is one chain of additions in the order of rows, `((out + x[0]) + x[1]) + ...`, whatever range of columns a
call takes, whatever the vector width: threads may share out the columns in any way and get the same bits. The vectors
run along the rows. Sums take eight rows at once, so that `out`, which stays in L1, is read and written once for eight
vectors of x; a column's eight additions wait for each other, but other columns do not. What is left is the memory that
x comes from.

Limits: rows of x and of a matrix `out` are contiguous, any distance apart; one dtype, and `out` overlaps no operand.
Shapes and indices are not checked, `first_out_of_range` is there for indices. Rows below thirty numbers are bound by
the work around the loop.
"""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu.fastmath import OPTIONS, extending
from rnnops.kernels.cpu.pointers import at, restricted, row_at

ROWS = 8  # that `_add_eight` takes


@restricted
def _add_row(x: Any, out: Any, n: Any) -> None:
    for j in range(n):
        out[j] += x[j]


@restricted
def _add_eight(x0: Any, x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, x6: Any, x7: Any, out: Any, n: Any) -> None:
    for j in range(n):
        out[j] = out[j] + x0[j] + x1[j] + x2[j] + x3[j] + x4[j] + x5[j] + x6[j] + x7[j]


@extending.register_jitable(**OPTIONS)
def sum_rows_into(x: Any, out: Any, accumulate: Any, column_begin: Any, column_end: Any) -> None:
    """out[j] becomes the sum of x[:, j], or is increased by it, for columns column_begin to column_end - 1.

    Args:
        x: [rows, columns].
        out: [columns], contiguous.
    """
    to, n, begin, rows = at(out, column_begin), column_end - column_begin, column_begin, x.shape[0]
    if not accumulate:
        for j in range(n):
            to[j] = 0
    in_eights = rows - rows % ROWS
    for r in range(0, in_eights, ROWS):
        _add_eight(
            *(row_at(x, r, begin), row_at(x, r + 1, begin), row_at(x, r + 2, begin), row_at(x, r + 3, begin)),
            *(row_at(x, r + 4, begin), row_at(x, r + 5, begin), row_at(x, r + 6, begin), row_at(x, r + 7, begin)),
            *(to, n),
        )
    for r in range(in_eights, rows):
        _add_row(row_at(x, r, begin), to, n)


@extending.register_jitable(**OPTIONS)
def scatter_add_rows(x: Any, indices: Any, out: Any, column_begin: Any, column_end: Any) -> None:
    """out[indices[r], j] += x[r, j], in the order of r, for columns column_begin to column_end - 1.

    Args:
        x: [count, columns].
        indices: [count], from -size to size - 1; negative ones count from the end.
        out: [size, columns].
    """
    for r in range(indices.shape[0]):
        target = indices[r]
        if target < 0:
            target += out.shape[0]
        _add_row(row_at(x, r, column_begin), row_at(out, target, column_begin), column_end - column_begin)


@extending.register_jitable(**OPTIONS)
def first_out_of_range(indices: Any, size: Any) -> Any:
    """The position of the first of `indices` [count] below -size or above size - 1, -1 if there is none."""
    wrong = 0
    for r in range(indices.shape[0]):  # no early end: that would not be a vector loop
        wrong += (indices[r] < -size) | (indices[r] >= size)
    if wrong > 0:
        for r in range(indices.shape[0]):
            if indices[r] < -size or indices[r] >= size:
                return r
    return -1
