"""Parts of generated drivers in plain Python.

**What generated drivers say in plain Python**: parts of memory, products, barriers. Compiled drivers call the runtime
for products and barriers. Here a packed matrix is the matrix itself, row by row, in memory that may be larger.

**What generated drivers say in plain Python for products of operands rounded to bfloat16**. A packed matrix is the
matrix itself, row by row, as the upper halves of its rounded numbers.

**What generated drivers say in plain Python for products with whole numbers of a byte each**. A packed matrix is the
matrix itself, row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu import row_order
from rnnops.kernels.cpu.bits import round_bfloat16
from rnnops.kernels.cpu.words import only_compiled


def at(array: Any, offset: int) -> Any:
    """An element of a 1-D array, and what follows it; memory of its own, whatever else is at hand."""
    return array[offset:]


def vector(array: Any, start: int, count: int) -> Any:
    """So many numbers of a 1-D array. Nothing is checked."""
    return array[start : start + count]


def matrix(array: Any, start: int, rows: int, stride: int, column: int, columns: int) -> Any:
    """`[rows, columns]` in a 1-D array: rows begin at `start + column`, `stride` numbers apart. Nothing is checked."""
    return array[start : start + rows * stride].reshape((rows, stride))[:, column : column + columns]


def pack_into(B: Any, packed: Any) -> None:
    """B [K, N] into memory of its size or more."""
    packed[: B.size] = B.ravel()


def pack_transposed_into(B: Any, packed: Any) -> None:
    """The transpose of B [N, K] into memory of its size or more."""
    packed[: B.size] = B.T.ravel()


def gemm_packed(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """That part of C becomes A @ B, or A @ B + bias where there is one, or is increased by A @ B."""
    first, last, begin, end = part
    K, N = A.shape[1], C.shape[1]
    product = A[first:last] @ packed[: K * N].reshape(K, N)[:, begin:end]
    target = C[first:last, begin:end]
    target[...] = target + product if accumulate else product + bias[begin:end] if bias.size else product


def gemm_tn(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """That part of C becomes A^T @ B, or is increased by it."""
    first, last, begin, end = part
    product, target = A[:, first:last].T @ B[:, begin:end], C[first:last, begin:end]
    target[...] = target + product if accumulate else product


def prefetch(numbers: Any) -> None:
    """Nothing: what lies in memory is at hand."""


def wait(barrier: Any, threads: int) -> None:
    """One thread has none to meet. Raises DeviceError for more."""
    if threads > 1:
        only_compiled()


def list_rows(ends: Any, order: Any, low: int, steps: int, first: int, last: int, lists: Any, start: int) -> int:
    """`row_order.list_rows` of arrays."""
    (e, batch), (o, _), (rows, size) = ((array.ctypes.data, array.size) for array in (ends, order, lists))
    numbers = map(int, (low, steps, first, last, rows, size, start))
    return row_order.list_rows(e, batch, o, batch, *numbers)


def pack_into_bfloat16(B: Any, packed: Any) -> None:
    """B [K, N] into memory of half its size or more."""
    packed.view(np.uint16)[: B.size] = (round_bfloat16(B).ravel().view(np.uint32) >> 16).astype(np.uint16)


def pack_transposed_into_bfloat16(B: Any, packed: Any) -> None:
    """The transpose of B [N, K] into memory of half its size or more."""
    pack_into_bfloat16(B.T, packed)


def gemm_packed_bfloat16(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` of operands that are rounded."""
    upper = packed.view(np.uint16)[: A.shape[1] * C.shape[1]]
    B = (upper.astype(np.uint32) << 16).view(np.float32)
    gemm_packed(round_bfloat16(A), B, C, accumulate, bias, *part)


def gemm_tn_bfloat16(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """`gemm_tn` of operands that are rounded."""
    gemm_tn(round_bfloat16(A), round_bfloat16(B), C, accumulate, *part)


def pack_into_int8(B: Any, packed: Any) -> None:
    """B [K, N] into memory of its size or more."""
    pack_into(B, packed)


def pack_transposed_into_int8(B: Any, packed: Any) -> None:
    """The transpose of B [N, K] into memory of its size or more."""
    pack_transposed_into(B, packed)


def gemm_packed_int8(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` of bytes."""
    gemm_packed(A, packed.astype(A.dtype), C, accumulate, bias, *part)
