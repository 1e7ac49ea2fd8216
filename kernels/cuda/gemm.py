"""Matrix products on a CUDA device: by cuBLAS where it is installed, else by kernels of our own.

**cuBLAS**: operands of float32 stay float32, unless a product names a format to round to. cuBLAS then gets unrounded
operands and a kind of computation that allows rounding for tensor cores. It rounds to that format or to a finer one.
The library is called by ctypes, in the current stream. CuPy's binding would not do: it refuses to work while a CUDA
graph is recorded, and its module loads only if something else has loaded cuBLAS before. cuBLAS counts elements column
by column. A matrix `[rows, columns]` row by row is its `[columns, rows]`, so `C = A @ B` is asked for as
`C^T = B^T @ A^T`.

**Kernels**: C (+)= A @ B (+ bias), tiles of C in registers, tiles of A and B in shared memory. There are the usual two
levels of blocking. A block of threads computes a tile of C [tile_rows, tile_columns], going through k in slices of
`depth`. All its threads together read each slice of A and of B once from memory into shared memory. A thread keeps
`rows` x `columns` sums in registers. Their elements lie as far apart as there are threads, so neighbouring threads read
neighbouring numbers of B. With 64 x 64 tiles and slices of 16, a number from memory is used in 64 multiply-adds, and a
number from shared memory in 4.

Matrices lie in flat arrays with any strides of rows and columns, so a transpose costs only coalescing. An element of C
is `addend + sum`. The sum is a chain of multiply-adds over k in order, so tiles change no bit. One launch computes
several products, so that small ones fill the device together. Limits: float32 or float64, all operands alike. Callers
check shapes. A kernel reaches only a part of the peak: it is there for the simulator, and for machines without a
library of products.

**Rounded operands on tensor cores**: a block of warps computes a tile of C and goes through k in slices. Shared memory
holds a slice of A as float32 rows and a slice of B as rounded fragments. A warp keeps the sums of 16 or 32 rows and a
few tiles of 8 columns in registers (`tensor_cores.py`). An element of C is `addend + sum`. The sum goes over k in
order, a chunk of 16 at a time, so tiles change no bit. Limits: operands and sums are float32. A block reads a slice
only after it has multiplied the slice before.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from rnnops.errors import DeviceError
from rnnops.kernels.cuda import gemm, tensor_cores
from rnnops.kernels.cuda.device_array import DeviceArray
from rnnops.kernels.cuda.facade import (
    SIMULATED,
    address_of,
    choose,
    cuda,
    current_device,
    kernel,
    launch,
    optional,
)
from rnnops.kernels.cuda.memory import current_lender, is_captured
from rnnops.kernels.cuda.tensor_cores import (
    CHUNK,
    INSTRUCTIONS,
    OF_LANE,
    OF_TILE,
    ROWS,
    SUMS,
    TILE_COLUMNS,
    WARP,
    keep_fragments,
    no_sums,
)

NORMAL, TRANSPOSED = 0, 1  # cublasOperation_t
MAJOR, MINOR = 0, 1  # libraryPropertyType
MOST = 2**31 - 1  # the largest size or stride that cuBLAS takes
WORKSPACE = 32 << 20  # bytes: NVIDIA's advice for compute capability 9.0 and more; older devices need less
FINDER = "cuda.pathfinder"  # NVIDIA's own: wheels, conda, CUDA_HOME, the system; comes with numba-cuda
ROUNDED, SINGLE, ANY_ALGORITHM = "cublasGemmEx", 0, -1  # CUDA_R_32F of cudaDataType, CUBLAS_GEMM_DEFAULT
ROUNDINGS = {"float16": 74, "bfloat16": 75, "tfloat32": 77}  # CUBLAS_COMPUTE_32F_FAST_16F, ..._16BF, ..._TF32
PRODUCTS = {"float32": ("cublasSgemm_v2", c_float), "float64": ("cublasDgemm_v2", c_double)}


class Cublas:
    """cuBLAS of one process. Raises the errors of its finder and loader, and DeviceError if it does not start."""

    def __init__(self) -> None:
        finder = optional(FINDER)
        if finder is None:
            raise DeviceError(f"the package {FINDER} is not installed", hint="It comes with numba-cuda.")
        self.path = str(finder.load_nvidia_dynamic_lib("cublas").abs_path)
        self._library = ctypes.CDLL(self.path)
        self._products = {dtype: (name, self._product(name, kind), kind) for dtype, (name, kind) in PRODUCTS.items()}
        self._products |= {name: (ROUNDED, self._rounded(kind), c_float) for name, kind in ROUNDINGS.items()}
        self._library.cublasSetStream_v2.argtypes = [c_void_p, c_void_p]
        self._library.cublasSetWorkspace_v2.argtypes = [c_void_p, c_void_p, c_size_t]
        self._lock = threading.Lock()  # a handle has one stream at a time
        self._handles: dict[int, c_void_p] = {}
        self._handle()  # fails now, and not during a run, if the library is too new for the driver

    def __str__(self) -> str:
        return f"cuBLAS {'.'.join(str(self._property(which)) for which in (MAJOR, MINOR))}"

    def multiply(
        self, a: Any, b: Any, c: Any, rows: int, columns: int, inner: int, beta: int, stream: Any, rounding: str = ""
    ) -> None:
        """C [rows, columns] becomes `A @ B + beta * C`.

        Args:
            a, b, c: each a `gemm.Matrix`; rows of C are contiguous.
            stream: a stream of the device, 0 for the default one.
            rounding: the format that operands of float32 may be rounded to, a key of `ROUNDINGS`; empty for none.
        """
        name, product, number = self._products[rounding or str(c.array.dtype)]
        (of_b, b_stride), (of_a, a_stride) = _operand(b, columns, inner), _operand(a, inner, rows)
        with self._lock:
            handle = self._handle()
            _check(self._library.cublasSetStream_v2(handle, address_of(stream)), "cublasSetStream")
            _lent = self._workspace(handle)  # until the product is in the stream
            status = product(
                handle, of_b, of_a, columns, rows, inner, byref(number(1)), (_start(b), b_stride),
                (_start(a), a_stride), byref(number(beta)), (_start(c), max(c.row, columns)),
            )  # fmt: skip
        _check(status, name)

    def _workspace(self, handle: c_void_p) -> Any:
        """Memory from the lender during a capture, because cuBLAS would allocate its own. None otherwise.

        The next `cublasSetStream` makes cuBLAS forget this memory.
        """
        lender = current_lender()
        if lender is None or not is_captured():
            return None
        owner, pointer = lender.take(WORKSPACE)
        _check(self._library.cublasSetWorkspace_v2(handle, pointer, WORKSPACE), "cublasSetWorkspace")
        return owner

    def _product(self, name: str, number: Any) -> Any:
        """A function of cuBLAS that takes each matrix as a tuple of address and stride."""
        function, matrix = getattr(self._library, name), (c_void_p, c_int)
        function.argtypes = [c_void_p, *(c_int,) * 5, POINTER(number), *matrix, *matrix, POINTER(number), *matrix]
        return lambda *given: function(*given[:7], *given[7], *given[8], given[9], *given[10])

    def _rounded(self, computation: int) -> Any:
        """The same for products of float32 whose operands the library may round."""
        function, matrix, scale = getattr(self._library, ROUNDED), (c_void_p, c_int, c_int), POINTER(c_float)
        function.argtypes = [c_void_p, *(c_int,) * 5, scale, *matrix, *matrix, scale, *matrix, c_int, c_int]

        def product(*given: Any) -> Any:
            b, a, c = ((start, SINGLE, stride) for start, stride in (given[7], given[8], given[10]))
            return function(*given[:7], *b, *a, given[9], *c, computation, ANY_ALGORITHM)

        return product

    def _handle(self) -> c_void_p:
        """The handle of the current device, in cuBLAS's default mode: products of float32 do not use TF32."""
        device = current_device()
        if device not in self._handles:
            made = c_void_p()
            _check(self._library.cublasCreate_v2(byref(made)), f"cublasCreate of {self}")
            self._handles[device] = made
        return self._handles[device]

    def _property(self, which: int) -> int:
        found = c_int()
        self._library.cublasGetProperty(which, byref(found))
        return found.value


def cublas() -> Cublas | None:
    """cuBLAS, None if it is missing or does not start. The answer never changes within a process."""
    return _found()[0]


def product_library() -> str:
    """The library for products of whole tiles, and the reason if it is not cuBLAS."""
    library, reason = _found()
    return str(library) if library is not None else f"kernels of rnnops ({reason})"


@cache
def _found() -> tuple[Cublas | None, str]:
    if SIMULATED:
        return None, "the simulator has no cuBLAS"
    try:
        return Cublas(), ""
    except Exception as error:  # the finder, the loader or the driver may fail
        return None, f"no cuBLAS: {type(error).__name__}: {' '.join(str(error).split())}"


def fits(matrix: Any, rows: int, columns: int) -> bool:
    """True if cuBLAS can take a matrix: one axis is contiguous, its lines do not overlap, sizes are not too large."""
    apart, inside, along = (matrix.row, columns, rows) if matrix.column == 1 else (matrix.column, rows, columns)
    return 1 in (matrix.row, matrix.column) and (inside <= apart <= MOST or along == 1) and max(rows, columns) <= MOST


def _operand(matrix: Any, columns: int, rows: int) -> tuple[int, int]:
    """cuBLAS's name for the order of a matrix `[rows, columns]`, and the stride of its columns in cuBLAS."""
    if matrix.column == 1:
        return NORMAL, max(matrix.row, columns, 1)
    return TRANSPOSED, max(matrix.column, rows, 1)


def _start(matrix: Any) -> int:
    return int(matrix.array.pointer + matrix.start * matrix.array.itemsize)


def _check(status: int, what: str) -> None:
    if status != 0:
        raise DeviceError(f"{what} failed", came=f"status {status} of cublasStatus_t")


@dataclass(frozen=True)
class Tiling:
    """Sizes of tiles.

    Args:
        thread_rows, thread_columns: threads of a block along each axis of C.
        rows, columns: elements of C for each thread, along each axis.
        depth: numbers of k in a slice.
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
        """Threads of a block along x and y: x runs over columns."""
        return self.thread_columns, self.thread_rows


TILING = choose(Tiling(), Tiling(2, 3, 2, 2, 4))
NUMBERS = 14  # numbers of `Product.numbers`, which the kernel reads
TOGETHER = 6  # the most products of one launch: their numbers are arguments, and kernels have little room for these


@dataclass(frozen=True)
class Matrix:
    """A matrix in a flat array of the device.

    Args:
        start: index of its first element in the array.
        row, column: distance of neighbouring rows, and of neighbouring columns, in numbers.
    """

    array: Any
    start: int
    row: int
    column: int = 1

    @property
    def transposed(self) -> Matrix:
        """The transposed matrix, over the same numbers."""
        return Matrix(self.array, self.start, self.column, self.row)


class Product(NamedTuple):
    """C [rows, columns] becomes A [rows, inner] @ B [inner, columns], plus its old value, or plus a bias.

    Args:
        c: contiguous along rows.
        bias: a flat array, and the index in it at which `columns` numbers begin.
        rounding: the format that operands of float32 are rounded to first, a key of `INSTRUCTIONS`; empty for none.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    rows: int
    columns: int
    inner: int
    accumulate: bool = False
    bias: tuple[Any, int] | None = None
    rounding: str = ""

    @property
    def addends(self) -> tuple[Any, int]:
        """The bias. If there is none, C's array, which the kernel then does not read as a bias."""
        return (self.c.array, 0) if self.bias is None else self.bias

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the product that the kernel reads, `NUMBERS` of them."""
        a, b, c = self.a, self.b, self.c
        places = (a.start, a.row, a.column, b.start, b.row, b.column, c.start, c.row, self.addends[1])
        return (
            *map(int, places),
            self.rows,
            self.columns,
            self.inner,
            int(self.accumulate),
            int(self.bias is not None),
        )

    def goes_on(self, before: Product) -> bool:
        """True if this product adds to exactly the C of another one, so that the same threads can compute both."""
        c, other = self.c, before.c
        same = c.array is other.array and (c.start, c.row, c.column) == (other.start, other.row, other.column)
        sizes = (self.rows, self.columns) == (before.rows, before.columns)
        return self.accumulate and same and sizes and self.rounding == before.rounding


def multiply(*products: Product, stream: Any = 0) -> int:
    """Compute products. None may depend on another, except that a product may add to the C of the one before it.

    Args:
        stream: the stream of the device in which they are launched.

    Returns: the count of launches.
    """
    library, count = gemm.cublas(), 0
    for (with_library, _), group in groupby(
        products, key=lambda one: (library is not None and _suits_library(one), one.rounding)
    ):
        some = [one for one in group if one.rows and one.columns]
        if with_library:
            count += sum(_by_library(library, one, stream) for one in some)
            continue
        for first in range(0, len(some), TOGETHER):
            _launch(some[first : first + TOGETHER], stream)
            count += 1
    return count


def _suits_library(one: Product) -> bool:
    left, right = gemm.fits(one.a, one.rows, one.inner), gemm.fits(one.b, one.inner, one.columns)
    return left and right and one.inner > 0 and one.c.row <= gemm.MOST and isinstance(one.c.array, DeviceArray)


def _by_library(library: Any, one: Product, stream: Any) -> int:
    if one.bias is not None:
        _fill_rows(one.c, one.rows, one.columns, one.bias)
    library.multiply(*one[:6], int(one.accumulate or one.bias is not None), stream, one.rounding)
    return 1


def _launch(products: Sequence[Product], stream: Any) -> None:
    rounding = products[0].rounding
    tiling: Tiling | TensorTiling = TENSOR_TILING if rounding else TILING
    tile_rows, tile_columns = tiling.tile
    across, down = max(one.columns for one in products), max(one.rows for one in products)
    starts = [i for i, one in enumerate(products) if i == 0 or not one.goes_on(products[i - 1])]
    blocks = -(-across // tile_columns), -(-down // tile_rows), len(starts)
    arrays = zip(*((one.a.array, one.b.array, one.addends[0], one.c.array) for one in products), strict=True)
    numbers = tuple(number for one in products for number in one.numbers)
    ends = (*starts, *[len(products)] * (TOGETHER + 1 - len(starts)))
    dtype = str(products[0].c.array.dtype)
    kernel_of = tensor_kernel(rounding) if rounding else product_kernel(dtype, TILING)
    launch(kernel_of, blocks, tiling.threads, 0, stream, ends, numbers, *arrays)


def _fill_rows(c: Matrix, rows: int, columns: int, bias: tuple[Any, int]) -> None:
    """Every row of C becomes a bias."""
    array, start = bias
    lines = c.array[c.start : c.start + rows * c.row].reshape(rows, c.row)
    lines[:, :columns] = array[start : start + columns]


@cache
def product_kernel(dtype: str, tiling: Tiling) -> Any:
    """The kernel for one dtype.

    Its arguments are six tuples. The first divides the products into runs that add to the same C, one block of threads
    for a tile of each run: run z is products `ends[z] ... ends[z + 1] - 1`. The others hold the numbers of all
    products, and their A, B, addends and C.
    """
    return kernel(product_function(dtype, tiling), fastmath=False)


def product_function(dtype: str, tiling: Tiling) -> Any:
    """The kernel's Python function."""
    down, across, rows, columns, depth = (
        tiling.thread_rows, tiling.thread_columns, tiling.rows, tiling.columns, tiling.depth,
    )  # fmt: skip
    tile_rows, tile_columns = tiling.tile
    threads, number = down * across, np.dtype(dtype).type

    def product(ends: Any, sizes: Any, lefts: Any, rights: Any, biases: Any, targets: Any) -> None:
        a_part = cuda.shared.array((depth, tile_rows), number)
        b_part = cuda.shared.array((depth, tile_columns), number)
        sums = cuda.local.array((rows, columns), number)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        first_row, first_column = cuda.blockIdx.y * tile_rows, cuda.blockIdx.x * tile_columns
        for z in range(ends[cuda.blockIdx.z], ends[cuda.blockIdx.z + 1]):
            s, a, b, addends, c = z * NUMBERS, lefts[z], rights[z], biases[z], targets[z]
            a_start, a_row, a_step = sizes[s], sizes[s + 1], sizes[s + 2]
            b_start, b_step, b_column = sizes[s + 3], sizes[s + 4], sizes[s + 5]
            c_start, c_row, bias_start = sizes[s + 6], sizes[s + 7], sizes[s + 8]
            all_rows, all_columns, inner = sizes[s + 9], sizes[s + 10], sizes[s + 11]
            accumulate, biased = sizes[s + 12], sizes[s + 13]
            if first_row >= all_rows or first_column >= all_columns:
                return  # a larger product of the same launch has a tile there
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


BESIDE = 16  # numbers between two staged rows of a slice, so that a warp reads slices of 32 without bank conflicts


@dataclass(frozen=True)
class TensorTiling:
    """Sizes of tiles.

    Args:
        down, across: warps of a block, along rows and columns.
        times: groups of 16 rows that a warp has.
        tiles: tiles of 8 columns that a warp has.
        depth: numbers of k in a slice.
    """

    down: int = 4
    across: int = 2
    times: int = 2
    tiles: int = 4
    depth: int = 32

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of C that a block computes."""
        return self.down * self.times * ROWS, self.across * self.tiles * TILE_COLUMNS

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.down * self.across * WARP


TENSOR_TILING = choose(TensorTiling(), TensorTiling(1, 1, 1, 2, 16))


@cache
def tensor_kernel(rounding: str) -> Any:
    """The kernel for one format; its arguments are those of `product_kernel`."""
    return kernel(tensor_function(rounding, TENSOR_TILING), fastmath=False)


def tensor_function(rounding: str, tiling: TensorTiling) -> Any:
    """The kernel's Python function."""
    bits, left_fragment, multiply = (
        getattr(tensor_cores, f"{name}_{rounding}") for name in ("bits", "left", "multiply")
    )
    (tile_rows, tile_columns), threads, depth, across = tiling.tile, tiling.threads, tiling.depth, tiling.across
    tiles, count, pitch = tile_columns // TILE_COLUMNS, SUMS * tiling.tiles, depth + BESIDE
    times, own_tiles, own_rows, all_sums = tiling.times, tiling.tiles, tiling.times * ROWS, tiling.times * count
    right_size, left_size = tile_columns * depth, max(tile_rows * pitch, threads * all_sums)
    nothing, words = no_sums(own_tiles, times), np.uint32 if INSTRUCTIONS[rounding].itemsize == 4 else np.uint16

    def product(ends: Any, sizes: Any, lefts: Any, rights: Any, biases: Any, targets: Any) -> None:
        staged = cuda.shared.array(left_size, np.float32, alignment=16)
        kept = cuda.shared.array(right_size, words, alignment=16)
        thread = cuda.threadIdx.x
        lane, y, x = thread % WARP, thread // WARP // across, thread // WARP % across
        first_row, first_column = cuda.blockIdx.y * tile_rows, cuda.blockIdx.x * tile_columns
        own_row, own_k = y * own_rows + lane // OF_LANE, lane % OF_LANE * OF_LANE
        for z in range(ends[cuda.blockIdx.z], ends[cuda.blockIdx.z + 1]):
            s, a, b, addends, c = z * NUMBERS, lefts[z], rights[z], biases[z], targets[z]
            a_start, a_row, a_step = sizes[s], sizes[s + 1], sizes[s + 2]
            b_start, b_step, b_column = sizes[s + 3], sizes[s + 4], sizes[s + 5]
            c_start, c_row, bias_start = sizes[s + 6], sizes[s + 7], sizes[s + 8]
            all_rows, all_columns, inner = sizes[s + 9], sizes[s + 10], sizes[s + 11]
            accumulate, biased = sizes[s + 12], sizes[s + 13]
            if first_row >= all_rows or first_column >= all_columns:
                return  # a larger product of the same launch has a tile there
            total = nothing
            for k in range(0, inner, depth):
                for i in range(thread, tile_rows * depth, threads):  # 1. a slice of A and one of B
                    row, step = (i // depth, i % depth) if a_step == 1 else (i % tile_rows, i // tile_rows)
                    inside = k + step < inner and first_row + row < all_rows
                    staged[row * pitch + step] = (
                        a[a_start + (first_row + row) * a_row + (k + step) * a_step] if inside else np.float32(0)
                    )
                for i in range(thread, tile_columns * depth, threads):
                    column, step = (i // depth, i % depth) if b_step == 1 else (i % tile_columns, i // tile_columns)
                    inside = k + step < inner and first_column + column < all_columns
                    number = (
                        b[b_start + (k + step) * b_step + (first_column + column) * b_column]
                        if inside
                        else np.float32(0)
                    )
                    tile = step // CHUNK * tiles + column // TILE_COLUMNS
                    kept[tile * OF_TILE + column % TILE_COLUMNS * CHUNK + step % CHUNK] = bits(number)
                cuda.syncthreads()
                for chunk in range(depth // CHUNK):  # 2. its products
                    left = left_fragment(staged, own_row, tile_rows - 1, pitch, own_k + chunk * CHUNK, nothing)
                    own = (chunk * tiles + x * own_tiles) * OF_TILE + lane * OF_LANE
                    total = multiply(total, left, kept, own)
                cuda.syncthreads()
            place = thread // WARP * WARP * all_sums + lane
            keep_fragments(total, staged, place)
            for n in range(all_sums):  # 3. what belongs to C
                row = first_row + y * own_rows + n // count * ROWS + lane // 4 + n % 4 // 2 * 8
                column = first_column + (x * own_tiles + n % count // 4) * TILE_COLUMNS + lane % 4 * 2 + n % 2
                if row < all_rows and column < all_columns:
                    found = staged[place + n * WARP]
                    if accumulate != 0:
                        found += c[c_start + row * c_row + column]
                    elif biased != 0:
                        found += addends[bias_start + column]
                    c[c_start + row * c_row + column] = found
            cuda.syncthreads()

    return product
