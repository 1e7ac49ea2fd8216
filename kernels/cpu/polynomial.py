"""Polynomials with constant coefficients, one table for each float dtype.

By Horner's rule; long ones in two chains, of even and of odd powers, which halves the time until the result is there at
the price of one product. Product and sum are one multiply-add (`traced.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
