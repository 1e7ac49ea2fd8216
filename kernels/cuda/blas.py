"""Products by cuBLAS, through CuPy's binding, where it is installed; float32 stays float32 (no TF32).

cuBLAS counts elements column by column: what is `[rows, columns]` row by row is its `[columns, rows]`, so that
`C = A @ B` is asked for as `C^T = B^T @ A^T`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import SIMULATED, cupy_stream, optional


def cublas() -> Any:
    """CuPy's binding of cuBLAS; None where it is not installed, and in the simulator."""
    return None if SIMULATED or optional("cupy") is None else optional("cupy_backends.cuda.libs.cublas")


def fits(*matrices: Any) -> bool:
    """Whether matrices have neighbouring numbers along one of their axes, which cuBLAS wants."""
    return all(1 in (matrix.row, matrix.column) for matrix in matrices)


def multiply(library: Any, a: Any, b: Any, c: Any, rows: int, columns: int, inner: int, beta: int, stream: Any) -> None:
    """C [rows, columns] becomes `A @ B + beta * C`.

    Args:
        library: `cublas()`.
        a, b, c: as `gemm.Matrix`; rows of C are contiguous.
        stream: of the device, 0 for the default one.
    """
    cupy, dtype = optional("cupy"), c.array.dtype
    product = library.sgemm if dtype == np.float32 else library.dgemm
    one, factor = np.ones((), dtype), np.full((), beta, dtype)
    (of_b, b_stride), (of_a, a_stride) = _operand(library, b, columns, inner), _operand(library, a, inner, rows)
    with cupy_stream(cupy, stream):
        handle = cupy.cuda.device.get_cublas_handle()
        library.setPointerMode(handle, library.CUBLAS_POINTER_MODE_HOST)
        library.setMathMode(handle, library.CUBLAS_DEFAULT_MATH)
        product(
            handle, of_b, of_a, columns, rows, inner, one.ctypes.data, _start(b), b_stride, _start(a), a_stride,
            factor.ctypes.data, _start(c), max(c.row, columns),
        )  # fmt: skip


def _operand(library: Any, matrix: Any, columns: int, rows: int) -> tuple[int, int]:
    """How cuBLAS sees `[rows, columns]`, and from where to where its columns go."""
    if matrix.column == 1:
        return library.CUBLAS_OP_N, max(matrix.row, columns)
    return library.CUBLAS_OP_T, max(matrix.column, rows)


def _start(matrix: Any) -> int:
    return int(matrix.array.pointer + matrix.start * matrix.array.itemsize)
