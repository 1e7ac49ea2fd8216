"""log and log1p, the logarithms.

log: x = m 2^e with m in [sqrt(1/2), sqrt(2)) from the bits of x, f = m - 1 exact, log(m) = f - f^2 / 2 + f^3 P(f), plus
e ln 2 as a sum of two products of which the first is exact. Numbers below the smallest normal one are scaled up first.
log1p(x) = log(u) + c / u, where u is 1 + x rounded and c what the rounding lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cpu.bits import either, exponent, like, mantissa, released, select, with_sign
from rnnops.kernels.cpu.polynomial import polynomial

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
