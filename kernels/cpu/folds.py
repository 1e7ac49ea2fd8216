"""Steps of reductions that LLVM may turn into vector loops: sums in any order, extrema that keep NaN.

A sum written as a loop is a chain of additions, which LLVM must keep as it is. `add_any_order` marks one addition, that
to the accumulator, as free to be done in another order: LLVM then sums in several vectors and adds these up after the
loop, while the arithmetic of the summands keeps its own order. `larger` and `smaller` are one instruction each for
LLVM, where comparisons that look after NaN would not be known for an extremum.

The order of a sum follows from the compiled code and the number of summands, so the same code gives the same row the
same bits wherever it lies; unless LLVM makes two loops of one and chooses when it runs, as for arrays whose strides are
not known and for memory that may overlap (`pointers.py` promises that it does not). Another vector width, another
version of LLVM, or the same step in another loop may give another order. Extrema are exact in any order.

Limits: accumulator and operand are of one dtype, or two integers, of which the wider is taken. Which NaN an extremum
gives, and the sign of a zero, are left open. LLVM before version 17 knows no such extrema for x86: loops stay scalar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from rnnops.kernels.cpu.bits import floats_to_float, primitive
from rnnops.kernels.cpu.fastmath import compiled_as, types
from rnnops.kernels.cpu.selection import maximum, minimum

ANY_ORDER = ("reassoc", "contract", "nsz")
HAS_EXTREMA = llvm.llvm_version_info >= (17,)


def _number(accumulator: Any, x: Any) -> Any:
    if isinstance(accumulator, types.Integer) and isinstance(x, types.Integer):
        wider = max(accumulator, x, key=lambda integer: integer.bitwidth)
        return wider(wider, wider)
    return floats_to_float(accumulator, x)


def _emit_sum(builder: Any, accumulator: Any, x: Any) -> Any:
    if isinstance(x.type, ir.IntType):
        return builder.add(accumulator, x)
    return builder.fadd(accumulator, x, flags=ANY_ORDER)


@primitive(_number, _emit_sum)
def add_any_order(accumulator: Any, x: Any) -> Any:
    """`accumulator + x`; a loop of such steps may add in any order."""
    return accumulator + x


def _three_numbers(accumulator: Any, x: Any, y: Any) -> Any:
    if all(isinstance(kind, types.Integer) for kind in (accumulator, x, y)):
        wider = max(accumulator, x, y, key=lambda integer: integer.bitwidth)
        return wider(wider, wider, wider)
    return floats_to_float(accumulator, x, y)


def _emit_product(flags: tuple[str, ...]) -> Callable[..., Any]:
    def emit(builder: Any, accumulator: Any, x: Any, y: Any) -> Any:
        if isinstance(x.type, ir.IntType):
            return builder.add(accumulator, builder.mul(x, y))
        return builder.fadd(accumulator, builder.fmul(x, y, flags=("contract",)), flags=flags)

    return emit


@primitive(_three_numbers, _emit_product(ANY_ORDER))
def add_product_any_order(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps may add in any order."""
    return accumulator + x * y


@primitive(_three_numbers, _emit_product(("contract",)))
def add_product(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps adds in its order."""
    return accumulator + x * y


def _extremum(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """What compiled code does instead of `plain`, which it does for integers."""

    def emit(builder: Any, accumulator: Any, x: Any) -> Any:
        kind = ir.FunctionType(x.type, [x.type, x.type])
        intrinsic = builder.module.declare_intrinsic(f"llvm.{name}", [x.type], kind)
        return builder.call(intrinsic, [accumulator, x], fastmath=("nsz",))

    @primitive(floats_to_float, emit)
    def step(accumulator: Any, x: Any) -> Any:
        return plain(accumulator, x)

    def of_floats(accumulator: Any, x: Any) -> Any:
        return step(accumulator, x)

    return lambda _accumulator, x: of_floats if HAS_EXTREMA and isinstance(x, types.Float) else plain


@compiled_as(_extremum("maximum", maximum))
def larger(accumulator: Any, x: Any) -> Any:
    """The larger of the two, NaN if one is; loops of such steps become vector loops."""
    return maximum(accumulator, x)


@compiled_as(_extremum("minimum", minimum))
def smaller(accumulator: Any, x: Any) -> Any:
    """The smaller of the two, NaN if one is."""
    return minimum(accumulator, x)
