"""Packed matrices: of floats, of int8, and of operands rounded to bfloat16; and products of them for callers in Python.

**Packed matrices**: B [K, N] as panels `[panel][K][panel width]`, in the order in which products read them. Panels are
3 vectors wide; the last one or two are 2 vectors wide where N asks for it (7 vectors: 3, 2, 2), and B of a single
vector is one narrow panel. So only the last vector can be partial; it is padded with zeros. A packed matrix is a 1-D
array of K * N rounded up to whole vectors; the panel that starts at column c starts at number K * c.

Packing reads and writes each number once. `pack_into` copies whole rows of a panel; `pack_transposed_into` takes B^T in
squares of 16 x 16 and touches each line of memory once, 0.3 to 1 ns a number (copying: 0.1 to 0.5).

Limits: compiled functions check nothing; `Products` checks the arguments of calls from Python. NaN and infinity are
packed like any number.

**Operands of products rounded to bfloat16, as LLVM IR**: rows and columns of float32 as words that products read.
Numbers are rounded to the nearest, of two that are as near to the even one; NaN stays NaN and infinities stay. A word
is one rounded number as float32 (`SINGLES`), or two that follow each other over k, the first in the upper half
(`PAIRS`), as multiply-adds of pairs begin with the upper half: both then add up in the same order. Where k is odd the
last pair has a zero. Pairs are made by instructions of AVX512-BF16, which take numbers below the smallest normal one
for zeros, as multiply-adds of pairs do in any case.

Words of bytes hold four whole numbers that follow each other over k (`QUADS`), the first in the lowest byte. NaN is 0.

**Generated drivers in plain Python**: their parts of memory, products and barriers. Compiled drivers call the runtime
for products and barriers. Here a packed matrix is the matrix itself, row by row, in memory that may be larger.

**Generated drivers in plain Python, for products rounded to bfloat16**. A packed matrix is the
matrix itself, row by row, as the upper halves of its rounded numbers.

**Generated drivers in plain Python, for products with whole numbers of a byte each**. A packed matrix is the
matrix itself, row by row.

**Products** take NumPy arrays, check them, and hand them to `gemm.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.lib.stride_tricks import as_strided

from rnnops.kernels.cpu import native, threads
from rnnops.kernels.cpu.micro_kernel import (
    BYTES,
    I8,
    I32,
    I64,
    BFloat16,
    Vectors,
    copy_part,
    define,
    loop_to,
    turn_part,
)
from rnnops.kernels.cpu.native import Library, way_of
from rnnops.kernels.cpu.pointwise import round_bfloat16
from rnnops.kernels.cpu.processor import INT8, ITEM_SIZES, NUMBERS, PAIRS, QUADS, lanes, vector_width
from rnnops.kernels.cpu.words import Address, ModulePart, copied, only_compiled, zeroed


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


def panel_vectors(left: int) -> int:
    """Vectors of the next panel where `left` vectors are left."""
    return left if left < 3 else 2 if left == 4 else 3


def full_panels(left: int) -> int:
    """How many of the next panels are 3 vectors wide where `left` vectors are left."""
    return left // 3 if left % 3 != 1 else max(0, left - 4) // 3


def first_panel(vectors: int, column: int, count: int) -> int:
    """The vector at which the first panel begins that begins at a column or behind it; `vectors` where none does."""
    done = 0
    while done < vectors and done * count < column:
        done += panel_vectors(vectors - done)
    return done


def vector_count(columns: int, count: int) -> int:
    """Vectors of `count` lanes that hold a row."""
    return (columns + count - 1) // count


def make_copy_panel(dtype: str, width: int) -> Callable[..., None]:
    """`copy_panel(B, stride, k_steps, columns, wide, panel)`: rows of B into a panel, zeros behind its columns."""
    count = lanes(width, dtype)
    copy1, copy2, copy3 = (copy_part(dtype, width, vectors) for vectors in (1, 2, 3))

    def copy_panel(B: int, stride: int, k_steps: int, columns: int, wide: int, panel: int) -> None:
        last = columns - (wide - 1) * count
        if wide == 1:
            copy1(B, stride, panel, k_steps, last)
        elif wide == 2:
            copy2(B, stride, panel, k_steps, last)
        else:
            copy3(B, stride, panel, k_steps, last)

    return copy_panel


def make_turn_panel(dtype: str, width: int) -> Callable[..., None]:
    """`turn_panel(B, stride, k_steps, columns, wide, panel)`: columns of B^T into a panel, zeros behind them."""
    count, item = lanes(width, dtype), ITEM_SIZES[dtype]
    copy_number, set_zero, turn_square = copied(item), zeroed(item), turn_part(dtype, width)

    def transpose_square(
        source: int, stride: int, rows: int, begin: int, end: int, columns: int, target: int, wide: int
    ) -> None:
        """Columns begin:end of so many rows become rows of a panel that is `wide` numbers wide."""
        for k in range(begin, end):
            for c in range(rows):
                copy_number(target + (k * wide + columns + c) * item, source + c * stride + k * item)

    def turn_panel(B: int, stride: int, k_steps: int, columns: int, wide: int, panel: int) -> None:
        width = wide * count
        there = min(width, columns)
        for k in range(0, k_steps, count):
            end = min(k + count, k_steps)
            for c in range(0, there, count):
                rows = min(count, there - c)
                if rows == count and end - k == count:
                    turn_square(B + c * stride + k * item, stride, panel + (k * width + c) * item, width * item)
                else:
                    transpose_square(B + c * stride, stride, rows, k, end, c, panel, width)
            for row in range(k, end):
                for c in range(there, width):
                    set_zero(panel + (row * width + c) * item)

    return turn_panel


def make_packers(dtype: str, width: int) -> dict[str, Callable[..., None]]:
    """`pack_into` and `pack_transposed_into`, by name."""
    count, item = lanes(width, dtype), ITEM_SIZES[dtype]
    copy_panel, turn_panel = make_copy_panel(dtype, width), make_turn_panel(dtype, width)

    def pack_into(B: Address, K: int, stride: int, N: int, packed: Address, _: int) -> None:
        """B [K, N], its rows `stride` numbers apart, into `packed`."""
        vectors, done = vector_count(N, count), 0
        while done < vectors:
            wide, column = panel_vectors(vectors - done), done * count
            copy_panel(B + column * item, stride * item, K, N - column, wide, packed + K * column * item)
            done += wide

    def pack_transposed_into(B: Address, N: int, stride: int, K: int, packed: Address, _: int) -> None:
        """B^T [K, N] into `packed`, from B [N, K], its rows `stride` numbers apart."""
        vectors, done = vector_count(N, count), 0
        while done < vectors:
            wide, column = panel_vectors(vectors - done), done * count
            turn_panel(B + column * stride * item, stride * item, K, N - column, wide, packed + K * column * item)
            done += wide

    return {"pack_into": pack_into, "pack_transposed_into": pack_transposed_into}


ROUND_TYPES = (BYTES, I64, I64, I64, BYTES, I64)
KINDS = tuple("ptr" if kind == BYTES else "i64" for kind in ROUND_TYPES)
UPPER, HALF, QUIET = 0xFFFF0000, 0x7FFF, 0x400000


def rows_part(way: str, width: int) -> ModulePart:
    """`rows(source, source_row, rows, k, target, target_row)`: words along rows, each row up to a whole vector."""
    return ModulePart(f"round_rows_{way}_{width}", KINDS)


def columns_part(way: str, width: int) -> ModulePart:
    """`columns(source, source_row, k, columns, target, target_row)`: words down k rows, each row up to a vector."""
    return ModulePart(f"round_columns_{way}_{width}", KINDS)


def define_rounding(module: ir.Module, way: str, width: int) -> None:
    """The two functions, in a module."""
    count = lanes(width, "float32")
    define(module, rows_part(way, width).name, ROUND_TYPES, lambda function: _emit_rows(function, way, count))
    define(module, columns_part(way, width).name, ROUND_TYPES, lambda function: _emit_columns(function, way, count))


def _emit_rows(function: ir.Function, way: str, count: int) -> None:
    source, source_row, rows, k_end, target, target_row = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    on = WAYS[way](builder, count)
    with loop_to(builder, rows) as row:
        start, into = _at(builder, source, row, source_row), _at(builder, target, row, target_row)
        for offset, mask in on.over_vectors(k_end):
            words = on.along(on.vectors.load(builder.gep(start, [offset]), mask))
            on.store(words, builder.gep(into, [builder.udiv(offset, I64(NUMBERS[way]))]))
    builder.ret_void()


def _emit_columns(function: ir.Function, way: str, count: int) -> None:
    source, source_row, k_end, columns, target, target_row = function.args
    builder, each = ir.IRBuilder(function.append_basic_block("entry")), I64(NUMBERS[way])
    on = WAYS[way](builder, count)

    def words(k: Any, numbers: int) -> None:
        start, into = _at(builder, source, builder.mul(k, each), source_row), _at(builder, target, k, target_row)
        for offset, mask in on.over_vectors(columns):
            rows = [_at(builder, builder.gep(start, [offset]), I64(i), source_row) for i in range(numbers)]
            on.store(on.down([on.vectors.load(row, mask) for row in rows]), builder.gep(into, [offset]))

    with loop_to(builder, builder.udiv(k_end, each)) as k:
        words(k, NUMBERS[way])
    for rest in range(1, NUMBERS[way]):
        with builder.if_then(builder.icmp_unsigned("==", builder.urem(k_end, each), I64(rest)), likely=False):
            words(builder.udiv(k_end, each), rest)
    builder.ret_void()


def _at(builder: ir.IRBuilder, pointer: Any, row: Any, row_bytes: Any) -> Any:
    return builder.gep(pointer, [builder.mul(row, row_bytes)])


class _Singles:
    """Emits words of one number each, from vectors of `count` numbers."""

    def __init__(self, builder: ir.IRBuilder, count: int) -> None:
        self.builder, self.vectors = builder, Vectors(builder, "float32", count)
        self.words = self.vectors.whole

    def along(self, x: Any) -> Any:
        """Words of numbers that follow each other over k."""
        b, bits = self.builder, self.builder.bitcast(x, self.words)
        odd = b.and_(b.lshr(bits, self._all(16)), self._all(1))
        nearest = b.add(b.add(bits, self._all(HALF)), odd)
        chosen = b.select(b.fcmp_unordered("uno", x, x), b.or_(bits, self._all(QUIET)), nearest)
        return b.and_(chosen, self._all(UPPER))

    def down(self, rows: list[Any]) -> Any:
        """Words of columns of some rows."""
        return self.along(*rows)

    def store(self, words: Any, pointer: Any) -> None:
        at = self.builder.bitcast(pointer, words.type.as_pointer())
        self.builder.store(words, at).align = 4

    def over_vectors(self, numbers: Any) -> Any:
        """(Offset, mask) of each vector of so many numbers, in loops; no mask for all but a partial last one."""
        b, count = self.builder, self.vectors.count
        whole = b.udiv(numbers, I64(count))
        with loop_to(b, whole) as v:
            yield b.mul(v, I64(self.vectors.bytes)), None
        rest = b.urem(numbers, I64(count))
        with b.if_then(b.icmp_unsigned("!=", rest, I64(0))):
            yield b.mul(whole, I64(self.vectors.bytes)), self.vectors.mask(rest)

    def _all(self, number: int) -> Any:
        return ir.Constant(self.words, [number] * self.words.count)


class _Pairs(_Singles):
    """Emits words of two numbers each, with 16 lanes."""

    def along(self, x: Any) -> Any:
        halves = ir.VectorType(BFloat16(), self.vectors.count)
        rounded = self._call("llvm.x86.avx512bf16.cvtneps2bf16.512", halves, x)
        return self._upper_first(self.builder.bitcast(rounded, ir.VectorType(ir.IntType(16), halves.count)))

    def down(self, rows: list[Any]) -> Any:
        first, second = (*rows, self.vectors.zero)[:2]
        halves = ir.VectorType(BFloat16(), 2 * self.vectors.count)
        rounded = self._call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", halves, first, second)  # the second comes first
        count, shorts = self.vectors.count, ir.VectorType(ir.IntType(16), halves.count)
        order = [place for lane in range(count) for place in (lane, count + lane)]
        return self.builder.bitcast(self._ordered(self.builder.bitcast(rounded, shorts), order), self.words)

    def _upper_first(self, shorts: Any) -> Any:
        """Pairs with the first number, which memory has in the lower half, in the upper one."""
        order = [place ^ 1 for place in range(shorts.type.count)]
        return self.builder.bitcast(self._ordered(shorts, order), ir.VectorType(I32, shorts.type.count // 2))

    def _ordered(self, shorts: Any, order: list[int]) -> Any:
        lanes_taken = ir.Constant(ir.VectorType(I32, len(order)), order)
        return self.builder.shuffle_vector(shorts, ir.Constant(shorts.type, ir.Undefined), lanes_taken)

    def _call(self, name: str, result: ir.Type, *operands: Any) -> Any:
        return self.builder.call(self.vectors.declare(name, result, [x.type for x in operands]), operands)


class _Quads(_Singles):
    """Emits words of four whole numbers each, each a byte; NaN is 0."""

    def along(self, x: Any) -> Any:
        narrow = self.builder.trunc(self._whole(x), ir.VectorType(I8, self.vectors.count))
        return self.builder.bitcast(narrow, ir.VectorType(I32, self.vectors.count // NUMBERS[QUADS]))

    def down(self, rows: list[Any]) -> Any:
        b, words = self.builder, self._all(0)
        for place, row in enumerate(rows):
            words = b.or_(words, b.shl(b.and_(self._whole(row), self._all(0xFF)), self._all(8 * place)))
        return words

    def _whole(self, x: Any) -> Any:
        return self.builder.fptosi(
            self.builder.select(self.builder.fcmp_ordered("ord", x, x), x, self.vectors.zero), self.words
        )


WAYS: dict[str, type[_Singles]] = {"singles": _Singles, PAIRS: _Pairs, QUADS: _Quads}


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
