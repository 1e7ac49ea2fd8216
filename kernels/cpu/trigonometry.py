"""sin and cos, right for every finite argument, without a branch.

Both need n and r of 2 |x| / pi = n + r, n an integer, |r| <= 1/2, for x up to 2^128 (2^1024). Only bits of 2 / pi count
whose products with x are neither multiples of 4, which are whole turns, nor far below r (Payne and Hanek 1983).

- float32: in float64, with 2 / pi in three parts so short that two of the three products are exact; which parts depends
  on the size of x, in four segments.
- float64: 192 bits of 2 / pi, from the place that the exponent of x says, times the mantissa of x, in 64-bit integers.

Then polynomials give sin and cos of pi r / 2; n mod 4 says which of them is the result, and its sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cpu.bits import anchored, is_odd, like, negated_in_second_half, released, select, with_sign, word
from rnnops.kernels.cpu.exponential import polynomial
from rnnops.kernels.cpu.traced import as_dtype, dtype_of, entry_of

INFINITY = np.inf
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
    """Bits 64 to 191 of m < 2^53 times the 192-bit number a b c, but for an error of 2 in the last of them."""
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
    """Arc tangent in radians; of the C library, and not vectorised."""
    return np.arctan(x)
