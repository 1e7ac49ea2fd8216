"""Derive the numbers in `kernels/cpu/coefficients.py`; prints that file.

    python tools/derive_polynomials.py > kernels/cpu/coefficients.py

Each polynomial P minimises the largest weighted error |weight(x) (P(x) - f(x))| over an interval, by the exchange of
Remez (1934) on a grid that is dense at the ends; the weight turns the error of P into the relative error of the
function that is built from it. Coefficients are then rounded to the dtype, which the comment beside each table does not
count. Needs mpmath, which the library does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
from mpmath import mp, mpf

Real = Any  # mpmath has no types
KINDS: tuple[tuple[str, type[np.floating[Any]]], ...] = (("SINGLE", np.float32), ("DOUBLE", np.float64))
INDENT = " " * 4
GRID = 1500
ROUNDS = 20
SMALLEST_WEIGHT = mpf(2) ** -100
mp.prec = 150

HEADER = '''"""Numbers of the pointwise functions: minimax polynomials, splits of ln 2 and 2 / pi. Do not edit.

Printed by `tools/derive_polynomials.py`, which says how they are found. Polynomials are tables for float32 and float64,
the coefficient of the highest power first. The comment on a table is the relative error of the function from its
polynomial, without rounding.
"""
'''


@dataclass(frozen=True)
class Approximation:
    """What a polynomial stands for; interval and degree in float32 and float64."""

    name: str
    meaning: str
    target: Callable[[Real], Real]
    weight: Callable[[Real], Real]
    low: Real
    highs: tuple[Real, Real]
    degrees: tuple[int, int]


def power_series(coefficient: Callable[[int], Real], x: Real, terms: int = 80) -> Real:
    """Sum of coefficient(k) x^k, for functions that cancel in their closed form."""
    return mp.fsum(coefficient(k) * x**k for k in range(terms))


def log_target(f: Real) -> Real:
    return power_series(lambda k: mpf(-1) ** k / (k + 3), f, 160)


HALF_LN2 = mp.log(2) / 2
EIGHTH_TURN = (mp.pi / 4) ** 2
LARGEST_S = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
APPROXIMATIONS = (
    Approximation(
        "EXP",
        "exp(r) = 1 + r + r^2 P(r), |r| <= ln(2) / 2; relative to exp(r) - 1",
        lambda r: power_series(lambda k: 1 / mp.factorial(k + 2), r, 40),
        lambda r: r * r / mp.expm1(r) if r else 0,
        -HALF_LN2,
        (HALF_LN2, HALF_LN2),
        (4, 9),
    ),
    Approximation(
        "LOG",
        "log(1 + f) = f - f^2 / 2 + f^3 P(f), sqrt(1/2) <= 1 + f <= sqrt(2)",
        log_target,
        lambda f: f**3 / mp.log1p(f) if f else 0,
        mp.sqrt(0.5) - 1,
        (mp.sqrt(2) - 1, mp.sqrt(2) - 1),
        (7, 18),
    ),
    Approximation(
        "ATANH",
        "3 atanh(s) / s = 3 + z + z^2 P(z), z = s^2, s = (m - 1) / (m + 1), sqrt(1/2) <= m <= sqrt(2)",
        lambda z: power_series(lambda k: mpf(3) / (2 * k + 5), z),
        lambda z: z * z / 3,
        mpf(0),
        (LARGEST_S, LARGEST_S),
        (3, 6),
    ),
    Approximation(
        "SIN",
        "sin(r) = r + r^3 P(r^2), |r| <= pi / 4",
        lambda z: power_series(lambda k: mpf(-1) ** (k + 1) / mp.factorial(2 * k + 3), z, 30),
        lambda z: mp.sqrt(z) ** 3 / mp.sin(mp.sqrt(z)) if z else 0,
        mpf(0),
        (EIGHTH_TURN, EIGHTH_TURN),
        (2, 5),
    ),
    Approximation(
        "COS",
        "cos(r) = 1 - r^2 / 2 + r^4 P(r^2), |r| <= pi / 4",
        lambda z: power_series(lambda k: mpf(-1) ** k / mp.factorial(2 * k + 4), z, 30),
        lambda z: z * z / mp.cos(mp.sqrt(z)),
        mpf(0),
        (EIGHTH_TURN, EIGHTH_TURN),
        (2, 5),
    ),
    Approximation(
        "ERF",
        "erf(x) = x + x P(x^2), |x| <= 1",
        lambda z: (mp.erf(mp.sqrt(z)) / mp.sqrt(z) if z else 2 / mp.sqrt(mp.pi)) - 1,
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)) if z else mp.sqrt(mp.pi) / 2,
        mpf(0),
        (mpf(1), mpf(1)),
        (6, 11),
    ),
    Approximation(
        "ERF_TAIL",
        "erf(x) = 1 - exp(-P(x - 1)), 1 <= x <= 4 (6 in float64)",
        lambda t: -mp.log(mp.erfc(1 + t)),
        lambda t: mp.erfc(1 + t) / mp.erf(1 + t),
        mpf(0),
        (mpf(3), mpf(5)),
        (6, 17),
    ),
)


def horner(coefficients: list[Real], x: Real) -> Real:
    """Value of a polynomial, lowest power first."""
    total = mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def interpolate(points: list[Real], values: list[Real], weights: list[Real]) -> list[Real]:
    """The polynomial whose weighted error has one size and alternating sign at the points."""
    n = len(points)
    system = mp.matrix(n, n)
    for row, (x, weight) in enumerate(zip(points, weights, strict=True)):
        for power in range(n - 1):
            system[row, power] = x**power
        system[row, n - 1] = mpf(-1) ** row / weight
    return list(mp.lu_solve(system, mp.matrix(values)))[:-1]


def extrema(errors: list[Real], count: int) -> list[int]:
    """Where the error is largest between changes of sign; of more than `count` such places, the larger end is kept."""
    found: list[int] = []
    for i, error in enumerate(errors):
        if found and (error > 0) == (errors[found[-1]] > 0):
            if abs(error) > abs(errors[found[-1]]):
                found[-1] = i
        else:
            found.append(i)
    while len(found) > count:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    return found


def remez(approximation: Approximation, high: Real, degree: int) -> tuple[list[Real], Real]:
    """Coefficients, lowest power first, and the largest weighted error."""
    middle, half = (high + approximation.low) / 2, (high - approximation.low) / 2
    grid = [middle - half * mp.cos(mp.pi * i / (GRID - 1)) for i in range(GRID)]
    values = [approximation.target(x) for x in grid]
    weights = [max(abs(approximation.weight(x)), SMALLEST_WEIGHT) for x in grid]
    chosen = [round((GRID - 1) * i / (degree + 1)) for i in range(degree + 2)]
    for _ in range(ROUNDS):
        coefficients = interpolate(*([column[i] for i in chosen] for column in (grid, values, weights)))
        errors = [w * (horner(coefficients, x) - y) for x, y, w in zip(grid, values, weights, strict=True)]
        previous, chosen = chosen, extrema(errors, degree + 2)
        if chosen == previous:
            break
    assert len(chosen) == degree + 2, approximation.name
    return coefficients, max(map(abs, errors))


def rounded(value: Real, bits: int) -> Real:
    """The nearest number with a mantissa of some bits."""
    shift = mpf(2) ** (bits - 1 - int(mp.floor(mp.log(abs(value), 2))))
    return mp.nint(value * shift) / shift


def literal(value: Real, dtype: type[np.floating[Any]]) -> str:
    """The shortest decimal that reads back as the value rounded to the dtype."""
    return str(dtype(float(rounded(value, 24 if dtype is np.float32 else 53))))


def table(name: str, values: list[str], remark: str = "") -> Iterator[str]:
    yield f"{name} = ({remark}"
    yield from wrap(
        ", ".join([*values, ""]).rstrip(), 116, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False
    )
    yield ")  # fmt: skip"


def polynomial_lines(approximation: Approximation) -> Iterator[str]:
    yield f"# {approximation.meaning}"
    for (kind, dtype), high, degree in zip(KINDS, approximation.highs, approximation.degrees, strict=True):
        coefficients, error = remez(approximation, high, degree)
        values = [literal(c, dtype) for c in reversed(coefficients)]
        remark = f"  # error 2^{float(mp.log(error, 2)):.1f}"
        yield from table(f"{approximation.name}_{kind}", values, remark)


def split_lines(name: str, value: Real, bits: tuple[int, int]) -> Iterator[str]:
    """A number as a sum of two, the first with a mantissa short enough for its products to be exact."""
    for (kind, dtype), length in zip(KINDS, bits, strict=True):
        high = rounded(value, length)
        yield f"{name}_HIGH_{kind}, {name}_LOW_{kind} = {literal(high, dtype)}, {literal(value - high, dtype)}"


def range_lines() -> Iterator[str]:
    """Between which numbers the result of exp is finite and normal, both ends in."""
    for kind, dtype in KINDS:
        ends = []
        for extreme, inwards in ((np.finfo(dtype).tiny, dtype(np.inf)), (np.finfo(dtype).max, dtype(-np.inf))):
            exact = mp.log(mpf(float(extreme)))
            end = dtype(float(exact))
            is_outside = (mpf(float(end)) < exact) if inwards > 0 else (mpf(float(end)) > exact)
            ends.append(str(np.nextafter(end, inwards) if is_outside else end))
        yield f"EXP_LOWEST_{kind}, EXP_HIGHEST_{kind} = {', '.join(ends)}"


def segment_lines() -> Iterator[str]:
    """2 / pi for x < 2^50, 2^77, ...: without the bits whose products with x are multiples of 4, in three parts.

    x has 24 bits and the parts 29, 29 and 53, so that the first two products are exact in float64; they are below 2^53.
    """
    with mp.workprec(400):
        segments = [segment_parts(segment) for segment in range(4)]
    for index, part in enumerate(zip(*segments, strict=True)):
        yield from table(f"TWO_OVER_PI_PART_{index}", list(part))


def segment_parts(segment: int) -> list[str]:
    lowest = mpf(2) ** (2 - 27 * segment)  # the weight of the last bit that is dropped
    rest = 2 / mp.pi - (mp.floor(2 / mp.pi / lowest) * lowest if segment else 0)
    parts = []
    for bits in (29, 29, 53):
        lowest = lowest / 2**bits
        value = mp.floor(rest / lowest) * lowest if segment and bits < 53 else rounded(rest, bits)
        parts.append(literal(value, np.float64))
        rest = rest - value
    return parts


def word_lines() -> Iterator[str]:
    """2 / pi as a binary fraction in 64-bit words, after one word of zeros."""
    with mp.workprec(64 * 22):
        fraction = int(mp.floor(2 / mp.pi * mpf(2) ** (64 * 20)))
    words = [(fraction >> (64 * (19 - i))) & (2**64 - 1) for i in range(20)]
    yield from table("TWO_OVER_PI_WORDS", ["0x0", *(f"0x{word:016X}" for word in words)])


def lines() -> Iterator[str]:
    yield HEADER
    yield from split_lines("LN_2", mp.log(2), (16, 42))
    yield f"LOG2_E = {literal(1 / mp.log(2), np.float64)}"
    yield from split_lines("TWO_THIRDS", mpf(2) / 3, (12, 26))
    yield f"HALF_PI = {literal(mp.pi / 2, np.float64)}"
    yield from range_lines()
    for approximation in APPROXIMATIONS:
        yield ""
        yield from polynomial_lines(approximation)
    yield "\n# 2 / pi in three parts, for x below 2^50, 2^77, 2^104 and above: without bits that give multiples of 4"
    yield from segment_lines()
    yield "\n# 2 / pi as a binary fraction, after one word of zeros"
    yield from word_lines()


if __name__ == "__main__":
    for line in lines():
        print(line)
