"""Scalar functions of few instructions: bits of floats, exact functions, bfloat16, steps of reductions, random numbers.

Each is a plain Python function over NumPy scalars and arrays, float32 and float64 alike. On symbols it becomes straight
arithmetic without a branch, a call or a table, which LLVM turns into vector instructions when a loop runs over it
(`traced.py`). All operands of a call must have one dtype. A float64 literal with a float32 is an error, never a silent
widening. `elementary.py` has the functions that are approximated.

**Bit patterns of floats, choice without a branch, constants of the operand's dtype**. Whole numbers that steer bits
are held as floats: `anchored(z)` adds 1.5 * 2^23 (or 2^52), which rounds z to the nearest integer n and leaves n in the
low bits. No float is converted to an integer, as that is undefined for NaN. This is valid for |z| < 2^22 (2^51). Larger
numbers give arbitrary bits, never a trap.

**sqrt, floor, rint, fmod, sign, minimum, maximum and division towards zero**: exact or rounded once. All but sqrt,
floor, rint and fmod take integers too. As in NumPy a NaN operand gives NaN, and an integer divided by 0 gives 0.

**bfloat16**: the upper half of a float32, as a whole number from 0 to 65535 that is held as a float. A number is
rounded to the nearest one; of two that are equally near, to the even one. Infinities stay, numbers that are too large
become infinities, and every NaN becomes the same NaN. Both functions take float64, too, which is rounded to float32
first. `round_bfloat16` is for products in pointwise kernels: NaN stays NaN there, and numbers below the smallest normal
one are rounded like all others.

**Steps of reductions in plain Python**: sums in any order, multiply-adds, extrema that keep NaN. Compiled code has its
own instructions for them. A sum written as a loop is a chain of additions. `add_any_order` marks the addition to the
accumulator: the target may choose the order of these additions. The arithmetic of summands keeps its order. Processors
use one fixed grouping (`rnnops/compiler/targets/llvm_text.py`): the bits of a sum depend only on its summands, and not
on other work in the loop or on the width of vectors. Extrema are one instruction each, and exact in any order. Limits:
which NaN an extremum gives, and the sign of a zero, are left open.

**Uniform random numbers from counters**: those of `uniform_rows` in `scalar_functions.py`, in compiled code, one number
at a time. Rows and steps may be computed in any order and by any thread. Words of 32 bits are held in 64 bits, as wide
as their products. `seed`, `ordinal`, `t`, `n` and `element` are integers of any type. 64 bits of a seed count, so int64
and uint64 of the same bits give the same numbers. Of the others 32 bits count. Elements and sizes are not negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.traced import Symbol, as_dtype, divide_integers, dtype_of, is_traced, select
from rnnops.kernels.scalar_functions import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD

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
    """A constant of the dtype of x: `single` for float32, `double` for float64."""
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
    """p times 2^n, where t is n, anchored. Both p and the result must be normal numbers."""
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
    """|size| with the sign of another float. This also holds for zeros and NaN, whatever the fast-math flags are."""
    (pattern, width), (other, _) = _bits(size), _bits(sign)
    top = -(1 << (width - 1))
    return _floats((pattern & ~top) | (other & top))


def negated_in_second_half(x: Any, t: Any) -> Any:
    """-x if n mod 4 is 2 or 3, else x. t is n, anchored."""
    (pattern, width), (steer, _) = _bits(x), _bits(t)
    return _floats(pattern ^ ((steer >> 1) << (width - 1)))


def is_odd(t: Any) -> Any:
    """True if n is odd. t is n, anchored."""
    return (_bits(t)[0] & 1) != 0


def head(x: Any) -> Any:
    """x with the lower half of its mantissa cleared: the product of two heads is exact."""
    pattern, width = _bits(x)
    return _floats(pattern & -(1 << TAIL_BITS[width]))


def word(x: Any) -> Any:
    """The bit pattern of a float64 as uint64."""
    return x.view("uint64") if isinstance(x, Symbol) else np.asarray(x).view(np.uint64)[()]


def upper_half(x: Any) -> Any:
    """The upper 16 bits of a float32, rounded to the nearest, or to the even one of two. NaN becomes `QUIET_NAN`."""
    pattern = select(x != x, QUIET_NAN, _bits(x)[0])
    return as_dtype(np.float32, ((pattern + ((pattern >> 16) & 1) + 0x7FFF) >> 16) & 0xFFFF)


def from_upper_half(t: Any) -> Any:
    """The float32 whose upper 16 bits are n and whose other bits are 0. t is n, anchored."""
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
    """The remainder of a division truncated towards zero, with the sign of a. It is the C library's, not vectorised."""
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
    """`a / b` without its fraction. For integers it is not vectorised, as processors have no such instruction."""
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


def add_any_order(accumulator: Any, x: Any) -> Any:
    """`accumulator + x`; a loop of such steps may add in any order."""
    return accumulator + x


def add_product_any_order(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps may add in any order."""
    return accumulator + x * y


def add_product(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps adds in its order."""
    return accumulator + x * y


def larger(accumulator: Any, x: Any) -> Any:
    """The larger of the two, NaN if one is; loops of such steps become vector loops."""
    return maximum(accumulator, x)


def smaller(accumulator: Any, x: Any) -> Any:
    """The smaller of the two, NaN if one is."""
    return minimum(accumulator, x)


MULTIPLIER_0, MULTIPLIER_1 = MULTIPLIERS
KEY_STEP_0, KEY_STEP_1 = KEY_STEPS
STEP = 2.0**-32


def unsigned(x: Any) -> Any:
    """x modulo 2**64; a symbol becomes uint64."""
    return x.as_dtype("uint64") if isinstance(x, Symbol) else int(x) & (2**64 - 1)


def _low(x: Any) -> Any:
    return unsigned(x) & unsigned(WORD)


def _high(x: Any) -> Any:
    return unsigned(x) >> unsigned(32)


def _four_words(seed: Any, ordinal: Any, t: Any, n: Any, block: Any) -> Any:
    """The words of elements 4 block to 4 block + 3."""
    c0, c1, c2, c3 = _low(t), _low(n), _low(block), _high(seed)
    k0, k1 = _low(seed), _low(ordinal)
    for _ in range(ROUNDS):
        product0, product1 = c0 * unsigned(MULTIPLIER_0), c2 * unsigned(MULTIPLIER_1)
        c0, c2 = _high(product1) ^ c1 ^ k0, _high(product0) ^ c3 ^ k1
        c1, c3 = _low(product1), _low(product0)
        k0, k1 = _low(k0 + unsigned(KEY_STEP_0)), _low(k1 + unsigned(KEY_STEP_1))
    return c0, c1, c2, c3


def uniform(seed: Any, ordinal: Any, t: Any, n: Any, element: Any) -> Any:
    """Element `element` of row n in step t for the random op `ordinal`: float64 in [0, 1)."""
    c0, c1, c2, c3 = _four_words(seed, ordinal, t, n, element >> 2)
    is_odd = (element & 1) != 0
    word = select((element & 2) != 0, select(is_odd, c3, c2), select(is_odd, c1, c0))
    return word * STEP
