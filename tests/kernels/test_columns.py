"""Sums down columns: the order of additions, any range of columns, strided and read-only operands, compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from gemm_cases import framed, parts

from rnnops.kernels.cpu.columns import first_out_of_range, scatter_add_rows, sum_rows_into
from rnnops.kernels.cpu.fastmath import OPTIONS

FLOATS = ("float32", "float64")
COLUMNS = (1, 2, 7, 8, 15, 16, 17, 40, 129)


def njit(function: Callable[..., Any]) -> Any:
    def caller(*operands: Any) -> Any:
        return function(*operands)

    return numba.njit(**OPTIONS)(caller)


@pytest.fixture(params=[False, True], ids=["plain", "compiled"], scope="module")
def functions(request: pytest.FixtureRequest) -> list[Callable[..., Any]]:
    functions = [sum_rows_into, scatter_add_rows, first_out_of_range]
    return list(map(njit, functions)) if request.param else functions


def rows_of(count: int, columns: int, dtype: str) -> Any:
    """Numbers whose sums depend on the order."""
    random = np.random.default_rng([count, columns])
    x = random.standard_normal((count, columns)) * 10.0 ** random.uniform(-4, 4, (count, columns))
    return x.astype(dtype)


def chain(start: Any, x: Any) -> Any:
    """start + x[0] + x[1] + ..., in that order."""
    total = start.copy()
    for row in x:
        total = total + row
    return total


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_are_chains(functions: list[Callable[..., Any]], dtype: str) -> None:
    sum_rows, *_ = functions
    for count in (0, 1, 2, 7, 8, 9, 31):
        for columns in COLUMNS:
            x, start = rows_of(count, columns, dtype), rows_of(1, columns, dtype)[0]
            out = np.full_like(start, np.nan)
            sum_rows(x, out, False, 0, columns)
            assert (out == chain(np.zeros_like(start), x)).all()
            sum_rows(x, out := start.copy(), True, 0, columns)
            assert (out == chain(start, x)).all()


def test_the_order_matters() -> None:
    x = rows_of(31, 40, "float32")
    assert (chain(x[0] * 0, x) != chain(x[0] * 0, x[::-1])).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_any_ranges_of_columns(functions: list[Callable[..., Any]], dtype: str) -> None:
    sum_rows, scatter, _ = functions
    random = np.random.default_rng(0)
    x, start = rows_of(21, 83, dtype), rows_of(1, 83, dtype)[0]
    indices = random.integers(-5, 5, 21)
    for cuts in range(6):
        out, table = start.copy(), np.tile(start, (5, 1))
        for begin, end in parts(83, cuts, random):
            sum_rows(x, out, True, begin, end)
            scatter(x, indices, table, begin, end)
        assert (out == chain(start, x)).all()
        for target in range(5):
            assert (table[target] == chain(start, x[indices % 5 == target])).all()


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_scattered_rows(functions: list[Callable[..., Any]], index: str) -> None:
    _, scatter, _ = functions
    for columns in COLUMNS:
        x, out = rows_of(50, columns, "float32"), rows_of(9, columns, "float32")
        indices = np.random.default_rng(columns).integers(-9, 9, 50).astype(index)
        wanted = out.copy()
        np.add.at(wanted, indices, x)
        scatter(x, indices, out, 0, columns)
        assert (out == wanted).all()
        scatter(x[:0], indices[:0], out, 0, columns)
        assert (out == wanted).all()


def test_views_and_what_lies_around_them(functions: list[Callable[..., Any]]) -> None:
    sum_rows, scatter, _ = functions
    x, out, indices = rows_of(19, 35, "float32"), rows_of(6, 35, "float32"), np.arange(19) % 6
    (view, _), (target, frame) = framed(x, np.nan), framed(out, 3.0)
    view.flags.writeable = False
    before = frame.copy()
    for rows in (view, np.vstack([x, x])[:19], x[::-1][::-1]):
        scatter(rows, np.repeat(indices, 2)[::2], target, 2, 33)
        np.add.at(out[:, 2:33], indices, x[:, 2:33])
        assert (target == out).all()
        sum_rows(rows, came := np.ones(35, np.float32), False, 1, 30)
        assert (came == [1, *chain(x[0] * 0, x)[1:30], *[1] * 5]).all()
    frame[1:-1, 2:-3] = before[1:-1, 2:-3] = 0
    assert (frame == before).all()


def test_rows_that_are_not_contiguous_are_an_error() -> None:
    x, out = np.zeros((8, 9)), np.zeros(4)
    with pytest.raises(ValueError, match="not contiguous"):
        sum_rows_into(x[:, ::2], out, False, 0, 4)
    with pytest.raises(numba.TypingError):
        njit(sum_rows_into)(np.asfortranarray(x), out, False, 0, 4)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_indices_out_of_range(functions: list[Callable[..., Any]], index: str) -> None:
    *_, first = functions
    for count in (0, 1, 5, 16, 67):
        indices = np.random.default_rng(count).integers(-7, 7, count).astype(index)
        assert first(indices, 7) == -1
        for place in range(count):
            for wrong in (7, -8, 2**31 - 1, -(2**31)):
                bad = indices.copy()
                bad[place], bad[place + 1 :: 3] = wrong, 9
                assert first(bad, 7) == place
    assert first(np.array([0], index), 0) == 0
