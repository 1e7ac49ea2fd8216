"""Steps of reductions: vector loops with several accumulators, right sums, NaN from wherever it comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from native_loops import ELEMENT, ZERO, NativeRows, folded, number

from rnnops.compiler.lower.expressions import Expr, Load, ScalarCall
from rnnops.kernels.cpu.elementary import exp
from rnnops.kernels.cpu.pointwise import add_any_order, larger, like, smaller
from rnnops.kernels.cpu.processor import lanes, vector_width

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64", "uint8", "uint64")
LENGTHS = [*range(35), 63, 64, 65, 127, 128, 131, 500, 2049]


def total(x, start):  # type: ignore[no-untyped-def]
    result = start
    for j in range(x.size):
        result = add_any_order(result, x[j])
    return result


def total_of_powers(x, start):  # type: ignore[no-untyped-def]
    result, top = start, like(start, 1.5)
    for j in range(x.size):
        result = add_any_order(result, exp(x[j] - top))
    return result


def total_of_rounded(x, start):  # type: ignore[no-untyped-def]
    result, magic = start, like(start, 1.5 * 2.0**23)
    for j in range(x.size):
        result = add_any_order(result, (x[j] + magic) - magic)
    return result


def largest(x, start):  # type: ignore[no-untyped-def]
    result = start
    for j in range(x.size):
        result = larger(result, x[j])
    return result


def smallest(x, start):  # type: ignore[no-untyped-def]
    result = start
    for j in range(x.size):
        result = smaller(result, x[j])
    return result


STEPS = {largest: "larger", smallest: "smaller"}


@cache
def native(function: Callable[..., Any], dtype: str) -> NativeRows:
    """The same as kernel IR."""
    x: Expr = Load("x", ELEMENT, dtype=dtype)
    start = Load("first", ZERO, dtype=dtype)
    if function is total_of_powers:
        x = ScalarCall("exp", (x - number(1.5, dtype),), dtype=dtype)
    if function is total_of_rounded:
        magic = number(1.5 * 2.0**23, dtype)
        x = (x + magic) - magic
    return folded(STEPS.get(function, "add_any_order"), start, x, dtype)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, start: Any) -> Any:
        out, first = np.empty(1, x.dtype), np.array([start], x.dtype)
        native(function, x.dtype.name)(out, x, first, x.size)
        return out[0]

    return run


def row(n: int, dtype: str) -> Any:
    random = np.random.default_rng(n)
    return random.standard_normal(n).astype(dtype) if dtype in FLOATS else random.integers(0, 200, n).astype(dtype)


def zero(dtype: str) -> Any:
    return np.dtype(dtype).type(0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", [total, total_of_powers])
def test_sums(function: Callable[..., Any], dtype: str) -> None:
    for n in LENGTHS:
        x = row(n, dtype)
        terms = x if function is total else np.exp(x - x.dtype.type(1.5))
        wide = terms.astype(np.longdouble)
        for run in (compiled(function), function):
            came = run(x, zero(dtype))
            assert came.dtype == dtype if run is function else True
            assert abs(came - wide.sum()) <= (n + 4) * np.finfo(dtype).eps * np.abs(wide).sum()


@pytest.mark.parametrize("step", [total, largest, smallest])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(step: Callable[..., Any], dtype: str) -> None:
    for n in LENGTHS[1:]:
        x = row(n, dtype) - (100 if dtype.startswith("int") else 0)
        start = zero(dtype) if step is total else x[0]
        wanted = x.sum(dtype=dtype) if step is total else {largest: np.max, smallest: np.min}[step](x)
        assert compiled(step)(x, start) == wanted
        assert step is total or step(x, start) == wanted


def test_large_unsigned_integers() -> None:
    x = np.array([2**63 + 5, 3], np.uint64)
    assert compiled(largest)(x, x[1]) == x[0]
    assert compiled(smallest)(x, x[0]) == 3


def test_summands_keep_their_order() -> None:
    x = np.random.default_rng(0).uniform(-1e4, 1e4, 300).astype(np.float32)
    assert compiled(total_of_rounded)(x, zero("float32")) == np.rint(x).sum(dtype=np.float64)


def test_nan_and_infinity_are_summed() -> None:
    x = row(100, "float32")
    for place in range(100):
        for special in (np.inf, -np.inf, np.nan):
            x[place] = special
            assert repr(float(compiled(total)(x, zero("float32")))) == repr(special)
        x[place] = 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_row_gives_the_same_bits_wherever_it_lies(dtype: str) -> None:
    for n in LENGTHS:
        x, room = row(n, dtype), np.empty(n + 64, dtype)
        bits = set()
        for start in range(33):
            room[start : start + n] = x
            bits.add(compiled(total_of_powers)(room[start : start + n], zero(dtype)).tobytes())
        assert len(bits) == 1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("step", "reference"), [(largest, np.max), (smallest, np.min)])
def test_extrema(step: Callable[..., Any], reference: Callable[..., Any], dtype: str) -> None:
    for n, sign in product(LENGTHS[1:], (1, -1)):
        x = row(n, dtype)
        for worst in (x, np.where(np.arange(n) == n // 2, sign * x.dtype.type(np.inf), x)):
            assert compiled(step)(worst, worst[0]) == step(worst, worst[0]) == reference(worst)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("step", [largest, smallest])
def test_nan_anywhere_gives_nan(step: Callable[..., Any], dtype: str) -> None:
    infinity = np.dtype(dtype).type(np.inf)
    for n in (1, 2, 7, 16, 33, 100, 200):
        for place, nan, start in product(range(n), (np.nan, -np.nan), (infinity, -infinity)):
            x = row(n, dtype)
            x[place] = nan
            assert np.isnan(compiled(step)(x, start))
        assert np.isnan(compiled(step)(row(n, dtype), x.dtype.type(np.nan)))
        assert np.isnan(step(x, start))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", [total, total_of_powers, largest, smallest])
def test_vector_loops_with_several_accumulators(function: Callable[..., Any], dtype: str) -> None:
    code = native(function, dtype).optimised
    letter = {"float32": "float", "float64": "double"}[dtype]
    accumulators = [int(count) for count in re.findall(rf"phi <(\d+) x {letter}>", code)]
    widest = max(accumulators, default=0)
    lane_count = lanes(vector_width(), dtype)
    assert widest >= min(lane_count, lanes(256, dtype))  # some processors prefer half their width
    assert accumulators.count(widest) >= 2
    assert "memcheck" not in code
