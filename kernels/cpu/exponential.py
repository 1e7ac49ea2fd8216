"""Exponentials and the error function, and the polynomials that they are made of.

Polynomials with constant coefficients, one table for each float dtype.

By Horner's rule; long ones in two chains, of even and of odd powers, which halves the time until the result is there at
the price of one product. Product and sum are one multiply-add (`traced.py`).

exp, expm1, tanh and sigmoid.

exp: x = n ln 2 + r with |r| <= ln(2) / 2, ln 2 as a sum of two numbers of which the first times n is exact (Cody and
Waite 1980); exp(r) is a polynomial, and n is added to the bits of the exponent. expm1 keeps exp(r) - 1 by itself:
2^n (exp(r) - 1) + (2^n - 1). tanh(x) = e / (e + 2) with e = expm1(2 |x|): nothing cancels and it never exceeds 1.

Limit: results of exp and sigmoid below the smallest normal number are 0 or nearby.

erf: x + x P(x^2) below 1; 1 - exp(-Q(|x| - 1)) above, where Q approaches -log(erfc), until erf is 1 to the last bit.

Both are computed for every x and one is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cpu.bits import anchored, either, like, released, scaled, select, with_sign
from rnnops.kernels.cpu.traced import dtype_of

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
