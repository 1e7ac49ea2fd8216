"""sqrt, floor, rint, fmod, sign, minimum, maximum and division towards zero: few instructions, exact or rounded once.

All but sqrt, floor, rint and fmod take integers too. As in NumPy a NaN operand gives NaN, and an integer divided by 0
gives 0. Operands of one call are of one dtype: a float64 literal beside a float32 is an error, never a silent widening.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.traced import divide_integers, dtype_of, is_traced, select


def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
    return np.sqrt(x)


def floor(x: Any) -> Any:
    """The largest integer not above x, as a float."""
    return np.floor(x)


def rint(x: Any) -> Any:
    """The nearest integer as a float, the even one of two."""
    return np.rint(x)


def fmod(a: Any, b: Any) -> Any:
    """What is left of a after division by b towards zero, with the sign of a; of the C library, and not vectorised."""
    return np.fmod(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller operand, NaN if one is."""
    return select(a != a, a, select(a < b, a, b))


def maximum(a: Any, b: Any) -> Any:
    """The larger operand, NaN if one is."""
    return select(a != a, a, select(a > b, a, b))


def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return np.sign(x)


def divide_towards_zero(a: Any, b: Any) -> Any:
    """`a / b` without its fraction; not vectorised for integers, for which processors have no such instruction."""
    if dtype_of(a).kind == "f":
        return np.trunc(a / b)
    if is_traced(a):
        return divide_integers(a, b)
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient < 0) & (quotient * b != a)).astype(quotient.dtype)
