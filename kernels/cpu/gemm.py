"""Matrix products of row-major matrices: x @ W, x @ W^T and A^T @ B, for one thread, on parts of the result.

The outer levels of Goto and van de Geijn (ACM TOMS 34(3), 2008) around `micro_kernel.py`. k goes in blocks of equal
size, at most 512, and rows of C in blocks; within a block panel by panel of B, within a panel tile by tile:

- a block of a panel, 512 x 192 bytes = 96 KiB at 512 bits, stays in L2 for all rows: tiles read 16 bytes of it a cycle;
- a block of A is read once for each panel, 8 rows x 4 bytes beside 192 bytes of B: 3 bytes a cycle, from L2 or L3;
- C is read and written once for every 512 multiply-adds of an element: 8 bytes for 1024 flops in float32;
- B is read from memory once for every block of rows, ahead of its use: M rows give M / 2 flops a byte, so that
  16 rows at 250 GFLOP/s want 31 GB/s as soon as B is larger than the caches.

`gemm_packed` takes B from `packing.py` and A in blocks of 512 KiB, half of a small L2. `gemm_tn` reads both operands
row by row and copies one block of a panel of B to the stack at a time, as rows of B that are a power of two long fall
into few sets of L1 and L2 (0.7 of the peak in place, 0.85 copied); that costs 6 to 10 cycles beside 12 M / 8, so rows
come in blocks of up to 2 MiB of A. A may be any view: `gemm_tn(A.T, B, C, ...)` is A @ B without packing.

Sums do not depend on threads: an element is C (or bias, or zero), then for each block of k the sum of its products in
order; blocks of k depend on K alone. Any cut of rows or columns, any order of parts, any vector width gives the same
bits. Nothing is allocated but 96 KiB of stack, and the interpreter's lock is not held: threads may share one C.

Limits: float32 or float64, all operands alike; rows of B and C contiguous; C overlaps no operand. Shapes are checked
(`ValueError`). One or two rows are bound by reading B (2 flops a byte and row).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable

from rnnops.kernels.cpu.blocks import BIAS, C_ITSELF, K_BLOCK, NOTHING, copy_panel, multiply_block, stack_panel
from rnnops.kernels.cpu.called_by_name import called_by_name
from rnnops.kernels.cpu.linking import link
from rnnops.kernels.cpu.packing import (
    check_packed,
    first_panel,
    full_panels,
    make_packers,
    packed_size,
    panel_vectors,
    vector_count,
)
from rnnops.kernels.cpu.revision import REVISION
from rnnops.kernels.cpu.vector_width import vector_width
from rnnops.kernels.cpu.vectors import ITEM_SIZES, lanes

PACKED_BLOCK_BYTES, TN_BLOCK_BYTES = 2**19, 2**21  # of A in a block of rows
DTYPES: dict[str, Any] = {"float32": types.float32, "float64": types.float64}


@dataclass(frozen=True)
class Gemm:
    """Products of one dtype at one vector width; the fields are functions that compiled code may call.

    gemm_packed(A, packed, C, accumulate, bias, row_begin, row_end, column_begin, column_end): with B [K, N] packed,
        that part of C [M, N] becomes A [M, K] @ B, plus bias [N] (or [0]: none); with `accumulate` the product is
        added to C, and bias must be empty. A panel of B belongs to the part that has its first column.
    gemm_tn(A, B, C, accumulate, row_begin, row_end, column_begin, column_end): that part of C [M, N] becomes
        A^T @ B of A [K, M] and B [K, N], or is increased by it.
    pack_into(B, packed), pack_transposed_into(B, packed): B or B^T into an array of `packed_size(K, N)` numbers.
    """

    dtype: str
    width: int
    gemm_packed: Callable[[Any, Any, Any, bool, Any, int, int, int, int], None]
    gemm_tn: Callable[[Any, Any, Any, bool, int, int, int, int], None]
    pack_into: Callable[[Any, Any], None]
    pack_transposed_into: Callable[[Any, Any], None]

    def packed_size(self, K: int, N: int) -> int:
        """Numbers in a packed matrix [K, N]."""
        return packed_size(K, N, lanes(self.width, self.dtype))

    def pack(self, B: Any) -> Any:
        """B [K, N] as a new packed array."""
        packed = np.empty(self.packed_size(*B.shape), self.dtype)
        self.pack_into(B, packed)
        return packed

    def pack_transposed(self, B: Any) -> Any:
        """The transpose of B [N, K] as a new packed array."""
        packed = np.empty(self.packed_size(*B.shape[::-1]), self.dtype)
        self.pack_transposed_into(B, packed)
        return packed


def gemm(dtype: str, width: int | None = None, compiled: bool = True) -> Gemm:
    """Products for a dtype; `width` None is the host's, `compiled` False gives plain Python functions."""
    return _gemm(dtype, vector_width(width), compiled)


@cache
def _gemm(dtype: str, width: int, compiled: bool) -> Gemm:
    number, size = DTYPES[dtype], types.intp
    vector, matrix = types.Array(number, 1, "C"), types.Array(number, 2, "A")
    read_vector, read_matrix = vector.copy(readonly=True), matrix.copy(readonly=True)
    packed_types = (read_matrix, read_vector, matrix, types.boolean, read_vector, size, size, size, size)
    tn_types = (read_matrix, read_matrix, matrix, types.boolean, size, size, size, size)
    functions: list[Any] = [_make_packed(dtype, width), _make_tn(dtype, width), *make_packers(dtype, width)]
    for function in functions:  # machine code from disk is linked by name: those of two widths are two
        function.__qualname__ = f"{function.__name__}_{dtype}_{width}"
    if compiled:
        link(dtype, width)
        signatures = [packed_types, tn_types, (read_matrix, vector), (read_matrix, vector)]
        functions = [
            called_by_name(function, types.void(*args), error_model="numpy")  # one for all layouts and strides
            for args, function in zip(signatures, functions, strict=True)
        ]
    return Gemm(dtype, width, *functions)


def _make_packed(dtype: str, width: int) -> Callable[..., None]:
    count, row_block, revision = lanes(width, dtype), PACKED_BLOCK_BYTES // (K_BLOCK * ITEM_SIZES[dtype]), REVISION

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
        _ = revision
        K, N = A.shape[1], C.shape[1]
        check_packed(K, N, count, packed)
        check_bias(bias, N, accumulate)
        check_part(C, row_begin, row_end, min(A.shape[0], C.shape[0]), column_begin, column_end)
        vectors, blocks = vector_count(N, count), k_blocks(K)
        begin, end = first_panel(vectors, column_begin, count), vector_count(column_end, count)
        for block in range(blocks):
            k, k_end = K * block // blocks, K * (block + 1) // blocks
            addend = C_ITSELF if accumulate or block > 0 else BIAS if bias.size > 0 else NOTHING
            for row in range(row_begin, row_end, row_block):
                stop, done = min(row + row_block, row_end), begin
                while done < end:
                    wide = panel_vectors(vectors - done)
                    panels = panels_at_once(stop - row, vectors - done, end - done)
                    first, stride = done * count, K * wide * count
                    start = K * first + k * wide * count
                    multiply_block(
                        width, A, packed, start, stride, C, bias, addend, row, stop, first, N, wide, panels, k, k_end,
                        packed, start + panels * stride,
                    )  # fmt: skip
                    done += wide * panels

    return gemm_packed


def _make_tn(dtype: str, width: int) -> Callable[..., None]:
    count, row_block, revision = lanes(width, dtype), TN_BLOCK_BYTES // (K_BLOCK * ITEM_SIZES[dtype]), REVISION

    def gemm_tn(
        A: Any, B: Any, C: Any, accumulate: bool, row_begin: int, row_end: int, column_begin: int, column_end: int
    ) -> None:
        _ = revision
        K = A.shape[0]
        check_tn(A, B, C)
        check_part(C, row_begin, row_end, C.shape[0], column_begin, column_end)
        panel, left = stack_panel(width, B), A.T
        vectors, blocks = vector_count(column_end - column_begin, count), k_blocks(K)
        for block in range(blocks):
            k, k_end = K * block // blocks, K * (block + 1) // blocks
            addend = C_ITSELF if accumulate or block > 0 else NOTHING
            for row in range(row_begin, row_end, row_block):
                stop, done = min(row + row_block, row_end), 0
                while done < vectors:
                    wide, first = panel_vectors(vectors - done), column_begin + done * count
                    copy_panel(width, B, k, k_end, first, column_end, wide, panel, 0)
                    multiply_block(
                        width, left, panel, 0, 0, C, panel, addend, row, stop, first, column_end, wide, 1, k, k_end,
                        B, first + wide * count,
                    )  # fmt: skip
                    done += wide

    return gemm_tn


@register_jitable
def k_blocks(K: int) -> int:
    """Blocks of k; one where there is no k, as C is written all the same."""
    return max(1, (K + K_BLOCK - 1) // K_BLOCK)


@register_jitable
def panels_at_once(rows: int, vectors: int, part: int) -> int:
    """How many panels one tile takes: several for one or two rows, as long as full panels are next.

    Args:
        vectors: that are left of the matrix, which decide how wide panels are.
        part: that are left of the part to be computed, in which a panel has to begin.
    """
    panels = min(full_panels(vectors), (part + 2) // 3)
    if rows > 2 or panels < 2:
        return 1
    return 4 if rows == 1 and panels >= 4 else 2


@register_jitable
def check_bias(bias: Any, N: int, accumulate: bool) -> None:
    if bias.size != 0 and (bias.size != N or accumulate):
        raise ValueError("bias: wanted as many numbers as C has columns, and none where the product is added to C")


@register_jitable
def check_part(C: Any, row_begin: int, row_end: int, rows: int, column_begin: int, column_end: int) -> None:
    if row_begin < 0 or row_end > rows or column_begin < 0 or column_end > C.shape[1]:
        raise ValueError("C: wanted a part that lies within C and A")
    if C.size > 1 and C.shape[1] > 1 and C.strides[1] != C.itemsize:
        raise ValueError("C: wanted contiguous rows")


@register_jitable
def check_tn(A: Any, B: Any, C: Any) -> None:
    if A.shape[0] != B.shape[0] or A.shape[1] != C.shape[0] or B.shape[1] != C.shape[1]:
        raise ValueError("A^T @ B: wanted A [K, M], B [K, N], C [M, N]")
    if B.size > 1 and B.shape[1] > 1 and B.strides[1] != B.itemsize:
        raise ValueError("B: wanted contiguous rows")
