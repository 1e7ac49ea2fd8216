"""What pointwise functions are tested against: references of higher precision, operands, their errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special
from native_loops import elementwise

from rnnops.kernels.scalar_functions import TABLE, implementations

Array = npt.NDArray[Any]
WIDER = {np.dtype(np.float32): np.float64, np.dtype(np.float64): np.longdouble}
DTYPES = ("float32", "float64")
FUNCTIONS = implementations("cpu")
ERROR_BOUNDS = {one.name: one.ulps for one in TABLE if one.ulps is not None}  # in units in the last place


def erf_series(x: Array) -> Array:
    """erf(x) = 2 / sqrt(pi) exp(-x^2) (x + 2/3 x^3 + 4/15 x^5 + ...): all terms have one sign."""
    size = np.minimum(np.abs(x), 6.5)
    term = total = size
    for k in range(1, 180):
        term = term * (2 * size * size) / (2 * k + 1)
        total = total + term
    root_of_pi = np.sqrt(4 * np.arctan(x.dtype.type(1)))
    return np.copysign(total * np.exp(-size * size) * 2 / root_of_pi, x)


def erf(x: Array) -> Array:
    return scipy.special.erf(x) if x.dtype == np.float64 else erf_series(x)


def sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, power) / (1 + power)


UNARY: dict[str, Callable[[Array], Array]] = {
    "atan": np.arctan,
    "cos": np.cos,
    "erf": erf,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sigmoid": sigmoid,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
ODD = ("atan", "erf", "expm1", "log1p", "sin", "sqrt", "tanh")  # those that give -0 for -0
BOUNDED = ("cos", "erf", "sigmoid", "sin", "tanh")  # between -1 and 1


BINARY = ("divide_towards_zero", "fmod", "maximum", "minimum", "pow")


def compiled(name: str, dtype: str) -> Any:
    """A function over arrays: result, then one or two operands."""
    return elementwise(name, dtype, 2 if name in BINARY else 1)


def run_compiled(name: str, *operands: Array) -> Array:
    result = np.empty_like(operands[0])
    compiled(name, result.dtype.name)(result, *map(np.ascontiguousarray, operands))
    return result


def run_in_python(name: str, *operands: Array) -> Array:
    return np.asarray(FUNCTIONS[name](*operands))


@dataclass(frozen=True)
class Errors:
    """How results differ from exact ones.

    Args:
        ulps: the error in units of the last place of the exact result, 0 where that is not a normal number.
        is_wrong: where the exact result is not a normal number and the result is none of what it may be.
    """

    ulps: Array
    is_wrong: Array


def errors(result: Array, exact: Array) -> Errors:
    limits = np.finfo(result.dtype)
    size = np.abs(exact)
    is_normal = (size >= limits.tiny) & (size <= limits.max)
    safe = np.where(is_normal, exact, 1)
    distance = np.abs(result - safe) / (power_of_two_below(safe) * 2.0**-limits.nmant)
    ulps = np.where(is_normal, np.where(np.isfinite(result), distance, np.inf), 0)
    is_same = (result == exact.astype(result.dtype)) | (np.isnan(result) & np.isnan(exact))
    is_flushed = (size < limits.tiny) & (np.abs(result) <= limits.tiny)
    return Errors(ulps, ~(is_normal | is_same | is_flushed))


def power_of_two_below(x: Array) -> Array:
    if x.dtype == np.float64:
        return (x.view(np.uint64) & np.uint64(0x7FF << 52)).view(np.float64)
    return np.ldexp(np.ones_like(x), np.frexp(x)[1] - 1)


def assert_within(bound: float, result: Array, exact: Array, *operands: Array) -> None:
    found = errors(result, exact)
    worst, wrong = int(np.argmax(found.ulps)), np.flatnonzero(found.is_wrong)[:3]
    assert found.ulps[worst] <= bound, (found.ulps[worst], [x[worst] for x in operands], result[worst], exact[worst])
    assert wrong.size == 0, ([x[wrong] for x in operands], result[wrong], exact[wrong])


def every_exponent(dtype: str, count: int) -> Array:
    """Numbers of either sign with every exponent: the least and largest mantissa, and `count` random ones."""
    limits = np.finfo(dtype)
    integer = np.dtype(f"uint{limits.bits}")
    starts = np.arange(2 ** (limits.bits - limits.nmant), dtype=integer) << integer.type(limits.nmant)
    random = np.random.default_rng(0).integers(0, 2**limits.nmant, (starts.size, count), dtype=integer)
    random[:, :2] = [0, 2**limits.nmant - 1]
    return np.asarray((starts[:, None] + random).ravel().view(dtype))


def ordinary(dtype: str, count: int) -> Array:
    """Numbers as they occur: evenly spread over ranges where functions change, and close to 1 and -1."""
    generator = np.random.default_rng(1)
    spread = [generator.uniform(-size, size, count) for size in (1.0, 10.0, 100.0, 750.0)]
    near = 1.0 + generator.normal(size=count) * 10.0 ** generator.uniform(-16, 0, count)
    return np.concatenate([*spread, near, -near]).astype(dtype)


def edges(dtype: str) -> Array:
    limits = np.finfo(dtype)
    positive = [0.0, limits.smallest_subnormal, limits.tiny, 0.5, 1.0, 2.0, 3.0, 2.5, 100.0, 1e30, limits.max, np.inf]
    return np.array([*positive, *(-x for x in positive), np.nan, 2.0**24 + 1, 2.0**53 + 1, 1 - 2.0**-24], dtype)


def powers(dtype: str, count: int) -> tuple[Array, Array]:
    """Operands of pow: results spread over all exponents, bases near 1 with large powers, small whole powers."""
    generator = np.random.default_rng(2)
    largest = float(np.log(np.finfo(dtype).max))
    near = 1.0 + generator.normal(size=count) * 10.0 ** generator.uniform(-15, -1, count)
    base = np.concatenate([np.exp(generator.uniform(-0.99 * largest, 0.99 * largest, count)), near]).astype(dtype)
    base[base == 1] = 2
    power = generator.uniform(-1.01 * largest, 1.01 * largest, base.size) / np.log(np.abs(base.astype(np.float64)))
    whole = generator.integers(-10, 11, count)
    x = np.concatenate([np.abs(base), generator.uniform(-20, 20, count).astype(dtype)])
    return x, np.concatenate([power.astype(dtype), whole.astype(dtype)])


def pairs(values: Array) -> tuple[Array, Array]:
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()
