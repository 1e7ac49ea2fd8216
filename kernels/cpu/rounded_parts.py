"""What generated drivers say in plain Python for products of operands rounded to bfloat16.

A packed matrix is the matrix itself, row by row, as the upper halves of its rounded numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.parts import gemm_packed, gemm_tn
from rnnops.kernels.cpu.rounding import round_bfloat16


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
