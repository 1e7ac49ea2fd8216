"""Operands of products rounded to bfloat16, as LLVM IR: rows and columns of float32 as words that products read.

Numbers are rounded to the nearest, of two that are as near to the even one; NaN stays NaN and infinities stay. A word
is one rounded number as float32 (`SINGLES`), or two that follow each other over k, the first in the upper half
(`PAIRS`), as multiply-adds of pairs begin with the upper half: both then add up in the same order. Where k is odd the
last pair has a zero. Pairs are made by instructions of AVX512-BF16, which take numbers below the smallest normal one
for zeros, as multiply-adds of pairs do in any case.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from rnnops.kernels.cpu.processor import NUMBERS, PAIRS, lanes
from rnnops.kernels.cpu.vectors import BYTES, I32, I64, BFloat16, Vectors, define, loop_to
from rnnops.kernels.cpu.words import ModulePart

TYPES = (BYTES, I64, I64, I64, BYTES, I64)
KINDS = tuple("ptr" if kind == BYTES else "i64" for kind in TYPES)
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
    define(module, rows_part(way, width).name, TYPES, lambda function: _emit_rows(function, way, count))
    define(module, columns_part(way, width).name, TYPES, lambda function: _emit_columns(function, way, count))


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
    if way == PAIRS:
        with builder.if_then(builder.icmp_unsigned("!=", builder.urem(k_end, each), I64(0)), likely=False):
            words(builder.udiv(k_end, each), 1)
    builder.ret_void()


def _at(builder: ir.IRBuilder, pointer: Any, row: Any, row_bytes: Any) -> Any:
    return builder.gep(pointer, [builder.mul(row, row_bytes)])


class _Singles:
    """Emits words of one number each, from vectors of `count` numbers."""

    def __init__(self, builder: ir.IRBuilder, count: int) -> None:
        self.builder, self.vectors = builder, Vectors(builder, "float32", count)
        self.words = ir.VectorType(I32, count)

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


WAYS: dict[str, type[_Singles]] = {"singles": _Singles, PAIRS: _Pairs}
