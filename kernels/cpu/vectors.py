"""Vectors of floats in LLVM IR: loads, stores, masks, broadcasts and multiply-adds.

Lanes of pairs are words of two bfloat16 numbers; they are loaded as float32 would be, and a multiply-add of them adds
the product of the upper halves, then that of the lower ones, to float32, each rounded once (`vdpbf16ps` of
AVX512-BF16, which takes numbers below the smallest normal one for zeros and makes zeros of them).

A vector has as many lanes as its width in bits allows; 64 bits stand for scalar code, one lane of either dtype. What
the processor has no registers for, LLVM splits into what it has: every width runs everywhere, if slowly.

Masked loads and stores touch no memory outside the mask. AVX and AVX-512 have instructions for them; elsewhere LLVM
makes a branch for each lane, so they are for edges only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from rnnops.kernels.cpu.processor import ITEM_SIZES, PAIRS

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
BYTES = ir.IntType(8).as_pointer()
FLOATS = {"float32": ir.FloatType(), "float64": ir.DoubleType(), PAIRS: ir.FloatType()}


class BFloat16(ir.Type):
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat16)

    def __hash__(self) -> int:
        return hash(BFloat16)


class Vectors:
    """Emits operations on vectors of one type; pointers are to bytes and aligned to single numbers only."""

    def __init__(self, builder: ir.IRBuilder, dtype: str, count: int) -> None:
        self.builder, self.dtype, self.scalar, self.size = builder, dtype, FLOATS[dtype], ITEM_SIZES[dtype]
        self.count, self.bytes = count, count * self.size
        self.type = ir.VectorType(self.scalar, count)
        self.zero = ir.Constant(self.type, [0.0] * count)
        self.name = f"v{count}f{8 * self.size}"

    def load(self, pointer: Any, mask: Any = None) -> Any:
        """Lanes outside the mask are zero."""
        at = self._typed(pointer, self.type)
        if mask is None:
            loaded = self.builder.load(at)
            loaded.align = self.size
            return loaded
        function = self.declare(f"llvm.masked.load.{self.name}.p0", self.type, [at.type, I32, mask.type, self.type])
        return self.builder.call(function, [at, I32(self.size), mask, self.zero])

    def load_bytes(self, pointer: Any) -> Any:
        """Whole numbers of a byte each, with their signs, as floats."""
        loaded = self.builder.load(self._typed(pointer, ir.VectorType(I8, self.count)))
        loaded.align = 1
        return self.builder.sitofp(self.builder.sext(loaded, ir.VectorType(I32, self.count)), self.type)

    def store(self, value: Any, pointer: Any, mask: Any = None) -> None:
        """Lanes outside the mask keep what they hold."""
        at = self._typed(pointer, self.type)
        if mask is None:
            self.builder.store(value, at).align = self.size
            return
        arguments = [self.type, at.type, I32, mask.type]
        function = self.declare(f"llvm.masked.store.{self.name}.p0", ir.VoidType(), arguments)
        self.builder.call(function, [value, at, I32(self.size), mask])

    def broadcast(self, pointer: Any) -> Any:
        """The number at the pointer in every lane."""
        return self._splat(self.builder.load(self._typed(pointer, self.scalar)), self.type)

    def prefetch(self, pointer: Any, write: bool = False) -> None:
        """Asks for the line of memory around the pointer; never a fault."""
        function = self.declare("llvm.prefetch.p0", ir.VoidType(), [BYTES, I32, I32, I32])
        self.builder.call(function, [pointer, I32(int(write)), I32(3), I32(1)])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """`a * b + c`, rounded once where the processor can; of pairs, two such steps."""
        if self.dtype == PAIRS:
            return self._add_pairs(a, b, c)
        return self.builder.call(self.declare(f"llvm.fmuladd.{self.name}", self.type, [self.type] * 3), [a, b, c])

    def _add_pairs(self, a: Any, b: Any, c: Any) -> Any:
        halves = ir.VectorType(BFloat16(), 2 * self.count)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.count}"
        function = self.declare(name, self.type, [self.type, halves, halves])
        return self.builder.call(function, [c, *(self.builder.bitcast(x, halves) for x in (a, b))])

    def mask(self, count: Any) -> Any:
        """The first `count` lanes, all where there are fewer."""
        indices = ir.VectorType(I64, self.count)
        lane = ir.Constant(indices, list(range(self.count)))
        return self.builder.icmp_unsigned("<", lane, self._splat(count, indices))

    def _splat(self, value: Any, kind: ir.VectorType) -> Any:
        undefined = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(undefined, value, I32(0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, kind.count), None))

    def _typed(self, pointer: Any, kind: ir.Type) -> Any:
        return self.builder.bitcast(pointer, kind.as_pointer())

    def declare(self, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        """An intrinsic function."""
        module = self.builder.module
        if name not in module.globals:
            ir.Function(module, ir.FunctionType(result, arguments), name)
        return module.globals[name]


def define(
    module: ir.Module, name: str, arguments: Sequence[ir.Type], emit: Callable[[ir.Function], None]
) -> ir.Function:
    """A function of a module without result, emitted at its first use, and not copied into its callers."""
    if name not in module.globals:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        emit(function)
    return module.globals[name]


@contextmanager
def loop_to(builder: ir.IRBuilder, count: Any) -> Iterator[Any]:
    """A loop over whole numbers from 0 to `count`, which is left out; the body is what is emitted within."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(I64(0), before)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
    builder.position_at_end(inside)
    yield index
    index.add_incoming(builder.add(index, I64(1)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)


def strided(builder: ir.IRBuilder, pointer: Any, stride: Any, count: int) -> list[Any]:
    """Pointers to `count` rows that are `stride` bytes apart."""
    return [builder.gep(pointer, [builder.mul(stride, I64(i))]) for i in range(count)]
