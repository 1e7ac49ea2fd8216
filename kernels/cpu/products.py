"""Products for callers in Python: NumPy arrays, checked, and handed to `gemm.py` and `packing.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from rnnops.kernels.cpu import native
from rnnops.kernels.cpu.native import Library, way_of
from rnnops.kernels.cpu.processor import INT8, NUMBERS, lanes, vector_width

PART = 4  # row_begin, row_end, column_begin, column_end


@dataclass(frozen=True)
class Products:
    """Products of one dtype at one vector width; from `products_of`.

    Args:
        way: how operands that are rounded to bfloat16 lie in words, `PAIRS` or `SINGLES`; `INT8` where B is packed as
            such; empty for exact operands.
    """

    dtype: str
    width: int
    way: str = ""

    def gemm_packed(self, A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
        """That part of C [M, N] becomes A [M, K] @ B, plus bias [N] (or [0]: none); B [K, N] is packed.

        Args:
            accumulate: add the product to C; bias must be empty then.
            part: first row, last row, first column and last column; a panel of B belongs to the part that has its
                first column.

        Raises ValueError for operands that do not fit.
        """
        K, N = A.shape[1], C.shape[1]
        self._check(A, C, bias)
        self._check_packed(packed)
        self._need(packed.size == self.packed_size(K, N), "packed: wrong size for this matrix")
        self._need(bias.size in (0, 0 if accumulate else N), "bias: wanted [N], or [0] where the product is added to C")
        self._need_part(C, A.shape[0], part)
        self._call["gemm_packed"](*_matrix(A), *_vector(packed), *_matrix(C), accumulate, *_vector(bias), *part)

    def gemm_tn(self, A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
        """That part of C [M, N] becomes A^T @ B of A [K, M] and B [K, N], or is increased by it.

        Raises ValueError for operands that do not fit.
        """
        self._check(A, B, C)
        shapes = A.shape[0] == B.shape[0] and C.shape == (A.shape[1], B.shape[1])
        self._need(shapes, "A^T @ B: wanted A [K, M], B [K, N], C [M, N]")
        self._need_part(C, C.shape[0], part)
        self._call["gemm_tn"](*_matrix(A), *_matrix(B), *_matrix(C), accumulate, *part)

    @property
    def packed_dtype(self) -> str:
        """Of packed matrices."""
        return INT8 if self.way == INT8 else self.dtype

    def packed_size(self, K: int, N: int) -> int:
        """Numbers in a packed matrix [K, N]."""
        return prod(self.packed_shape(K, N))

    def packed_shape(self, K: int, N: int) -> tuple[int, int]:
        """Rows of a packed matrix [K, N], as many as words that hold a column, and their numbers, whole vectors."""
        count, each = lanes(self.width, self.dtype), NUMBERS.get(self.way, 1)
        return -(-K // each), -(-N // count) * count

    def pack_into(self, B: Any, packed: Any) -> None:
        """B [K, N] into an array of `packed_size(K, N)` numbers."""
        self._pack("pack_into", B, packed, *B.shape)

    def pack_transposed_into(self, B: Any, packed: Any) -> None:
        """The transpose of B [N, K] into an array of `packed_size(K, N)` numbers."""
        self._pack("pack_transposed_into", B, packed, *B.shape[::-1])

    def pack(self, B: Any) -> Any:
        """B [K, N] as a new packed array."""
        packed = np.empty(self.packed_size(*B.shape), self.packed_dtype)
        self.pack_into(B, packed)
        return packed

    def _pack(self, function: str, B: Any, packed: Any, K: int, N: int) -> None:
        self._check(B)
        self._check_packed(packed)
        self._need(packed.size == self.packed_size(K, N), "packed: wrong size for this matrix")
        self._call[function](*_matrix(B), *_vector(packed))

    @cached_property
    def _call(self) -> dict[str, Callable[..., None]]:
        library = self._library()
        numbers = {"gemm_packed": 13 + PART, "gemm_tn": 13 + PART, "pack_into": 6, "pack_transposed_into": 6}
        return {name: library.callable(name, count) for name, count in numbers.items() if name in library.symbols}

    def _library(self) -> Library:
        if self.way == INT8:
            return native.int8_products(self.width)
        rounded = native.rounded_products
        return rounded(self.way, self.width) if self.way else native.products(self.dtype, self.width)

    def _check_packed(self, packed: Any) -> None:
        if packed.dtype != self.packed_dtype:
            raise TypeError(f"packed: wanted an array of {self.packed_dtype}, came {packed.dtype}")

    def _check(self, *arrays: Any) -> None:
        for array in arrays:
            if array.dtype != self.dtype:
                raise TypeError(f"wanted arrays of {self.dtype}, came {array.dtype}")
            contiguous = array.size < 2 or array.shape[-1] == 1 or array.strides[-1] == array.itemsize
            self._need(contiguous and _row_stride(array) % array.itemsize == 0, "wanted contiguous rows")

    def _need_part(self, C: Any, rows: int, part: tuple[int, ...]) -> None:
        row_begin, row_end, column_begin, column_end = part
        inside = row_begin >= 0 and row_end <= min(rows, C.shape[0]) and column_begin >= 0 and column_end <= C.shape[1]
        self._need(inside, "C: wanted a part that lies within C and A")

    def _need(self, holds: bool, problem: str) -> None:
        if not holds:
            raise ValueError(problem)


def products_of(dtype: str, width: int | None = None) -> Products:
    """Products for a dtype; `width` None is the host's."""
    return Products(dtype, vector_width(width))


def rounded_products_of(width: int | None = None, way: str | None = None) -> Products:
    """Products of float32 operands that are rounded to bfloat16; `way` None is the processor's."""
    bits = vector_width(width)
    return Products("float32", bits, way_of(bits) if way is None else way)


def int8_products_of(width: int | None = None) -> Products:
    """Products of float32 rows with whole numbers from -127 to 127, packed as int8."""
    return Products("float32", vector_width(width), INT8)


def _vector(array: Any) -> tuple[int, int]:
    return array.ctypes.data, array.size


def _matrix(array: Any) -> tuple[int, int, int, int]:
    """An address, rows, numbers from row to row, columns."""
    return array.ctypes.data, array.shape[0], _row_stride(array) // array.itemsize, array.shape[1]


def _row_stride(array: Any) -> int:
    """Bytes from row to row; what NumPy says of a single row means nothing."""
    return int(array.strides[0]) if array.ndim > 1 and array.shape[0] > 1 else 0
