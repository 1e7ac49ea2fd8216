"""Packed matrices: B [K, N] as panels `[panel][K][panel width]`, in the order in which products read them.

Panels are 3 vectors wide; the last one or two are 2 vectors wide where N asks for it (7 vectors: 3, 2, 2), and B of a
single vector is one narrow panel. So only the last vector can be partial; it is padded with zeros. A packed matrix is a
1-D array of K * N rounded up to whole vectors; the panel that starts at column c starts at number K * c.

Packing reads and writes each number once. `pack_into` copies whole rows of a panel; `pack_transposed_into` takes B^T in
squares of 16 x 16, of which each line of memory is touched once, 0.3 to 1 ns a number (copying: 0.1 to 0.5).

Limits: rows of what is packed must be contiguous; no NaN or infinity is treated specially.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from rnnops.kernels.cpu.blocks import copy_panel
from rnnops.kernels.cpu.revision import REVISION
from rnnops.kernels.cpu.vectors import lanes

SQUARE = 16


@register_jitable
def panel_vectors(left: int) -> int:
    """Vectors of the next panel where `left` vectors are left."""
    return left if left < 3 else 2 if left == 4 else 3


@register_jitable
def full_panels(left: int) -> int:
    """How many of the next panels are 3 vectors wide where `left` vectors are left."""
    return left // 3 if left % 3 != 1 else max(0, left - 4) // 3


@register_jitable
def first_panel(vectors: int, column: int, count: int) -> int:
    """The vector at which the first panel begins that begins at a column or behind it; `vectors` where none does."""
    done = 0
    while done < vectors and done * count < column:
        done += panel_vectors(vectors - done)
    return done


@register_jitable
def vector_count(columns: int, count: int) -> int:
    """Vectors of `count` lanes that hold a row."""
    return (columns + count - 1) // count


def packed_size(K: int, N: int, count: int) -> int:
    """Numbers in a packed matrix, padding included."""
    return K * vector_count(N, count) * count


@register_jitable
def check_packed(K: int, N: int, count: int, packed: Any) -> None:
    """Raises where an array is not of the size that B [K, N] packs to."""
    if packed.size != K * vector_count(N, count) * count:
        raise ValueError("packed: wrong size for this matrix, data type and vector width")


def make_packers(dtype: str, width: int) -> tuple[Callable[[Any, Any], None], Callable[[Any, Any], None]]:
    """`pack_into(B, packed)` and `pack_transposed_into(B, packed)`, to be compiled."""
    count, revision = lanes(width, dtype), REVISION

    def pack_into(B: Any, packed: Any) -> None:
        """B [K, N] into `packed`."""
        _ = revision
        K, N = B.shape
        check_packed(K, N, count, packed)
        if B.size > 1 and N > 1 and B.strides[1] != B.itemsize:
            raise ValueError("B: wanted contiguous rows")
        vectors, done = vector_count(N, count), 0
        while done < vectors:
            wide, column = panel_vectors(vectors - done), done * count
            copy_panel(width, B, 0, K, column, N, wide, packed, K * column)
            done += wide

    def pack_transposed_into(B: Any, packed: Any) -> None:
        """B^T [K, N] into `packed`, from B [N, K]."""
        _ = revision
        N, K = B.shape
        check_packed(K, N, count, packed)
        vectors, done = vector_count(N, count), 0
        while done < vectors:
            wide, column = panel_vectors(vectors - done) * count, done * count
            _transpose_panel(B, column, min(wide, N - column), packed[K * column : K * (column + wide)])
            done += wide // count

    return pack_into, pack_transposed_into


@register_jitable
def _transpose_panel(B: Any, column: int, columns: int, panel: Any) -> None:
    """Rows column:column + columns of B become columns of a panel; its other columns become zero."""
    K = B.shape[1]
    target = panel.reshape(K, panel.size // max(1, K))
    target[:, columns:] = 0
    for k in range(0, K, SQUARE):
        for c in range(0, columns, SQUARE):
            _transpose_square(B, column, c, min(c + SQUARE, columns), k, min(k + SQUARE, K), target)


@register_jitable
def _transpose_square(B: Any, column: int, c_begin: int, c_end: int, k_begin: int, k_end: int, target: Any) -> None:
    for c in range(np.uint64(c_begin), np.uint64(c_end)):
        for k in range(np.uint64(k_begin), np.uint64(k_end)):
            target[k, c] = B[np.uint64(column) + c, k]
