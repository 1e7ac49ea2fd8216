"""Products and packing of arrays: compiled, for callers in Python, and in plain Python, for generated drivers.

**Packed matrices**: B [K, N] as panels `[panel][K][panel width]`, in the order in which products read them. Panels are
3 vectors wide; the last one or two are 2 vectors wide where N asks for it (7 vectors: 3, 2, 2), and B of a single
vector is one narrow panel. So only the last vector can be partial; it is padded with zeros. A packed matrix is a 1-D
array of K * N rounded up to whole vectors; the panel that starts at column c starts at number K * c.

**Products** take NumPy arrays, check them, and hand them to `gemm.py`.

**Generated drivers in plain Python**: their parts of memory, products and barriers. Compiled drivers call the runtime
for products and barriers. Here a packed matrix is the matrix itself, row by row, in memory that may be larger: as
numbers, as the upper halves of numbers rounded to bfloat16, or as whole numbers of a byte each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rnnops.kernels.cpu import native, threads
from rnnops.kernels.cpu.native import Library, way_of
from rnnops.kernels.cpu.processor import INT8, NUMBERS, QUADS, lanes, vector_width
from rnnops.kernels.cpu.words import only_compiled
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.kernels.cpu import pointwise
else:  # for plain Python only
    pointwise = LazyModule("rnnops.kernels.cpu.pointwise")

K_BLOCK = 512  # rows of a panel that lies on the stack


def at(array: Any, offset: int) -> Any:
    """An element of a 1-D array, and what follows it; memory of its own, whatever else is at hand."""
    return array[offset:]


def vector(array: Any, start: int, count: int) -> Any:
    """So many numbers of a 1-D array. Nothing is checked."""
    return array[start : start + count]


def matrix(array: Any, start: int, rows: int, stride: int, column: int, columns: int) -> Any:
    """`[rows, columns]` in a 1-D array: rows begin at `start + column`, `stride` numbers apart. Nothing is checked."""
    first = array[start + column :]  # behind the last row there may be less than a stride
    return as_strided(first, (rows, columns), (stride * first.itemsize, first.itemsize))


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


def gemm_nn(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """That part of C becomes A @ B, or is increased by it."""
    gemm_tn(A.T, B, C, accumulate, *part)


def gemm_nt(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """That part of C becomes A @ B^T, or is increased by it."""
    gemm_tn(A.T, B.T, C, accumulate, *part)


def prefetch(numbers: Any) -> None:
    """Nothing: what lies in memory is at hand."""


def wait(barrier: Any, threads: int) -> None:
    """One thread has none to meet. Raises DeviceError for more."""
    if threads > 1:
        only_compiled()


def list_rows(ends: Any, order: Any, low: int, steps: int, first: int, last: int, lists: Any, start: int) -> int:
    """`threads.list_rows` of arrays."""
    (e, batch), (o, _), (rows, size) = ((array.ctypes.data, array.size) for array in (ends, order, lists))
    numbers = map(int, (low, steps, first, last, rows, size, start))
    return threads.list_rows(e, batch, o, batch, *numbers)


def pack_into_bfloat16(B: Any, packed: Any) -> None:
    """B [K, N] into memory of half its size or more."""
    packed.view(np.uint16)[: B.size] = (pointwise.round_bfloat16(B).ravel().view(np.uint32) >> 16).astype(np.uint16)


def pack_transposed_into_bfloat16(B: Any, packed: Any) -> None:
    """The transpose of B [N, K] into memory of half its size or more."""
    pack_into_bfloat16(B.T, packed)


def gemm_packed_bfloat16(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` of operands that are rounded."""
    upper = packed.view(np.uint16)[: A.shape[1] * C.shape[1]]
    B = (upper.astype(np.uint32) << 16).view(np.float32)
    gemm_packed(pointwise.round_bfloat16(A), B, C, accumulate, bias, *part)


def gemm_tn_bfloat16(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """`gemm_tn` of operands that are rounded."""
    gemm_tn(pointwise.round_bfloat16(A), pointwise.round_bfloat16(B), C, accumulate, *part)


def pack_into_int8(B: Any, packed: Any) -> None:
    """B [K, N] into memory of its size or more."""
    pack_into(B, packed)


def pack_transposed_into_int8(B: Any, packed: Any) -> None:
    """The transpose of B [N, K] into memory of its size or more."""
    pack_transposed_into(B, packed)


def gemm_packed_int8(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` of bytes."""
    gemm_packed(A, packed.astype(A.dtype), C, accumulate, bias, *part)


def pack_into_bytes(B: Any, packed: Any) -> None:
    """B [K, N] into memory of its size or more."""
    pack_into(B, packed)


def pack_transposed_into_bytes(B: Any, packed: Any) -> None:
    """The transpose of B [N, K] into memory of its size or more."""
    pack_transposed_into(B, packed)


def gemm_packed_bytes(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` of bytes on both sides."""
    gemm_packed_int8(A, packed, C, accumulate, bias, *part)


PART = 4  # row_begin, row_end, column_begin, column_end


@dataclass(frozen=True)
class Products:
    """Products of one dtype at one vector width; from `products_of`.

    Args:
        way: how operands that are rounded to bfloat16 lie in words, `PAIRS` or `SINGLES`; `QUADS` where both are bytes;
            `INT8` where B is packed as such; empty for exact operands.
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
        self._multiply("gemm_tn", A, B, C, accumulate, part, A.T, B)

    def gemm_nn(self, A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
        """The same of A @ B, of A [M, K] and B [K, N]."""
        self._multiply("gemm_nn", A, B, C, accumulate, part, A, B)

    def gemm_nt(self, A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
        """The same of A @ B^T, of A [M, K] and B [N, K]."""
        self._multiply("gemm_nt", A, B, C, accumulate, part, A, B.T)

    def _multiply(
        self, name: str, A: Any, B: Any, C: Any, accumulate: bool, part: tuple[int, ...], left: Any, right: Any
    ) -> None:
        fits = left.shape[1] == right.shape[0] and C.shape == (left.shape[0], right.shape[1])
        self._need(fits, f"{name}: wanted operands of C [M, N] over K, came {A.shape}, {B.shape} and {C.shape}")
        self._need_part(C, C.shape[0], part)
        self._call[name](*_matrix(A), *_matrix(B), *_matrix(C), accumulate, *part)

    @property
    def packed_dtype(self) -> str:
        """Of packed matrices."""
        return INT8 if self.way in (INT8, QUADS) else self.dtype

    def packed_size(self, K: int, N: int) -> int:
        """Numbers in a packed matrix [K, N]."""
        return prod(self.packed_shape(K, N))

    def packed_shape(self, K: int, N: int) -> tuple[int, int]:
        """Rows of a packed matrix [K, N], as many as words that hold a column, and their numbers, whole vectors.

        Of quads, rows are those of bytes, whole words.
        """
        count, each = lanes(self.width, self.dtype), NUMBERS.get(self.way, 1)
        return -(-K // each) * (each if self.way == QUADS else 1), -(-N // count) * count

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
        products = dict.fromkeys(("gemm_packed", "gemm_tn", "gemm_nn", "gemm_nt"), 13 + PART)
        numbers = {**products, "pack_into": 6, "pack_transposed_into": 6}
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


def _vector(array: Any) -> tuple[int, int]:
    return array.ctypes.data, array.size


def _matrix(array: Any) -> tuple[int, int, int, int]:
    """An address, rows, numbers from row to row, columns."""
    return array.ctypes.data, array.shape[0], _row_stride(array) // array.itemsize, array.shape[1]


def _row_stride(array: Any) -> int:
    """Bytes from row to row; what NumPy says of a single row means nothing."""
    return int(array.strides[0]) if array.ndim > 1 and array.shape[0] > 1 else 0
