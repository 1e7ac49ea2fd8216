"""Elementary functions: exponentials, logarithms, powers, the error function, arctangent, sine and cosine.

**Polynomials** have constant coefficients, one table for each float dtype. They are evaluated by Horner's rule. Long
ones go in two chains, of even and of odd powers: that halves the latency and costs one more product. A product and a
sum are one multiply-add (`traced.py`).

**exp, expm1, tanh and sigmoid**. exp: x = n ln 2 + r with |r| <= ln(2) / 2. ln 2 is a sum of two numbers, and the first
times n is exact (Cody and Waite 1980). exp(r) is a polynomial, and n is added to the bits of the exponent. expm1 never
adds 1 to exp(r) - 1: it is 2^n (exp(r) - 1) + (2^n - 1). tanh(x) = e / (e + 2) with e = expm1(2 |x|): nothing cancels
and it never exceeds 1.

Limit: results of exp and sigmoid below the smallest normal number are 0 or nearby.

**erf**: x + x P(x^2) below 1; 1 - exp(-Q(|x| - 1)) above, where Q approaches -log(erfc), until erf is 1 to the last
bit. Both are computed for every x and one is chosen.

**log and log1p, the logarithms**. log: x = m 2^e with m in [sqrt(1/2), sqrt(2)) from the bits of x, f = m - 1 exact,
log(m) = f - f^2 / 2 + f^3 P(f), plus e ln 2 as a sum of two products, the first exact. Numbers below the smallest
normal one are scaled up first. log1p(x) = log(u) + c / u, where u is 1 + x rounded and c what the rounding lost.

**pow, for floats and for integers**. x^y = exp(y log x) needs a logarithm far more precise than the result, as y log x
may be as large as 88 (709 in float64). So log x is a sum of two floats: log m = 2 atanh(s) with s = (m - 1) / (m + 1),
and the rounding error of each step is kept. The larger part of each sum has only half a mantissa, which makes products
exact (as in the e_pow of fdlibm, Ng and others 1993). Edge cases are those of C: `pow(x, 0)` and `pow(1, y)` are 1 even
if the other operand is NaN.

Limits: results below the smallest normal number are 0 or nearby. Integer powers below 0 give 1.

**sin and cos**, right for every finite argument, without a branch.

Both need n and r of 2 |x| / pi = n + r, n an integer, |r| <= 1/2, for x up to 2^128 (2^1024). Only some bits of 2 / pi
count: those whose products with x are neither multiples of 4 (whole turns) nor far below r (Payne and Hanek 1983).

- float32: in float64, with 2 / pi in three parts so short that two of the three products are exact. The size of x, in
  four segments, selects the parts.
- float64: 192 bits of 2 / pi, from a place that the exponent of x gives, times the mantissa of x, in 64-bit integers.

Then polynomials give sin and cos of pi r / 2. n mod 4 selects the result of the two, and its sign.

Errors are within the bounds in `scalar_functions.py` for every finite operand whose result is a normal number. Results
are also right for infinities, NaN, zeros and operands below the smallest normal number. Results below that number are
right or 0. Odd functions keep the signs of zeros. The bounds hold with and without fused multiply-adds, compiled or
not. In plain Python, functions may warn of overflow and invalid values (`np.errstate`).

**Definitions** of the scalar functions that generated code calls. This file is loaded only if no object of that code is
on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cpu.pointwise import (
    anchored,
    either,
    exponent,
    head,
    is_odd,
    like,
    mantissa,
    negated_in_second_half,
    released,
    round_bfloat16,
    scaled,
    uniform,
    with_sign,
    word,
)
from rnnops.kernels.cpu.traced import as_dtype, define, dtype_of, entry_of, integer_power, is_traced, select
from rnnops.kernels.scalar_functions import implementations

LONGEST_CHAIN = 6


def polynomial(single: Sequence[float], double: Sequence[float]) -> Callable[[Any], Any]:
    """A function of x that evaluates `single` in float32 and `double` in float64, highest powers first."""
    tables = {4: single, 8: double}

    def evaluate(x: Any) -> Any:
        dtype = dtype_of(x)
        constants = [dtype.type(c) for c in tables[dtype.itemsize]]
        if len(constants) <= LONGEST_CHAIN:
            return _chain(constants, x)
        square = x * x
        even, odd = (_chain(constants[last::-2][::-1], square) for last in (-1, -2))
        return odd * x + even

    return evaluate


def _chain(constants: list[Any], x: Any) -> Any:
    total, *rest = constants
    for constant in rest:
        total = total * x + constant
    return total


INFINITY = np.inf
EXPM1_LOWEST = -80.0  # from here down expm1 is -1
TANH_SINGLE, TANH_DOUBLE = 9.1, 19.1  # from here up tanh is 1

exp_tail = polynomial(table.EXP_SINGLE, table.EXP_DOUBLE)


def _whole_powers(x: Any) -> Any:
    """n, anchored, of x = n ln 2 + r."""
    return anchored(x * like(x, table.LOG2_E))


def _rest(x: Any, low: Any, n: Any) -> Any:
    """r of x + low = n ln 2 + r."""
    above = x - n * either(x, table.LN_2_HIGH_SINGLE, table.LN_2_HIGH_DOUBLE)
    return (above + low) - n * either(x, table.LN_2_LOW_SINGLE, table.LN_2_LOW_DOUBLE)


def exp_where_normal(x: Any, low: Any) -> Any:
    """exp(x + low), where `low` is a correction far below |x|. Unless the result is a normal number, it has arbitrary
    bits."""
    t = _whole_powers(x)
    r = _rest(x, low, released(t))
    return scaled(like(x, 1.0) + (r + r * r * exp_tail(r)), t)


def exp(x: Any) -> Any:
    """`e ** x`."""
    power, zero = exp_where_normal(x, like(x, 0.0)), like(x, 0.0)
    lowest = either(x, table.EXP_LOWEST_SINGLE, table.EXP_LOWEST_DOUBLE)
    highest = either(x, table.EXP_HIGHEST_SINGLE, table.EXP_HIGHEST_DOUBLE)
    return select(x <= highest, select(x >= lowest, power, zero), x + like(x, INFINITY))


def _half_expm1(x: Any) -> Any:
    """(exp(x) - 1) / 2, halved so that 2^128 does not overflow. x lies between -80 and the overflow of exp."""
    t = _whole_powers(x)
    half = like(x, 0.5)
    r = _rest(x, like(x, 0.0), released(t))
    scale = scaled(half, t)
    return scale * (r + r * r * exp_tail(r)) + (scale - half)


def expm1(x: Any) -> Any:
    """`e ** x - 1`, precise near 0."""
    y = _half_expm1(select(x < like(x, EXPM1_LOWEST), like(x, EXPM1_LOWEST), x))
    highest = either(x, table.EXP_HIGHEST_SINGLE, table.EXP_HIGHEST_DOUBLE)
    return with_sign(select(x <= highest, y + y, x + like(x, INFINITY)), x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    largest = either(x, TANH_SINGLE, TANH_DOUBLE)
    size = with_sign(x, like(x, 1.0))
    half = _half_expm1(select(size > largest, largest + largest, size + size))
    return with_sign(half / (half + like(x, 1.0)), x)


def sigmoid(x: Any) -> Any:
    """`1 / (1 + exp(-x))`."""
    one = like(x, 1.0)
    return one / (one + exp(-x))


LARGEST_SINGLE, LARGEST_DOUBLE = 4.0, 6.0  # from here up erf is 1

near_zero = polynomial(table.ERF_SINGLE, table.ERF_DOUBLE)
minus_log_erfc = polynomial(table.ERF_TAIL_SINGLE, table.ERF_TAIL_DOUBLE)


def erf(x: Any) -> Any:
    """The error function `2 / sqrt(pi) * integral of exp(-t^2) from 0 to x`."""
    one, largest = like(x, 1.0), either(x, LARGEST_SINGLE, LARGEST_DOUBLE)
    size = with_sign(x, one)
    size = select(size > largest, largest, size)
    tail = one - exp(-minus_log_erfc(size - one))
    return with_sign(select(size < one, size + size * near_zero(size * size), tail), x)


NAN = np.nan
SMALLEST_SINGLE, SMALLEST_DOUBLE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float64).tiny)
STEPS_SINGLE, STEPS_DOUBLE = 24.0, 54.0  # smaller numbers are scaled by 2 to these powers
SCALE_SINGLE, SCALE_DOUBLE = 2.0**STEPS_SINGLE, 2.0**STEPS_DOUBLE

log_tail = polynomial(table.LOG_SINGLE, table.LOG_DOUBLE)


def made_normal(x: Any) -> Any:
    """x times 2 to some power, and that power: 0 unless x is below the smallest normal number."""
    is_small = x < either(x, SMALLEST_SINGLE, SMALLEST_DOUBLE)
    normal = select(is_small, x * either(x, SCALE_SINGLE, SCALE_DOUBLE), x)
    return normal, select(is_small, either(x, STEPS_SINGLE, STEPS_DOUBLE), like(x, 0.0))


def _log_of_normal(x: Any, steps: Any) -> Any:
    """log(x / 2^steps) for x positive, finite and normal."""
    e = released(exponent(x)) - steps
    f = mantissa(x) - like(x, 1.0)
    tail = f * f * (f * log_tail(f) - like(x, 0.5))
    near = f + (tail + e * either(x, table.LN_2_LOW_SINGLE, table.LN_2_LOW_DOUBLE))
    return e * either(x, table.LN_2_HIGH_SINGLE, table.LN_2_HIGH_DOUBLE) + near


def _at_edges(x: Any, inside: Any) -> Any:
    """`inside` for positive finite x, else the logarithm's limits: inf, -inf at 0, NaN below and at NaN."""
    below = select(x == like(x, 0.0), like(x, -INFINITY), like(x, NAN))
    return select(x > like(x, 0.0), select(x < like(x, INFINITY), inside, x), below)


def log(x: Any) -> Any:
    """Natural logarithm."""
    normal, steps = made_normal(x)
    return _at_edges(x, _log_of_normal(normal, steps))


def log1p(x: Any) -> Any:
    """`log(1 + x)`, precise near 0."""
    u = like(x, 1.0) + x
    lost = x - (u - like(x, 1.0))
    inside = _log_of_normal(u, like(x, 0.0)) + lost / u
    return with_sign(_at_edges(u, inside), x)


LARGEST_POWER = 2.0**70  # all x but 1 are 0 or infinite from here on
# y log x is rounded before it is compared, so it may be one number further out. If a power overflows then, it has the
# bits of a NaN.
LOWEST_SINGLE = float(np.nextafter(np.float32(table.EXP_LOWEST_SINGLE), np.float32(-np.inf)))
HIGHEST_SINGLE = float(np.nextafter(np.float32(table.EXP_HIGHEST_SINGLE), np.float32(np.inf)))
LOWEST_DOUBLE = float(np.nextafter(table.EXP_LOWEST_DOUBLE, -np.inf))
HIGHEST_DOUBLE = float(np.nextafter(table.EXP_HIGHEST_DOUBLE, np.inf))

atanh_tail = polynomial(table.ATANH_SINGLE, table.ATANH_DOUBLE)


def _log_of_mantissa(m: Any) -> Any:
    """3/2 log(m) as a sum of a head and a rest."""
    one, three = like(m, 1.0), like(m, 3.0)
    f, d = m - one, m + one
    reciprocal, d_head = one / d, head(d)
    s = head(f * reciprocal)
    s_rest = ((f - s * d_head) - s * (m - (d_head - one))) * reciprocal
    whole = s + s_rest
    z, square = s * s, whole * whole
    tail = s_rest * (s + whole) + square * square * atanh_tail(square)
    series = head(three + z + tail)
    series_rest = tail - ((series - three) - z)
    product, rest = s * series, s_rest * series + series_rest * whole
    result = head(product + rest)
    return result, rest - (result - product)


def _log_as_sum(x: Any) -> Any:
    """log(x) as a sum of a head and a rest, x positive and finite."""
    normal, steps = made_normal(x)
    e = released(exponent(normal)) - steps
    log_head, log_rest = _log_of_mantissa(mantissa(normal))
    factor = either(x, table.TWO_THIRDS_HIGH_SINGLE, table.TWO_THIRDS_HIGH_DOUBLE)
    factor_rest = either(x, table.TWO_THIRDS_LOW_SINGLE, table.TWO_THIRDS_LOW_DOUBLE)
    far, near = e * either(x, table.LN_2_HIGH_SINGLE, table.LN_2_HIGH_DOUBLE), factor * log_head
    near_rest = factor_rest * log_head + (factor + factor_rest) * log_rest
    rest = near_rest + e * either(x, table.LN_2_LOW_SINGLE, table.LN_2_LOW_DOUBLE)
    result = head((near + rest) + far)
    return result, rest - ((result - far) - near)


def _power_of_size(x: Any, y: Any) -> Any:
    """x ** y for x from 0 to inf."""
    zero, infinity, largest = like(x, 0.0), like(x, INFINITY), like(y, LARGEST_POWER)
    limited = select(y > largest, largest, select(y < -largest, -largest, y))
    y_head = head(limited)
    log_head, log_rest = _log_as_sum(x)
    large, small = y_head * log_head, (limited - y_head) * log_head + limited * log_rest
    power = exp_where_normal(large, small)
    is_finite = (large + small <= either(x, HIGHEST_SINGLE, HIGHEST_DOUBLE)) & (power == power)
    is_normal = large + small >= either(x, LOWEST_SINGLE, LOWEST_DOUBLE)
    inside = select(is_normal, select(is_finite, power, infinity), zero)
    at_edge = select(select(x == zero, -y, y) > zero, infinity, zero)
    return select((x > zero) & (x < infinity), inside, at_edge)


def _float_power(x: Any, y: Any) -> Any:
    one, half = like(x, 1.0), like(y, 0.5) * y
    size = with_sign(x, one)
    is_fraction = np.floor(y) != y
    sign = select(is_fraction | (np.floor(half) == half), one, x)
    power = with_sign(_power_of_size(size, y), sign)
    has_no_power = is_fraction & (x < like(x, 0.0)) & (size < like(x, INFINITY))
    power = select(has_no_power, like(x, NAN), select((x == x) & (y == y), power, x + y))
    return select((x == one) | (y == like(y, 0.0)), one, power)


def pow(x: Any, y: Any) -> Any:  # noqa: A001
    """`x ** y`."""
    if dtype_of(x).kind == "f":
        return _float_power(x, y)
    return integer_power(x, y) if is_traced(x) else np.power(x, np.maximum(y, like(y, 0)))


EIGHTH_TURN = np.pi / 4

# float32: where other parts of 2 / pi begin, and the parts
SEGMENTS = (2.0**50, 2.0**77, 2.0**104)
FIRST, SECOND, THIRD = table.TWO_OVER_PI_PART_0, table.TWO_OVER_PI_PART_1, table.TWO_OVER_PI_PART_2

# float64: words of 64 bits; integers stay uint64 only among uint64
WORDS = np.array(table.TWO_OVER_PI_WORDS, np.uint64)
ONE, TWO, LOG2_BITS, LAST_BIT = np.uint64(1), np.uint64(2), np.uint64(6), np.uint64(63)
HALF, LOW_HALF = np.uint64(32), np.uint64(2**32 - 1)
FRACTION_BITS, FRACTION, HIDDEN_BIT = np.uint64(52), np.uint64(2**52 - 1), np.uint64(2**52)
LEAST_EXPONENT = np.uint64(1022)  # of 1/2; smaller x are not reduced
FIRST_EXPONENT = np.uint64(1023 + 53 - 63)  # of the x whose products start at the first bit of WORDS
QUARTER_BITS, EIGHTH = np.uint64(62), np.uint64(2**61)
UNIT, LOW_UNIT = 2.0**-64, 2.0**-128

sin_tail = polynomial(table.SIN_SINGLE, table.SIN_DOUBLE)
cos_tail = polynomial(table.COS_SINGLE, table.COS_DOUBLE)


def _by_segment(x: Any, parts: Any) -> Any:
    far = select(x < SEGMENTS[2], like(x, parts[2]), like(x, parts[3]))
    return select(x < SEGMENTS[0], like(x, parts[0]), select(x < SEGMENTS[1], like(x, parts[1]), far))


def _within_a_turn(quarters: Any) -> Any:
    """Less the nearest multiple of 4; exact below 2^53."""
    return quarters - 4.0 * released(anchored(0.25 * quarters))


def _quarter_turns_single(size: Any) -> Any:
    """n and pi r / 2."""
    x = as_dtype(np.float64, size)
    first = _within_a_turn(x * _by_segment(x, FIRST))
    second = _within_a_turn(x * _by_segment(x, SECOND))
    n = released(anchored(first + second))
    r = ((first - n) + second) + x * _by_segment(x, THIRD)
    return as_dtype(np.float32, n), as_dtype(np.float32, r * table.HALF_PI)


def _column(product: Any, other: Any, carry: Any) -> Any:
    """32 bits of a long product, and what is carried to the next 32; `other` is below 2^53."""
    lower = product + carry
    total = (lower & LOW_HALF) + other
    return total & LOW_HALF, (lower >> HALF) + (total >> HALF)


def _middle_words(m: Any, a: Any, b: Any, c: Any) -> Any:
    """Bits 64 to 191 of m < 2^53 times the 192-bit number a b c, with an error of up to 2 in the last of them."""
    m1, m0 = m >> HALF, m & LOW_HALF
    a1, a0, b1, b0, c1, c0 = a >> HALF, a & LOW_HALF, b >> HALF, b & LOW_HALF, c >> HALF, c & LOW_HALF
    digit2, carry = _column(m0 * b0, m1 * c1, ((m0 * c1) >> HALF) + ((m1 * c0) >> HALF))
    digit3, carry = _column(m0 * b1, m1 * b0, carry)
    digit4, carry = _column(m0 * a0, m1 * b1, carry)
    digit5 = m0 * a1 + m1 * a0 + carry
    return (digit5 << HALF) | digit4, (digit3 << HALF) | digit2


def _word_at(index: Any, shift: Any) -> Any:
    """64 bits of 2 / pi."""
    return (entry_of(WORDS, index) << shift) | ((entry_of(WORDS, index + ONE) >> ONE) >> (LAST_BIT - shift))


def _quarter_turns_double(size: Any) -> Any:
    """n and pi r / 2."""
    bits = word(size)
    place = np.maximum(bits >> FRACTION_BITS, LEAST_EXPONENT) - FIRST_EXPONENT
    index, shift = place >> LOG2_BITS, place & LAST_BIT
    mantissa = (bits & FRACTION) | HIDDEN_BIT
    a, b, c = _word_at(index, shift), _word_at(index + ONE, shift), _word_at(index + TWO, shift)
    upper, lower = _middle_words(mantissa, a, b, c)
    n = as_dtype(np.float64, (upper + EIGHTH) >> QUARTER_BITS)
    rest, low_rest = as_dtype(np.int64, (upper << TWO) | (lower >> QUARTER_BITS)), lower << TWO
    r = as_dtype(np.float64, rest) * UNIT + as_dtype(np.float64, low_rest) * LOW_UNIT
    is_small = size < EIGHTH_TURN
    return select(is_small, 0.0, n), select(is_small, size, r * table.HALF_PI)


def _quarter_turns(size: Any) -> Any:
    return _quarter_turns_single(size) if dtype_of(size) == np.float32 else _quarter_turns_double(size)


def _sin_of_turn(n: Any, r: Any, size: Any) -> Any:
    """sin(pi n / 2 + r), NaN where the operand is not finite."""
    t, z = anchored(n), r * r
    sine = r + r * z * sin_tail(z)
    cosine = like(r, 1.0) - (like(r, 0.5) * z - z * z * cos_tail(z))
    result = negated_in_second_half(select(is_odd(t), cosine, sine), t)
    return select(size < like(size, INFINITY), result, size - size)


def sin(x: Any) -> Any:
    """Sine of x in radians."""
    one = like(x, 1.0)
    size = with_sign(x, one)
    n, r = _quarter_turns(size)
    return with_sign(one, x) * _sin_of_turn(n, r, size)


def cos(x: Any) -> Any:
    """Cosine of x in radians."""
    size = with_sign(x, like(x, 1.0))
    n, r = _quarter_turns(size)
    return _sin_of_turn(n + like(n, 1.0), r, size)


def atan(x: Any) -> Any:
    """Arc tangent in radians. It is the C library's and not vectorised."""
    return np.arctan(x)


def definitions(called: Mapping[str, tuple[str, tuple[str, ...], str]], declared: Collection[str]) -> str:
    """Definitions of scalar functions as LLVM IR, without those that are declared already.

    Args:
        called: name in LLVM -> function, dtypes of its operands and of its result.
    """
    texts = dict(one for name, used in called.items() for one in _definition(name, *used))
    return "\n".join(text for name, text in texts.items() if name not in declared)  # each only once


@cache
def _definition(name: str, function: str, dtypes: tuple[str, ...], result: str) -> tuple[tuple[str, str], ...]:
    """Name -> text, of a scalar function and of the functions that it declares."""
    holder = ir.Module(name)
    traced: dict[str, Callable[..., Any]] = {
        **implementations("cpu"),
        "uniform": uniform,
        "round_bfloat16": round_bfloat16,
    }
    define(holder, traced[function], name, dtypes, result)
    return tuple((one, str(text)) for one, text in holder.globals.items())
