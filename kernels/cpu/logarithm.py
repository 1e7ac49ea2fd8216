"""Logarithms and powers.

log and log1p, the logarithms.

log: x = m 2^e with m in [sqrt(1/2), sqrt(2)) from the bits of x, f = m - 1 exact, log(m) = f - f^2 / 2 + f^3 P(f), plus
e ln 2 as a sum of two products of which the first is exact. Numbers below the smallest normal one are scaled up first.
log1p(x) = log(u) + c / u, where u is 1 + x rounded and c what the rounding lost.

pow, for floats and for integers.

x^y = exp(y log x) needs a logarithm far more precise than the result, as y log x may be as large as 88 (709 in
float64). So log x is a sum of two floats: log m = 2 atanh(s) with s = (m - 1) / (m + 1), and what rounding loses at
each step is kept. The larger part of each sum has half a mantissa only, which makes products exact (as in the e_pow of
fdlibm, Ng and others 1993). Edge cases are those of C: `pow(x, 0)` and `pow(1, y)` are 1 even where the other operand
is NaN.

Limits: results below the smallest normal number are 0 or nearby. Integer powers below 0 give 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cpu.bits import either, exponent, head, like, mantissa, released, select, with_sign
from rnnops.kernels.cpu.exponential import exp_where_normal, polynomial
from rnnops.kernels.cpu.traced import dtype_of, integer_power, is_traced

INFINITY, NAN = np.inf, np.nan
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
# y log x is rounded before it is compared, so it may be one number further out; what overflows then has a NaN's bits.
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
