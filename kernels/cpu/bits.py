"""Bit patterns of floats: functions of few instructions, and rounding to bfloat16.

**Bit patterns of floats, choice without a branch, constants of the operand's dtype**. For NumPy's scalars and arrays,
and for symbols (`traced.py`), which become instructions of the operand's width. All take float32 and float64.

Whole numbers that steer bits travel as floats: `anchored(z)` adds 1.5 * 2^23 (or 2^52), which rounds z to the nearest
integer n and leaves n in the low bits. No float is converted to an integer, as that is undefined for NaN. Valid for
|z| < 2^22 (2^51); what lies beyond gives arbitrary bits, never a trap.

**sqrt, floor, rint, fmod, sign, minimum, maximum and division towards zero: few instructions, exact or rounded once**.
All but sqrt, floor, rint and fmod take integers too. As in NumPy a NaN operand gives NaN, and an integer divided by 0
gives 0. Operands of one call are of one dtype: a float64 literal beside a float32 is an error, never a silent widening.

**bfloat16**: the upper half of a float32, as a whole number from 0 to 65535 that travels as a float. Rounding is to the
nearest, of two that are as near to the even one; infinities stay, numbers too large become them, and every NaN becomes
one and the same. Both functions take float64 too, which is a float32 first.

A number rounded to bfloat16, for products that pointwise kernels do: to the nearest, ties to even.

NaN stays NaN and infinities stay. Numbers below the smallest normal one are rounded like all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.traced import Symbol, as_dtype, divide_integers, dtype_of, is_traced, select

__all__ = [
    "anchored", "either", "exponent", "from_upper_half", "head", "is_odd", "like", "mantissa",
    "negated_in_second_half", "released", "scaled", "select", "upper_half", "with_sign", "word",
]  # fmt: skip

MANTISSA_BITS = {32: 23, 64: 52}
SQRT_HALF = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}  # bit patterns
ANCHOR = {32: 0x4B400000, 64: 0x4338000000000000}
ANCHOR_SINGLE, ANCHOR_DOUBLE = 1.5 * 2.0**23, 1.5 * 2.0**52
QUIET_NAN = np.int32(0x7FC00000)
TAIL_BITS = {32: 12, 64: 27}  # what `head` clears


def _bits(x: Any) -> tuple[Any, int]:
    """The pattern of floats as signed integers, and their width."""
    width = 8 * dtype_of(x).itemsize
    return (x if isinstance(x, Symbol) else np.asarray(x)).view(f"int{width}"), width


def _floats(pattern: Any) -> Any:
    width = 8 * dtype_of(pattern).itemsize
    return (
        pattern.view(f"float{width}") if isinstance(pattern, Symbol) else np.asarray(pattern).view(f"f{width // 8}")[()]
    )


def either(x: Any, single: float, double: float) -> Any:
    """The first constant if x is float32, the second if it is float64; of that dtype."""
    dtype = dtype_of(x).type
    return dtype(single if dtype == np.float32 else double)


def like(x: Any, value: float) -> Any:
    """A constant of the dtype of x."""
    return dtype_of(x).type(value)


def anchored(z: Any) -> Any:
    """z rounded to the nearest integer, and that integer in the low bits."""
    return z + either(z, ANCHOR_SINGLE, ANCHOR_DOUBLE)


def released(t: Any) -> Any:
    """The integer that `anchored` found, as a float."""
    return t - either(t, ANCHOR_SINGLE, ANCHOR_DOUBLE)


def scaled(p: Any, t: Any) -> Any:
    """p times 2^n, where t is n anchored; both p and the result must be normal numbers."""
    (pattern, width), (steer, _) = _bits(p), _bits(t)
    return _floats(pattern + (steer << MANTISSA_BITS[width]))


def _exponent_bits(pattern: Any, width: int) -> Any:
    return (pattern - SQRT_HALF[width]) >> MANTISSA_BITS[width]


def exponent(x: Any) -> Any:
    """e, anchored, of x = m * 2^e with m in [sqrt(1/2), sqrt(2)); x positive and normal."""
    pattern, width = _bits(x)
    return _floats(_exponent_bits(pattern, width) + ANCHOR[width])


def mantissa(x: Any) -> Any:
    """m of the same."""
    pattern, width = _bits(x)
    return _floats(pattern - (_exponent_bits(pattern, width) << MANTISSA_BITS[width]))


def with_sign(size: Any, sign: Any) -> Any:
    """|size| with the sign of another float, zeros and NaN included, whatever the fast-math flags say of them."""
    (pattern, width), (other, _) = _bits(size), _bits(sign)
    top = -(1 << (width - 1))
    return _floats((pattern & ~top) | (other & top))


def negated_in_second_half(x: Any, t: Any) -> Any:
    """-x where n mod 4 is 2 or 3, else x; t is n anchored."""
    (pattern, width), (steer, _) = _bits(x), _bits(t)
    return _floats(pattern ^ ((steer >> 1) << (width - 1)))


def is_odd(t: Any) -> Any:
    """True if n is odd; t is n anchored."""
    return (_bits(t)[0] & 1) != 0


def head(x: Any) -> Any:
    """x with the lower half of its mantissa cleared: the product of two heads is exact."""
    pattern, width = _bits(x)
    return _floats(pattern & -(1 << TAIL_BITS[width]))


def word(x: Any) -> Any:
    """The bit pattern of a float64 as uint64."""
    return x.view("uint64") if isinstance(x, Symbol) else np.asarray(x).view(np.uint64)[()]


def upper_half(x: Any) -> Any:
    """The upper 16 bits of a float32, rounded to the nearest, the even one of two; NaN is `QUIET_NAN`."""
    pattern = select(x != x, QUIET_NAN, _bits(x)[0])
    return as_dtype(np.float32, ((pattern + ((pattern >> 16) & 1) + 0x7FFF) >> 16) & 0xFFFF)


def from_upper_half(t: Any) -> Any:
    """The float32 whose upper 16 bits are n and all others 0; t is n anchored."""
    return _floats(_bits(t)[0] << 16)


def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
    return np.sqrt(x)


def floor(x: Any) -> Any:
    """The largest integer not above x, as a float."""
    return np.floor(x)


def rint(x: Any) -> Any:
    """The nearest integer as a float, the even one of two."""
    return np.rint(x)


def fmod(a: Any, b: Any) -> Any:
    """The remainder of a division truncated towards zero, with the sign of a. The C library's; not vectorised."""
    return np.fmod(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller operand, NaN if one is."""
    return select(a != a, a, select(a < b, a, b))


def maximum(a: Any, b: Any) -> Any:
    """The larger operand, NaN if one is."""
    return select(a != a, a, select(a > b, a, b))


def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return np.sign(x)


def divide_towards_zero(a: Any, b: Any) -> Any:
    """`a / b` without its fraction; not vectorised for integers, for which processors have no such instruction."""
    if dtype_of(a).kind == "f":
        return np.trunc(a / b)
    if is_traced(a):
        return divide_integers(a, b)
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient < 0) & (quotient * b != a)).astype(quotient.dtype)


def bfloat16_code(x: Any) -> Any:
    """The bits of x as bfloat16."""
    return as_dtype(dtype_of(x).type, upper_half(as_dtype(np.float32, x)))


def bfloat16_value(code: Any) -> Any:
    """The number with these bits; `code` is whole, from 0 to 65535."""
    return as_dtype(dtype_of(code).type, from_upper_half(anchored(as_dtype(np.float32, code))))


HALF, QUIET, UPPER = 0x7FFF, 0x400000, 0xFFFF0000


def round_bfloat16(x: Any) -> Any:
    """A float32 number, or array of such, as the nearest one whose lower half is zero."""
    bits = (x if isinstance(x, Symbol) else np.asarray(x)).view("uint32")
    half, one, upper = (np.uint32(number) for number in (HALF, 1, UPPER))
    nearest = bits + half + ((bits >> np.uint32(16)) & one)
    chosen = select(x != x, bits | np.uint32(QUIET), nearest) & upper
    return chosen.view("float32") if isinstance(x, Symbol) else np.asarray(chosen).view("float32")[()]
