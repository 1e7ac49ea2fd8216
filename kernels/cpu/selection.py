"""sqrt, floor, rint, fmod, sign, minimum, maximum and division towards zero: few instructions, exact or rounded once.

All but sqrt, floor, rint and fmod take integers too. As in NumPy a NaN operand gives NaN, and an integer divided by 0
gives 0. Operands of one call are of one dtype: a float64 literal beside a float32 is an error, never a silent widening.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.bits import like, select
from rnnops.kernels.cpu.fastmath import compiled_as, inlined, types


@inlined
def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
    return np.sqrt(x)


@inlined
def floor(x: Any) -> Any:
    """The largest integer not above x, as a float."""
    return np.floor(x)


@inlined
def rint(x: Any) -> Any:
    """The nearest integer as a float, the even one of two."""
    return np.rint(x)


@inlined
def fmod(a: Any, b: Any) -> Any:
    """What is left of a after division by b towards zero, with the sign of a; of the C library, and not vectorised."""
    return np.fmod(a, b)


@inlined
def minimum(a: Any, b: Any) -> Any:
    """The smaller operand, NaN if one is."""
    return select(a != a, a, select(a < b, a, b))


@inlined
def maximum(a: Any, b: Any) -> Any:
    """The larger operand, NaN if one is."""
    return select(a != a, a, select(a > b, a, b))


def _sign(x: Any) -> Any:
    return np.sign(x)


def _sign_of_unsigned(x: Any) -> Any:
    return minimum(x, like(x, 1.0))


@compiled_as(lambda x: _sign_of_unsigned if isinstance(x, types.Integer) and not x.signed else _sign)
def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return np.sign(x)


def _divide_floats(a: Any, b: Any) -> Any:
    return np.trunc(a / b)


def _divide_signed(a: Any, b: Any) -> Any:
    if b == -1:
        return -a  # the least integer has no negative; processors trap on that division
    quotient = a // b
    return quotient + ((quotient < 0) & (quotient * b != a))


def _divide_unsigned(a: Any, b: Any) -> Any:
    return a // b


def _implementation(a: Any, b: Any) -> Any:
    if isinstance(a, types.Integer) and isinstance(b, types.Integer):
        return _divide_signed if a.signed or b.signed else _divide_unsigned
    return _divide_floats if isinstance(a, types.Float) and a == b else None


@compiled_as(_implementation)
def divide_towards_zero(a: Any, b: Any) -> Any:
    """`a / b` without its fraction; not vectorised for integers, for which processors have no such instruction."""
    if np.result_type(a, b).kind == "f":
        return _divide_floats(a, b)
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient < 0) & (quotient * b != a)).astype(quotient.dtype)
