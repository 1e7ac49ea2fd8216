"""What generated drivers say in plain Python: parts of memory, products, barriers.

Compiled drivers call the runtime for products and barriers. Here a packed matrix is the matrix itself, row by row, in
memory that may be larger.
"""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu import active_rows
from rnnops.kernels.cpu.instructions import only_compiled


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
    """One thread meets nobody. Raises DeviceError for more."""
    if threads > 1:
        only_compiled()


def list_rows(ends: Any, order: Any, low: int, steps: int, first: int, last: int, lists: Any, start: int) -> int:
    """`active_rows.list_rows` of arrays."""
    (e, batch), (o, _), (rows, size) = ((array.ctypes.data, array.size) for array in (ends, order, lists))
    numbers = map(int, (low, steps, first, last, rows, size, start))
    return active_rows.list_rows(e, batch, o, batch, *numbers)
