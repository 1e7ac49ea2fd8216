"""Scalar functions of kernels on a CUDA device: libdevice's, by way of `math`, and short texts around them.

Semantics are those of `kernels/cpu/pointwise.py`. Errors in units in the last place are NVIDIA's (CUDA
C++ Programming Guide, mathematical functions): at most 2 for float32 and float64, but 4 for `pow` of float32; sigmoid
adds two roundings to those of exp.

Float constants are of float32 and exact there: next to a float32 they keep float32, next to a float64 they become
float64. A literal such as 1.0 would make float64 of all. Integers are computed modulo 2^64 and cut to the operands'
dtype, as numba promises nothing for signed overflow.

Limits: floats are float32 or float64. Results of exp and sigmoid below the smallest normal number are right here, where
processors may give 0. The sign of a zero that maximum and minimum give is open, as is which NaN. `add_any_order` keeps
the order in which it is called; lanes are what makes orders here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import compiled_as, types
from rnnops.kernels.cuda.overloads import of_floats, of_integers, of_numbers, with_integers

ZERO, ONE, MINUS_ONE = np.float32(0), np.float32(1), np.float32(-1)
NO_BITS, LAST_BIT = np.uint64(0), np.uint64(1)


@of_floats
def exp(x: Any) -> Any:
    """`e ** x`."""
    return math.exp(x)


@of_floats
def expm1(x: Any) -> Any:
    """`e ** x - 1`, precise near 0."""
    return math.expm1(x)


@of_floats
def log(x: Any) -> Any:
    """Natural logarithm."""
    return math.log(x)


@of_floats
def log1p(x: Any) -> Any:
    """`log(1 + x)`, precise near 0."""
    return math.log1p(x)


@of_floats
def erf(x: Any) -> Any:
    """The error function."""
    return math.erf(x)


@of_floats
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return math.tanh(x)


@of_floats
def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
    return math.sqrt(x)


@of_floats
def floor(x: Any) -> Any:
    """The largest integer not above x, as a float; on devices `math.floor` gives floats."""
    return math.floor(x)


@of_floats
def atan(x: Any) -> Any:
    """Arc tangent in radians."""
    return math.atan(x)


def _rint(units: Any) -> Callable[[Any], Any]:
    """Numbers above `units`, of the operand's dtype, have no fraction: adding it rounds, the even one of two."""

    def rounded(x: Any) -> Any:
        size = abs(x)
        return math.copysign((size + units) - units if size < units else size, x)

    return rounded


_rint_single, _rint_double = _rint(np.float32(2**23)), _rint(np.float64(2**52))


@compiled_as(lambda x: {types.float32: _rint_single, types.float64: _rint_double}.get(x))
def rint(x: Any) -> Any:
    """The nearest integer as a float, the even one of two; a zero has the sign of x."""
    return (_rint_single if x.dtype == np.float32 else _rint_double)(x)


@of_floats
def fmod(a: Any, b: Any) -> Any:
    """The remainder of a division truncated towards zero, with the sign of a."""
    return math.fmod(a, b)


@of_floats
def sigmoid(x: Any) -> Any:
    """`1 / (1 + exp(-x))`; the exponential of -|x| never overflows, and below 0 it keeps every digit of the result."""
    power = math.exp(-abs(x))
    return (ONE if x >= ZERO else power) / (ONE + power)


@of_numbers
def maximum(a: Any, b: Any) -> Any:
    """The larger operand, NaN if one is."""
    return a if a != a or a > b else b


@of_numbers
def minimum(a: Any, b: Any) -> Any:
    """The smaller operand, NaN if one is."""
    return a if a != a or a < b else b


larger, smaller = maximum, minimum  # a fold's step is the same here


def _sign_of_integer(kind: Any) -> Callable[..., Any]:
    return lambda x: kind(1 if x > 0 else -1 if x < 0 else 0)


@with_integers(_sign_of_integer)
def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN of NaN, 0 of both zeros."""
    return x if x != x else ONE if x > ZERO else MINUS_ONE if x < ZERO else ZERO


@of_integers
def _size(x: Any) -> Any:
    """|x| as uint64, of the least integer too."""
    return NO_BITS - np.uint64(x) if x < 0 else np.uint64(x)


def _integer_quotient(kind: Any) -> Callable[..., Any]:
    def divide(a: Any, b: Any) -> Any:
        if b == 0:
            return kind(0)
        quotient = _size(a) // _size(b)
        return kind(quotient if (a < 0) == (b < 0) else NO_BITS - quotient)

    return divide


@with_integers(_integer_quotient)
def divide_towards_zero(a: Any, b: Any) -> Any:
    """`a / b` without its fraction; of integers 0 where b is 0, and what wraps where the quotient does not fit."""
    return math.trunc(a / b)


def _integer_power(kind: Any) -> Callable[..., Any]:
    def power(x: Any, y: Any) -> Any:
        result, square, rest = LAST_BIT, np.uint64(x), np.uint64(y) if y > 0 else NO_BITS
        while rest != NO_BITS:
            if rest & LAST_BIT != NO_BITS:
                result *= square
            square *= square
            rest >>= LAST_BIT
        return kind(result)

    return power


@with_integers(_integer_power)
def pow(x: Any, y: Any) -> Any:  # noqa: A001
    """`x ** y`, with the edge cases of C; of integers wrapped, and 1 where y is below 0."""
    return math.pow(x, y)


def _integer_sum(kind: Any) -> Callable[..., Any]:
    return lambda accumulator, x: kind(np.uint64(accumulator) + np.uint64(x))


@with_integers(_integer_sum)
def add_any_order(accumulator: Any, x: Any) -> Any:
    """`accumulator + x`."""
    return accumulator + x


def _integer_sum_of_product(kind: Any) -> Callable[..., Any]:
    return lambda accumulator, x, y: kind(np.uint64(accumulator) + np.uint64(x) * np.uint64(y))


@with_integers(_integer_sum_of_product)
def add_product(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add."""
    return accumulator + x * y


add_product_any_order = add_product
