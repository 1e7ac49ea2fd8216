"""Polynomials with constant coefficients, one table for each float dtype.

By Horner's rule; long ones in two chains, of even and of odd powers, which halves the time until the result is there at
the price of one product. The steps are written as LLVM instructions directly: no code for numba to type and no loop for
LLVM to unroll, so that a polynomial costs next to nothing to compile. The flag `contract` fuses product and sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from rnnops.kernels.cpu.bits import floats_to_float, primitive, width_of

LONGEST_CHAIN = 6

Multiply = Callable[[Any, Any], Any]
Add = Callable[[Any, Any], Any]


def polynomial(single: Sequence[float], double: Sequence[float]) -> Callable[[Any], Any]:
    """A function of x that evaluates `single` in float32 and `double` in float64, highest powers first."""
    tables = {32: single, 64: double}

    def emit(builder: Any, x: Any) -> Any:
        constants = [ir.Constant(x.type, float(c)) for c in tables[width_of(x)]]
        return _evaluated(constants, x, builder.fmul, builder.fadd)

    @primitive(floats_to_float, emit)
    def evaluate(x: Any) -> Any:
        dtype = np.asarray(x).dtype
        constants = [dtype.type(c) for c in tables[8 * dtype.itemsize]]
        return _evaluated(constants, x, np.multiply, np.add)

    return evaluate


def _evaluated(constants: list[Any], x: Any, multiply: Multiply, add: Add) -> Any:
    if len(constants) <= LONGEST_CHAIN:
        return _chain(constants, x, multiply, add)
    square = multiply(x, x)
    even, odd = (_chain(constants[last::-2][::-1], square, multiply, add) for last in (-1, -2))
    return add(multiply(odd, x), even)


def _chain(constants: list[Any], x: Any, multiply: Multiply, add: Add) -> Any:
    total, *rest = constants
    for constant in rest:
        total = add(multiply(total, x), constant)
    return total
