"""Functions that pack matrices, as LLVM IR: floats, and operands of products that are rounded to bfloat16.

Packing reads and writes each number once. `pack_into` copies whole rows of a panel. `pack_transposed_into` takes B^T in
squares with as many rows as a vector has lanes, and touches each line of memory once: 0.3 to 1 ns a number (copying:
0.1 to 0.5). `native.py` describes packed matrices.

Limits: compiled functions check nothing; `native.Products` checks the arguments of calls from Python. NaN and infinity
are packed like any number.

**Operands of products rounded to bfloat16**: rows and columns of float32 as words that products read. A number is
rounded to the nearest one; of two that are equally near, to the even one. NaN stays NaN and infinities stay. A word
is one rounded number as float32 (`SINGLES`), or two that follow each other over k (`PAIRS`). The first lies in the
upper half, because multiply-adds of pairs begin there: both kinds of words then add up in the same order. If k is odd,
the last pair has a zero. Pairs are made by instructions of AVX512-BF16, which take numbers below the smallest normal
one for zeros, as multiply-adds of pairs do in any case.

Words of bytes hold four whole numbers that follow each other over k (`QUADS`), the first in the lowest byte. NaN is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

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
from rnnops.kernels.cpu.processor import ITEM_SIZES, NUMBERS, PAIRS, QUADS, lanes
from rnnops.kernels.cpu.words import Address, ModulePart, copied, zeroed


def panel_vectors(left: int) -> int:
    """Vectors of the next panel, if `left` vectors are left."""
    return left if left < 3 else 2 if left == 4 else 3


def full_panels(left: int) -> int:
    """The count of next panels that are 3 vectors wide, if `left` vectors are left."""
    return left // 3 if left % 3 != 1 else max(0, left - 4) // 3


def first_panel(vectors: int, column: int, count: int) -> int:
    """The first vector of the first panel that begins at a column or after it; `vectors` if there is none."""
    done = 0
    while done < vectors and done * count < column:
        done += panel_vectors(vectors - done)
    return done


def vector_count(columns: int, count: int) -> int:
    """Vectors of `count` lanes that hold a row."""
    return (columns + count - 1) // count


def make_copy_panel(dtype: str, width: int) -> Callable[..., None]:
    """`copy_panel(B, stride, k_steps, columns, wide, panel)`: rows of B into a panel, zeros after its columns."""
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
    """`turn_panel(B, stride, k_steps, columns, wide, panel)`: columns of B into a panel, zeros after them."""
    count, item = lanes(width, dtype), ITEM_SIZES[dtype]
    copy_number, set_zero, turn_square = copied(item), zeroed(item), turn_part(dtype, width)

    def transpose_square(
        source: int, stride: int, rows: int, begin: int, end: int, columns: int, target: int, wide: int
    ) -> None:
        """Columns begin:end of `rows` rows become rows of a panel that is `wide` numbers wide."""
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
    """Define the functions of `rows_part` and `columns_part` in a module."""
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
        """(Offset, mask) of each vector of so many numbers, in loops. Only a partial last vector has a mask."""
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
