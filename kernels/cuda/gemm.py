"""Matrix products on a CUDA device: C (+)= A @ B (+ bias), tiles of C in registers, tiles of A and B in shared memory.

The usual two levels of blocking: a block of threads computes a tile of C [tile_rows, tile_columns], going through k in
slices of `depth`; each slice of A and of B is read once from memory by all threads of the block into shared memory; a
thread keeps `rows` x `columns` sums in registers, of elements that lie as far apart as there are threads, so that
neighbouring threads read neighbouring numbers of B. With 64 x 64 tiles and slices of 16 a number that is read from
memory is used in 64 multiply-adds, one that is read from shared memory in 4.

Matrices lie in flat arrays with any strides of rows and columns, so that a transpose costs nothing but coalescing. An
element of C is `addend + sum`, the sum a chain of multiply-adds over k in order: tiles change no bit.

Limits: float32 or float64, all operands alike. Shapes are the caller's business. It is there for the simulator, and
where no library of products is installed: it reaches a part of the peak only. `multiply` takes cuBLAS where that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rnnops.kernels.cuda import blas
from rnnops.kernels.cuda.device_array import DeviceArray, on_device
from rnnops.kernels.cuda.facade import array_type, choose, cuda, kernel, launch


@dataclass(frozen=True)
class Tiling:
    """Sizes of tiles.

    Args:
        thread_rows, thread_columns: threads of a block.
        rows, columns: elements of C for each thread, along each axis.
        depth: of a slice of k.
    """

    thread_rows: int = 16
    thread_columns: int = 16
    rows: int = 4
    columns: int = 4
    depth: int = 16

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of C that a block computes."""
        return self.thread_rows * self.rows, self.thread_columns * self.columns

    @property
    def threads(self) -> tuple[int, int]:
        """Of a block: x runs over columns."""
        return self.thread_columns, self.thread_rows


TILING = choose(Tiling(), Tiling(2, 3, 2, 2, 4))


@dataclass(frozen=True)
class Matrix:
    """A matrix in a flat array of the device.

    Args:
        start: of its first element.
        row, column: numbers from one row, and one column, to the next.
    """

    array: Any
    start: int
    row: int
    column: int = 1

    @property
    def transposed(self) -> Matrix:
        """The same numbers with rows for columns."""
        return Matrix(self.array, self.start, self.column, self.row)


def multiply(
    a: Matrix,
    b: Matrix,
    c: Matrix,
    rows: int,
    columns: int,
    inner: int,
    accumulate: bool = False,
    bias: tuple[Any, int] | None = None,
    stream: Any = 0,
) -> None:
    """C [rows, columns] becomes A @ B, plus what is there, or plus a bias.

    Args:
        c: contiguous along rows.
        bias: a flat array, and where in it `columns` numbers begin.
        stream: of the device, in which the product waits for its turn.
    """
    if rows == 0 or columns == 0:
        return
    library = blas.cublas()
    if library is not None and blas.fits(a, b) and isinstance(c.array, DeviceArray):
        if bias is not None:
            _fill_rows(c, rows, columns, bias)
        blas.multiply(library, a, b, c, rows, columns, inner, int(accumulate or bias is not None), stream)
        return
    addends, bias_start = (c.array, 0) if bias is None else bias
    numbers = (a.start, a.row, a.column, b.start, b.row, b.column, c.start, c.row, bias_start)
    sizes = np.array([*numbers, rows, columns, inner, accumulate, bias is not None], np.int64)
    tile_rows, tile_columns = TILING.tile
    blocks = -(-columns // tile_columns), -(-rows // tile_rows)
    product = product_kernel(str(c.array.dtype), TILING)
    launch(product, blocks, TILING.threads, 0, stream, on_device(sizes), a.array, b.array, addends, c.array)


def _fill_rows(c: Matrix, rows: int, columns: int, bias: tuple[Any, int]) -> None:
    """Every row of C becomes a bias."""
    array, start = bias
    lines = c.array[c.start : c.start + rows * c.row].reshape(rows, c.row)
    lines[:, :columns] = array[start : start + columns]


@cache
def product_kernel(dtype: str, tiling: Tiling) -> Any:
    """The kernel for one dtype; arguments: the whole numbers of `multiply`, A, B, addends, C."""
    return kernel(product_function(dtype, tiling), fastmath=False)


def product_function(dtype: str, tiling: Tiling) -> Any:
    """The kernel's Python function."""
    down, across, rows, columns, depth = (
        tiling.thread_rows, tiling.thread_columns, tiling.rows, tiling.columns, tiling.depth,
    )  # fmt: skip
    tile_rows, tile_columns = tiling.tile
    threads, number = down * across, np.dtype(dtype).type

    def product(sizes: Any, a: Any, b: Any, addends: Any, c: Any) -> None:
        a_part = cuda.shared.array((depth, tile_rows), number)
        b_part = cuda.shared.array((depth, tile_columns), number)
        sums = cuda.local.array((rows, columns), number)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        first_row, first_column = cuda.blockIdx.y * tile_rows, cuda.blockIdx.x * tile_columns
        a_start, a_row, a_step, b_start, b_step, b_column = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]
        c_start, c_row, bias_start = sizes[6], sizes[7], sizes[8]
        all_rows, all_columns, inner, accumulate, biased = sizes[9], sizes[10], sizes[11], sizes[12], sizes[13]
        for i in range(rows):
            for j in range(columns):
                sums[i, j] = number(0)
        for k in range(0, inner, depth):
            for place in range(y * across + x, depth * tile_rows, threads):  # 1. a slice of A and one of B
                step, row = place // tile_rows, place % tile_rows
                inside = k + step < inner and first_row + row < all_rows
                a_part[step, row] = (
                    a[a_start + (first_row + row) * a_row + (k + step) * a_step] if inside else number(0)
                )
            for place in range(y * across + x, depth * tile_columns, threads):
                step, column = place // tile_columns, place % tile_columns
                inside = k + step < inner and first_column + column < all_columns
                b_part[step, column] = (
                    b[b_start + (k + step) * b_step + (first_column + column) * b_column] if inside else number(0)
                )
            cuda.syncthreads()
            for step in range(min(depth, inner - k)):  # 2. its products
                for i in range(rows):
                    for j in range(columns):
                        sums[i, j] += a_part[step, i * down + y] * b_part[step, j * across + x]
            cuda.syncthreads()
        for i in range(rows):  # 3. what belongs to C
            for j in range(columns):
                row, column = first_row + i * down + y, first_column + j * across + x
                if row < all_rows and column < all_columns:
                    total = sums[i, j]
                    place = c_start + row * c_row + column
                    if accumulate != 0:
                        total += c[place]
                    elif biased != 0:
                        total += addends[bias_start + column]
                    c[place] = total

    return product


def product_signature(dtype: str) -> Any:
    """numba's types of the kernel's arguments."""
    return (array_type("int64"), *(array_type(dtype) for _ in range(4)))
