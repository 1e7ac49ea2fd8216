"""Scalar functions of kernels on a CUDA device: libdevice's, by way of `math`, and short texts around them.

Semantics are those of `kernels/cpu/pointwise.py` and `elementary.py`. The simulator calls their functions, so its
numbers are the processor's. A device's numbers are equal bit for bit in `uniform` and in exact functions. NVIDIA gives
the errors in units in the last place (CUDA C++ Programming Guide, mathematical functions): at most 2 for float32 and
float64, but 4 for `pow` of float32. sigmoid adds two roundings to those of exp.

**Operands** are floats of one dtype, or integers. With integers of several dtypes the widest one counts. Other operands
are errors when a kernel is compiled: numba would make float64 of a float32 with a float64, and of an int64 with a
uint64. Float constants are float32 and exact there. With a float32 they keep float32, and with a float64 they become
float64. A literal such as 1.0 would make float64 of all. Integers are computed modulo 2^64 and cut to the operands'
dtype, because numba promises nothing for signed overflow.

Limits: floats are float32 or float64. Results of exp and sigmoid below the smallest normal number are right here, while
processors may give 0. If maximum or minimum gives a zero, its sign is not specified; nor is it specified which NaN they
give. `add_any_order` adds in the order of its calls: on a device only the work of lanes may change the order of a sum.

**sin and cos**: float32 without a branch, a call or local memory. float64 by libdevice, which calls a function with
local memory for large operands. libdevice would reduce large float32 operands in float64 and in local memory. Here
x = m 2^e, m an integer of 24 bits, is multiplied by 96 bits of 2 / pi in 64-bit integers (Payne and Hanek 1983). Bits
of 2 / pi whose products with x are whole turns are left out. The product is n + r modulo 4, in quarter turns with 62
bits of fraction, |r| <= 1/2. Then the processor's polynomials give sin and cos of pi r / 2. n selects one of them as
the result, and its sign.

**Uniform random numbers from counters**: the bits of `uniform_rows` in `scalar_functions.py`, one number at a time.
Words of 32 bits are kept in uint64: numba knows no wider product than its operands, and the device's compiler sees the
upper zeros. Limit: each call computes four words and takes one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cuda.facade import Function, compiled_as, types
from rnnops.kernels.scalar_functions import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD


def are_floats(*operands: Any) -> bool:
    """True if types are those of floats of one dtype."""
    return isinstance(operands[0], types.Float) and set(operands) == {operands[0]}


def widest(*operands: Any) -> Any:
    """The widest of integer types. None if a type is not an integer, or if signed and unsigned types are mixed."""
    if not all(isinstance(operand, types.Integer) for operand in operands):
        return None
    if len({operand.signed for operand in operands}) > 1:
        return None
    found = max(operands, key=lambda operand: operand.bitwidth)
    return types.unliteral(found)


def of_floats(function: Function) -> Function:
    """A function of floats."""
    return compiled_as(lambda *operands: function if are_floats(*operands) else None)(function)


def of_integers(function: Function) -> Function:
    """A function of integers of any type."""

    def choose(*operands: Any) -> Any:
        return function if all(isinstance(operand, types.Integer) for operand in operands) else None

    return compiled_as(choose)(function)


def of_numbers(function: Function) -> Function:
    """A function whose one text serves floats, integers and bools."""

    def choose(*operands: Any) -> Any:
        fit = are_floats(*operands) or widest(*operands) or set(operands) == {types.boolean}
        return function if fit else None

    return compiled_as(choose)(function)


def with_integers(integers: Callable[[Any], Callable[..., Any]]) -> Callable[[Function], Function]:
    """A function of floats, with other functions for integers.

    Args:
        integers: returns the function for an integer type: the widest of the operands, also the type of the result.
    """

    def register(function: Function) -> Function:
        def choose(*operands: Any) -> Any:
            if are_floats(*operands):
                return function
            widest_type = widest(*operands)
            return integers(widest_type) if widest_type else None

        return compiled_as(choose)(function)

    return register


ZERO, ONE, MINUS_ONE = np.float32(0), np.float32(1), np.float32(-1)
NO_BITS, ONE_BIT, TWO_BITS = np.uint64(0), np.uint64(1), np.uint64(2)


def _of_libdevice(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of `math`. A device calls libdevice's function; the result has the operand's dtype."""
    return of_floats(lambda x: function(x))


atan, erf, exp, expm1 = map(_of_libdevice, (math.atan, math.erf, math.exp, math.expm1))
floor, log, log1p, sqrt, tanh = map(_of_libdevice, (math.floor, math.log, math.log1p, math.sqrt, math.tanh))


def _rint(units: Any) -> Callable[[Any], Any]:
    """A function that rounds to the nearest integer, ties to even, by adding and subtracting `units`.

    Numbers of the dtype that are larger than `units` have no fraction.
    """

    def rounded(x: Any) -> Any:
        size = abs(x)
        return math.copysign((size + units) - units if size < units else size, x)

    return rounded


_rint_single, _rint_double = _rint(np.float32(2**23)), _rint(np.float64(2**52))


@compiled_as(lambda x: {types.float32: _rint_single, types.float64: _rint_double}.get(x))
def rint(x: Any) -> Any:
    """The nearest integer as a float, ties to even. A zero has the sign of x."""
    return (_rint_single if x.dtype == np.float32 else _rint_double)(x)


@of_floats
def fmod(a: Any, b: Any) -> Any:
    """The remainder of a division truncated towards zero, with the sign of a."""
    return math.fmod(a, b)


@of_floats
def sigmoid(x: Any) -> Any:
    """`1 / (1 + exp(-x))`, computed from `exp(-|x|)`: it never overflows, and results for x < 0 lose no digits."""
    power = math.exp(-abs(x))
    return (ONE if x >= ZERO else power) / (ONE + power)


@of_numbers
def maximum(a: Any, b: Any) -> Any:
    """The larger operand, NaN if one is."""
    return a if a != a or a > b else b


@of_numbers
def minimum(a: Any, b: Any) -> Any:
    """The smaller operand, NaN if one is."""
    return a if a != a or a < b else b


larger, smaller = maximum, minimum  # steps of the folds `max` and `min`


def _sign_of_integer(kind: Any) -> Callable[..., Any]:
    return lambda x: kind(1 if x > 0 else -1 if x < 0 else 0)


@with_integers(_sign_of_integer)
def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN of NaN, 0 of both zeros."""
    return x if x != x else ONE if x > ZERO else MINUS_ONE if x < ZERO else ZERO


@of_integers
def _size(x: Any) -> Any:
    """|x| as uint64, which also holds that of the least integer."""
    return NO_BITS - np.uint64(x) if x < 0 else np.uint64(x)


def _integer_quotient(kind: Any) -> Callable[..., Any]:
    def divide(a: Any, b: Any) -> Any:
        if b == 0:
            return kind(0)
        quotient = _size(a) // _size(b)
        return kind(quotient if (a < 0) == (b < 0) else NO_BITS - quotient)

    return divide


@with_integers(_integer_quotient)
def divide_towards_zero(a: Any, b: Any) -> Any:
    """`a / b` without its fraction. Integers: 0 if b is 0; a quotient that does not fit wraps around."""
    return math.trunc(a / b)


def _integer_power(kind: Any) -> Callable[..., Any]:
    def power(x: Any, y: Any) -> Any:
        result, square, rest = ONE_BIT, np.uint64(x), np.uint64(y) if y > 0 else NO_BITS
        while rest != NO_BITS:
            if rest & ONE_BIT != NO_BITS:
                result *= square
            square *= square
            rest >>= ONE_BIT
        return kind(result)

    return power


@with_integers(_integer_power)
def pow(x: Any, y: Any) -> Any:  # noqa: A001
    """`x ** y`, with the edge cases of C. Integers: results wrap around, and are 1 if y is below 0."""
    return math.pow(x, y)


def _integer_sum(kind: Any) -> Callable[..., Any]:
    return lambda accumulator, x: kind(np.uint64(accumulator) + np.uint64(x))


@with_integers(_integer_sum)
def add_any_order(accumulator: Any, x: Any) -> Any:
    """`accumulator + x`."""
    return accumulator + x


def _integer_sum_of_product(kind: Any) -> Callable[..., Any]:
    return lambda accumulator, x, y: kind(np.uint64(accumulator) + np.uint64(x) * np.uint64(y))


@with_integers(_integer_sum_of_product)
def add_product(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add."""
    return accumulator + x * y


add_product_any_order = add_product


HALF, INFINITY = np.float32(0.5), np.float32(np.inf)
EIGHTH_TURN = np.float32(np.pi / 4)
UNIT = np.float32(table.HALF_PI * 2.0**-64)  # radians of a bit of r
SIN_0, SIN_1, SIN_2 = map(np.float32, table.SIN_SINGLE)
COS_0, COS_1, COS_2 = map(np.float32, table.COS_SINGLE)

# 2 / pi behind 64 zeros, in words of 64 bits; numba keeps to uint64 only among uint64
WORDS = np.array(table.TWO_OVER_PI_WORDS, np.uint64)
FRACTION_BITS, FRACTION, HIDDEN_BIT = np.uint64(23), np.uint64(2**23 - 1), np.uint64(2**23)
LEAST_EXPONENT = np.uint64(126)  # of 1/2; smaller x are not reduced
FIRST_EXPONENT = np.uint64(127 + 25 - 64)  # of the x whose products start at the first bit of WORDS
WORD_STEPS, LAST_BIT, HALF_WORD = np.uint64(6), np.uint64(63), np.uint64(32)
QUARTER_BITS, EIGHTH = np.uint64(62), np.uint64(2**61)


@of_integers
def _word_at(index: Any, shift: Any) -> Any:
    """64 bits of 2 / pi."""
    return (WORDS[index] << shift) | ((WORDS[index + ONE_BIT] >> ONE_BIT) >> (LAST_BIT - shift))


@of_floats
def _quarter_turns(size: Any) -> Any:
    """x in quarter turns modulo 4: 2 bits before the point, 62 behind; x from 1/2 on."""
    bits = np.uint64(np.float32(size).view(np.uint32))
    place = max(bits >> FRACTION_BITS, LEAST_EXPONENT) - FIRST_EXPONENT
    index, shift = place >> WORD_STEPS, place & LAST_BIT
    m = (bits & FRACTION) | HIDDEN_BIT
    near, far = _word_at(index, shift), _word_at(index + ONE_BIT, shift) >> HALF_WORD
    return m * near + ((m * far) >> HALF_WORD)


@of_floats
def _sin_of(size: Any, quarter: Any) -> Any:
    """sin(size + quarter pi / 2), quarter 0 or 1; NaN where the operand is not finite."""
    turns = _quarter_turns(size)
    is_small = size < EIGHTH_TURN
    n = (NO_BITS if is_small else (turns + EIGHTH) >> QUARTER_BITS) + np.uint64(quarter)
    r = size if is_small else np.float32(np.uint64(turns << TWO_BITS).view(np.int64)) * UNIT
    z = r * r
    sine = r + r * (z * ((SIN_0 * z + SIN_1) * z + SIN_2))
    cosine = ONE - (HALF * z - z * z * ((COS_0 * z + COS_1) * z + COS_2))
    found = cosine if n & ONE_BIT != NO_BITS else sine
    return (-found if n & TWO_BITS != NO_BITS else found) if size < INFINITY else size - size


def _sin_single(x: Any) -> Any:
    return math.copysign(ONE, x) * _sin_of(abs(x), np.float32(0))


def _sin_double(x: Any) -> Any:
    return math.sin(x)


def _cos_single(x: Any) -> Any:
    return _sin_of(abs(x), ONE)


def _cos_double(x: Any) -> Any:
    return math.cos(x)


@compiled_as(lambda x: {types.float32: _sin_single, types.float64: _sin_double}.get(x))
def sin(x: Any) -> Any:
    """Sine of x in radians."""
    return _sin_single(x) if isinstance(x, np.float32) else _sin_double(x)


@compiled_as(lambda x: {types.float32: _cos_single, types.float64: _cos_double}.get(x))
def cos(x: Any) -> Any:
    """Cosine of x in radians."""
    return _cos_single(x) if isinstance(x, np.float32) else _cos_double(x)


MULTIPLIER_0, MULTIPLIER_1 = map(np.uint64, MULTIPLIERS)
KEY_STEP_0, KEY_STEP_1 = map(np.uint64, KEY_STEPS)
LOW = np.uint64(WORD)
STEP = 2.0**-32


@of_integers
def uniform(seed: Any, ordinal: Any, t: Any, n: Any, element: Any) -> Any:
    """Element `element` of row n in step t for the random op `ordinal`: float64 in [0, 1)."""
    place, key = np.uint64(element), np.uint64(seed)
    c0, c1, c2, c3 = np.uint64(t) & LOW, np.uint64(n) & LOW, (place >> TWO_BITS) & LOW, key >> HALF_WORD
    k0, k1 = key & LOW, np.uint64(ordinal) & LOW
    for _ in range(ROUNDS):
        product0, product1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
        c0, c2 = (product1 >> HALF_WORD) ^ c1 ^ k0, (product0 >> HALF_WORD) ^ c3 ^ k1
        c1, c3 = product1 & LOW, product0 & LOW
        k0, k1 = (k0 + KEY_STEP_0) & LOW, (k1 + KEY_STEP_1) & LOW
    is_odd = place & ONE_BIT != NO_BITS
    upper, lower = c3 if is_odd else c2, c1 if is_odd else c0
    return np.float64(upper if place & TWO_BITS != NO_BITS else lower) * STEP
