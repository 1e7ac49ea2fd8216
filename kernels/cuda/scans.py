"""What generated drivers of scans call on a CUDA device: products, packing, waits and views, for all lanes of a block.

A driver is the same text as for processors: a block stands for a thread, `rank` of `threads`, and its lanes do every
call together. Modules hold these functions as text (`source`), as the simulator puts its own `cuda` only into the
module that a kernel is from. A function that computes waits for the lanes of its block before it reads what others may
have written, and before it returns.

Limits: products take one element a lane and read weights from memory at every step; matrices are packed row by row.
"""

from __future__ import annotations

import inspect
from typing import Any

from rnnops.kernels.cpu import parts
from rnnops.kernels.cuda.facade import cuda


def wait(barrier: Any, threads: int) -> None:
    """Return when all blocks have called this."""
    if threads > 1:
        cuda.cg.this_grid().sync()
    else:
        cuda.syncthreads()


def gemm_packed(
    A: Any,
    packed: Any,
    C: Any,
    accumulate: bool,
    bias: Any,
    row_begin: int,
    row_end: int,
    column_begin: int,
    column_end: int,
) -> None:
    """That part of C becomes A @ B plus what is there, or plus a bias (or [0]: none); B [K, N] lies row by row."""
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    K, N = A.shape[1], C.shape[1]
    width = column_end - column_begin
    cuda.syncthreads()
    for element in range(lane, (row_end - row_begin) * width, lanes):
        row, column = row_begin + element // width, column_begin + element % width
        total = A[row, 0] * packed[column]
        for k in range(1, K):
            total += A[row, k] * packed[k * N + column]
        if accumulate:
            total = C[row, column] + total
        elif bias.size > 0:
            total = bias[column] + total
        C[row, column] = total
    cuda.syncthreads()


def gemm_tn(
    A: Any, B: Any, C: Any, accumulate: bool, row_begin: int, row_end: int, column_begin: int, column_end: int
) -> None:
    """That part of C [M, N] becomes A^T @ B of A [K, M] and B [K, N], or is increased by it."""
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    width = column_end - column_begin
    cuda.syncthreads()
    for element in range(lane, (row_end - row_begin) * width, lanes):
        row, column = row_begin + element // width, column_begin + element % width
        total = C[row, column] if accumulate else C.dtype.type(0)
        for k in range(A.shape[0]):
            total += A[k, row] * B[k, column]
        C[row, column] = total
    cuda.syncthreads()


def pack_into(B: Any, packed: Any) -> None:
    """B [K, N], row by row."""
    K, N = B.shape
    for element in range(cuda.threadIdx.x, K * N, cuda.blockDim.x):
        packed[element] = B[element // N, element % N]


def pack_transposed_into(B: Any, packed: Any) -> None:
    """The transpose of B [N, K], row by row."""
    N, K = B.shape
    for element in range(cuda.threadIdx.x, K * N, cuda.blockDim.x):
        packed[element] = B[element % N, element // N]


def at(array: Any, offset: int) -> Any:
    """A 1-D array from an element on."""
    return array[offset:]


def list_rows(ends: Any, order: Any, low: int, steps: int, first: int, last: int, lists: Any, start: int) -> int:
    """As in `kernels/cpu/active_rows.py`, once no lane reads the lists of the tile before; all lanes write the same."""
    cuda.syncthreads()
    total: int = list_active_rows(ends, order, low, steps, first, last, lists, start)  # type: ignore[name-defined]  # noqa: F821
    cuda.syncthreads()
    return total


FUNCTIONS = (wait, list_rows, gemm_packed, gemm_tn, pack_into, pack_transposed_into, at)
OF_PROCESSORS = (parts.part, parts.matrix, parts.inside)  # the same on every device


def source() -> str:
    """The text of all functions, for modules that define `cuda` and `device_function`."""
    texts = [inspect.getsource(function).removeprefix("@inlined\n") for function in (*FUNCTIONS, *OF_PROCESSORS)]
    return "\n\n\n".join(f"@device_function\n{text.rstrip()}" for text in texts)
