"""What numba has no words for: bit patterns of floats, choice without a branch, constants of the operand's dtype.

Each function is plain NumPy, for scalars and arrays; compiled code gets a few LLVM instructions instead, which keep to
the width of the operand (numba's own integers widen to 64 bits, which halves the speed of float32). All take float32
and float64.

Whole numbers that steer bits travel as floats: `anchored(z)` adds 1.5 * 2^23 (or 2^52), which rounds z to the nearest
integer n and leaves n in the low bits. No float is converted to an integer, as that is undefined for NaN. Valid for
|z| < 2^22 (2^51); what lies beyond gives arbitrary bits, never a trap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir

from rnnops.kernels.cpu.fastmath import Function, extending, inlined, types

MANTISSA_BITS = {32: 23, 64: 52}
SQRT_HALF = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}  # bit patterns
ANCHOR = {32: 0x4B400000, 64: 0x4338000000000000}
ANCHOR_SINGLE, ANCHOR_DOUBLE = 1.5 * 2.0**23, 1.5 * 2.0**52
TAIL_BITS = {32: 12, 64: 27}  # what `head` clears


def primitive(typing: Callable[..., Any], emit: Callable[..., Any]) -> Callable[[Function], Function]:
    """Give a Python function a meaning in compiled code.

    Args:
        typing: from operand types to numba's signature, None where the function has no meaning.
        emit: from an LLVM builder and LLVM values of the operands to that of the result.
    """

    def lower(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return emit(builder, *values)

    def register(function: Function) -> Function:
        @wraps(function)  # numba reads the names of parameters
        def typer(*operands: Any) -> Any:
            return typing(*map(types.unliteral, operands))

        extending.type_callable(function)(lambda _context: typer)
        extending.lower_builtin(function, types.VarArg(types.Any))(lower)
        return function

    return register


def floats_to_float(*operands: Any) -> Any:
    """The typing of functions from floats of one dtype to a float."""
    first = operands[0]
    return first(*operands) if isinstance(first, types.Float) and set(operands) == {first} else None


def _float_to_bool(x: Any) -> Any:
    return types.boolean(x) if isinstance(x, types.Float) else None


def _float64_to_word(x: Any) -> Any:
    return types.uint64(x) if x == types.float64 else None


def _number_and_constants(x: Any, *constants: Any) -> Any:
    return x(x, *(types.float64 for _ in constants)) if isinstance(x, types.Float | types.Integer) else None


def _choice(condition: Any, a: Any, b: Any) -> Any:
    if a != b and isinstance(a, types.Integer) and isinstance(b, types.Integer):
        a = b = max(a, b, key=lambda integer: integer.bitwidth)
    return a(types.boolean, a, b) if a == b else None


def width_of(x: Any) -> int:
    """Bits of an LLVM float."""
    return 32 if isinstance(x.type, ir.FloatType) else 64


def _pattern(builder: Any, x: Any) -> Any:
    return builder.bitcast(x, ir.IntType(width_of(x)))


def _float(builder: Any, pattern: Any) -> Any:
    return builder.bitcast(pattern, ir.FloatType() if pattern.type.width == 32 else ir.DoubleType())


def _bits(x: Any) -> tuple[Any, int]:
    """The same in NumPy: signed integers, and their width."""
    array = np.asarray(x)
    width = 8 * array.dtype.itemsize
    return array.view(f"int{width}"), width


def _floats(patterns: Any) -> Any:
    array = np.asarray(patterns)
    return array.view(f"float{8 * array.dtype.itemsize}")[()]


def _emit_either(builder: Any, x: Any, single: Any, double: Any) -> Any:
    return builder.fptrunc(single, x.type) if isinstance(x.type, ir.FloatType) else double


@primitive(_number_and_constants, _emit_either)
def either(x: Any, single: float, double: float) -> Any:
    """The first constant if x is float32, the second if it is float64; of that dtype."""
    dtype = np.asarray(x).dtype.type
    return dtype(single if dtype == np.float32 else double)


def _emit_like(builder: Any, x: Any, value: Any) -> Any:
    is_integer = isinstance(x.type, ir.IntType)
    return builder.fptosi(value, x.type) if is_integer else _emit_either(builder, x, value, value)


@primitive(_number_and_constants, _emit_like)
def like(x: Any, value: float) -> Any:
    """A constant of the dtype of x."""
    return np.asarray(x).dtype.type(value)


@primitive(_choice, lambda builder, condition, a, b: builder.select(condition, a, b))
def select(condition: Any, a: Any, b: Any) -> Any:
    """`a if condition else b`, both computed; a and b of one dtype."""
    return np.where(condition, a, b)[()]


@inlined
def anchored(z: Any) -> Any:
    """z rounded to the nearest integer, and that integer in the low bits."""
    return z + either(z, ANCHOR_SINGLE, ANCHOR_DOUBLE)


@inlined
def released(t: Any) -> Any:
    """The integer that `anchored` found, as a float."""
    return t - either(t, ANCHOR_SINGLE, ANCHOR_DOUBLE)


def _emit_scaled(builder: Any, p: Any, t: Any) -> Any:
    pattern = _pattern(builder, p)
    steps = builder.shl(_pattern(builder, t), pattern.type(MANTISSA_BITS[width_of(p)]))
    return _float(builder, builder.add(pattern, steps))


@primitive(floats_to_float, _emit_scaled)
def scaled(p: Any, t: Any) -> Any:
    """p times 2^n, where t is n anchored; both p and the result must be normal numbers."""
    (pattern, width), (steer, _) = _bits(p), _bits(t)
    return _floats(pattern + (steer << MANTISSA_BITS[width]))


def _emit_exponent_bits(builder: Any, pattern: Any) -> Any:
    above = builder.sub(pattern, pattern.type(SQRT_HALF[pattern.type.width]))
    return builder.ashr(above, pattern.type(MANTISSA_BITS[pattern.type.width]))


def _emit_exponent(builder: Any, x: Any) -> Any:
    e = _emit_exponent_bits(builder, _pattern(builder, x))
    return _float(builder, builder.add(e, e.type(ANCHOR[e.type.width])))


def _emit_mantissa(builder: Any, x: Any) -> Any:
    pattern = _pattern(builder, x)
    e = _emit_exponent_bits(builder, pattern)
    return _float(builder, builder.sub(pattern, builder.shl(e, e.type(MANTISSA_BITS[e.type.width]))))


@primitive(floats_to_float, _emit_exponent)
def exponent(x: Any) -> Any:
    """e, anchored, of x = m * 2^e with m in [sqrt(1/2), sqrt(2)); x positive and normal."""
    pattern, width = _bits(x)
    return _floats(((pattern - SQRT_HALF[width]) >> MANTISSA_BITS[width]) + ANCHOR[width])


@primitive(floats_to_float, _emit_mantissa)
def mantissa(x: Any) -> Any:
    """m of the same."""
    pattern, width = _bits(x)
    e = (pattern - SQRT_HALF[width]) >> MANTISSA_BITS[width]
    return _floats(pattern - (e << MANTISSA_BITS[width]))


def _emit_with_sign(builder: Any, size: Any, sign: Any) -> Any:
    size, sign = _pattern(builder, size), _pattern(builder, sign)
    top = 1 << (size.type.width - 1)
    return _float(builder, builder.or_(builder.and_(size, size.type(top - 1)), builder.and_(sign, size.type(-top))))


@primitive(floats_to_float, _emit_with_sign)
def with_sign(size: Any, sign: Any) -> Any:
    """|size| with the sign of another float, zeros and NaN included, whatever the fast-math flags say of them."""
    return np.copysign(size, sign)


def _emit_negated(builder: Any, x: Any, t: Any) -> Any:
    pattern, steer = _pattern(builder, x), _pattern(builder, t)
    width = pattern.type.width
    top = builder.and_(builder.shl(steer, steer.type(width - 2)), steer.type(-(1 << (width - 1))))
    return _float(builder, builder.xor(pattern, top))


@primitive(floats_to_float, _emit_negated)
def negated_in_second_half(x: Any, t: Any) -> Any:
    """-x where n mod 4 is 2 or 3, else x; t is n anchored."""
    (pattern, width), (steer, _) = _bits(x), _bits(t)
    return _floats(pattern ^ ((steer >> 1) << (width - 1)))


@primitive(_float_to_bool, lambda builder, t: builder.trunc(_pattern(builder, t), ir.IntType(1)))
def is_odd(t: Any) -> Any:
    """Whether n is odd; t is n anchored."""
    return (_bits(t)[0] & 1) != 0


def _emit_head(builder: Any, x: Any) -> Any:
    pattern = _pattern(builder, x)
    return _float(builder, builder.and_(pattern, pattern.type(-(1 << TAIL_BITS[width_of(x)]))))


@primitive(floats_to_float, _emit_head)
def head(x: Any) -> Any:
    """x with the lower half of its mantissa cleared: the product of two heads is exact."""
    pattern, width = _bits(x)
    return _floats(pattern & -(1 << TAIL_BITS[width]))


@primitive(_float64_to_word, _pattern)
def word(x: Any) -> Any:
    """The bit pattern of a float64 as uint64."""
    return np.asarray(x).view(np.uint64)[()]
