"""exp, expm1, tanh and sigmoid.

exp: x = n ln 2 + r with |r| <= ln(2) / 2, ln 2 as a sum of two numbers of which the first times n is exact (Cody and
Waite 1980); exp(r) is a polynomial, and n is added to the bits of the exponent. expm1 keeps exp(r) - 1 by itself:
2^n (exp(r) - 1) + (2^n - 1). tanh(x) = e / (e + 2) with e = expm1(2 |x|): nothing cancels and it never exceeds 1.

Limit: results of exp and sigmoid below the smallest normal number are 0 or nearby.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cpu.bits import anchored, either, like, released, scaled, select, with_sign
from rnnops.kernels.cpu.polynomial import polynomial

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
    """exp(x + low), |low| far below |x|: a correction that x cannot hold; arbitrary bits unless a normal number."""
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
    """(exp(x) - 1) / 2, halved so that 2^128 does not overflow; x between -80 and where exp does."""
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
