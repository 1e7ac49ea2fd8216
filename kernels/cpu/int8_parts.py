"""What generated drivers say in plain Python for products with whole numbers of a byte each.

A packed matrix is the matrix itself, row by row.
"""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu.parts import gemm_packed, pack_into, pack_transposed_into


def pack_into_int8(B: Any, packed: Any) -> None:
    """B [K, N] into memory of its size or more."""
    pack_into(B, packed)


def pack_transposed_into_int8(B: Any, packed: Any) -> None:
    """The transpose of B [N, K] into memory of its size or more."""
    pack_transposed_into(B, packed)


def gemm_packed_int8(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` of bytes."""
    gemm_packed(A, packed.astype(A.dtype), C, accumulate, bias, *part)
