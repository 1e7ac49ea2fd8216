"""Random numbers in compiled code: bit for bit those of `rnnops.philox`, compiled or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numba
import numpy as np
import pytest

from rnnops.kernels.cpu.fastmath import OPTIONS
from rnnops.kernels.cpu.pointers import at, row_program
from rnnops.kernels.cpu.uniform import keep_row, uniform, uniform_row
from rnnops.philox import uniform_rows

SEEDS = (0, 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 2**40 + 7, 2**64 - 1)
ORDINALS, STEPS, ROW = (0, 1, 2**31 - 1, 2**31, 2**32 - 1), (0, 3, 2**32 - 1), 2
SIZES = (*range(10), 31, 32, 33, 64, 127, 500)


def element(seed: Any, ordinal: Any, t: Any, n: Any, e: Any) -> Any:
    return uniform(seed, ordinal, t, n, e)


def fill(seed: Any, ordinal: Any, t: Any, n: Any, out: Any) -> None:
    uniform_row(seed, ordinal, t, n, out, out.size)


def keep(seed: Any, ordinal: Any, t: Any, n: Any, ratio: Any, mask: Any) -> None:
    keep_row(seed, ordinal, t, n, ratio, mask, mask.size)


def njit(function: Callable[..., Any]) -> Any:
    return numba.njit(**OPTIONS)(function)


@pytest.fixture(params=[False, True], ids=["plain", "compiled"], scope="module")
def functions(request: pytest.FixtureRequest) -> list[Callable[..., Any]]:
    return [njit(f) if request.param else f for f in (element, fill, keep)]


def as_word(seed: int) -> Any:
    return np.uint64(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed(functions: list[Callable[..., Any]], seed: int) -> None:
    one, row, mask = functions
    for ordinal, t in product(ORDINALS, STEPS):
        wanted = uniform_rows(seed, ordinal, t, ROW + 1, 21)[ROW]
        out, kept = np.full(21, np.nan), np.zeros(21, np.bool_)
        row(as_word(seed), ordinal, t, ROW, out)
        mask(as_word(seed), ordinal, t, ROW, 0.4, kept)
        assert (out == wanted).all()
        assert (kept == (wanted >= 0.4)).all()
        assert [one(as_word(seed), ordinal, t, ROW, e) for e in (0, 5, 18, 20)] == [*wanted[[0, 5, 18, 20]]]


def test_rows_of_every_length(functions: list[Callable[..., Any]]) -> None:
    _, row, mask = functions
    for size in SIZES:
        wanted = uniform_rows(SEEDS[-2], 5, 7, ROW + 1, size)[ROW]
        out, kept = np.full(size + 2, -1.0), np.full(size + 2, 7, np.uint8)
        row(as_word(SEEDS[-2]), 5, 7, ROW, out[1:-1])
        mask(as_word(SEEDS[-2]), 5, 7, ROW, 0.75, kept[1:-1])
        assert out.tolist() == [-1, *wanted, -1]
        assert kept.tolist() == [7, *(wanted >= 0.75), 7]


def test_integers_of_every_type(functions: list[Callable[..., Any]]) -> None:
    one, row, _ = functions
    seed, wanted = 2**64 - 3, uniform_rows(2**64 - 3, 2**32 - 4, 6, ROW + 1, 9)[ROW]
    for kind in (np.int32, np.int64):
        assert one(kind(-3), kind(-4), kind(6), kind(ROW), kind(7)) == wanted[7]
    for kind in (np.uint32, np.uint64):
        assert one(as_word(seed), kind(2**32 - 4), kind(6), kind(ROW), kind(7)) == wanted[7]
    out = np.empty(9)
    row(-3, -4, 6, ROW, out)
    assert (out == wanted).all()


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_what_rows_are_stored_as(functions: list[Callable[..., Any]], dtype: str) -> None:
    _, row, mask = functions
    wanted, came = uniform_rows(9, 0, 0, 1, 70)[0], np.ones(70, dtype)
    if dtype == "bool":
        mask(9, 0, 0, 0, 0.5, came)
        assert (came.view(np.uint8) == (wanted >= 0.5)).all()
    else:
        row(9, 0, 0, 0, came)
        assert (came == wanted.astype(np.float32)).all()


def test_ratios_next_to_a_number(functions: list[Callable[..., Any]]) -> None:
    *_, mask = functions
    wanted, kept = uniform_rows(4, 0, 0, 1, 8)[0], np.empty(8, np.bool_)
    for u in wanted:
        for ratio in (u, np.nextafter(u, 1), np.nextafter(u, 0), 0.0, 1 - 2.0**-33, 1.0):
            mask(4, 0, 0, 0, ratio, kept)
            assert (kept == (wanted >= ratio)).all()


def test_rows_by_pointer() -> None:
    def masked(seed, x, mask, n, size):  # type: ignore[no-untyped-def]
        keep_row(seed, 1, 2, n, 0.5, mask, size)
        for j in range(size):
            x[j] *= mask[j]

    program = row_program(masked, cache=False)

    @numba.njit
    def driver(seed, x, mask):  # type: ignore[no-untyped-def]
        for n in range(x.shape[0]):
            program(seed, at(x, n * x.shape[1]), at(mask, n * x.shape[1]), n, x.shape[1])

    x, mask = np.ones((5, 37)), np.zeros((5, 37), np.bool_)
    driver(as_word(SEEDS[-1]), x, mask)
    assert (mask == (uniform_rows(SEEDS[-1], 1, 2, 5, 37) >= 0.5)).all()
    assert (x == mask).all()


@pytest.mark.parametrize("function", [fill, keep])
def test_rows_are_vector_loops_over_counters(function: Callable[..., Any]) -> None:
    compiled = njit(function)
    compiled(1, 2, 3, 4, *([0.5] if function is keep else []), np.empty(3))
    (code,) = compiled.inspect_llvm().values()
    assert re.search(r"mul (nuw )?(nsw )?<\d+ x i64>", code)
