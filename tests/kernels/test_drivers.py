"""What generated drivers find their arrays by, and how they see parts of them, beside plain Python."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numba
import numpy as np
import pytest

from rnnops.kernels.cpu.drivers import HEADER, as_numbers, memory
from rnnops.kernels.cpu.parts import matrix, vector

DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")


def test_numpy_keeps_the_address_behind_the_header() -> None:
    array = np.arange(10.0)
    for known in (array, array[3:], array.reshape(2, 5), array.astype("f"), np.zeros(())):
        found = ctypes.c_void_p.from_address(id(known) + HEADER).value
        assert found == known.ctypes.data


@numba.njit
def second(arrays: Any, out: Any, dtype: Any) -> None:
    x = memory(arrays, 1, 3, dtype)
    out[:] = x


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_by_their_place(dtype: str) -> None:
    x = np.arange(24).astype(dtype).reshape(4, 6)[1:3]
    x.flags.writeable = False
    arrays = [np.zeros(2), x, np.zeros(3, "f")]
    out = np.empty(x.size, dtype)
    second(as_numbers(arrays), out, np.dtype(dtype).type)
    assert np.array_equal(out, x.reshape(-1))


def test_bools_are_read_as_bytes() -> None:
    x, out = np.array([True, False, True]), np.empty(3, "uint8")
    second(as_numbers([x, x, x]), out, np.uint8)
    assert out.tolist() == [1, 0, 1]


def sums(x: Any) -> tuple[float, float, float]:
    part, some = matrix(x, 3, 4, 5, 1, 2), vector(x, 7, 6)
    total = 0.0
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            total += (10 * i + j + 1) * part[i, j]
    return total, some.sum(), vector(x, 0, 0).sum() + part[3].sum()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_parts_of_memory(dtype: str) -> None:
    x = np.random.default_rng(0).integers(-50, 50, 40).astype(dtype)
    assert numba.njit(sums)(x) == sums(x)


def test_parts_may_be_written() -> None:
    def write(x: Any) -> None:
        matrix(x, 2, 2, 4, 1, 2)[1, 1] = 7
        vector(x, 1, 3)[2] = 5

    x, y = np.zeros(12), np.zeros(12)
    numba.njit(write)(x)
    write(y)
    assert np.array_equal(x, y)
    assert x.sum() == 12


def test_parts_borrow_their_memory() -> None:
    """They read and write it, in compiled code and in plain Python, and nothing is counted or freed."""

    def add_rows(array: Any, total: Any) -> None:
        for row in range(3):
            total += matrix(array, 4 * row, 1, 4, 1, 2)[0]
            matrix(array, 4 * row, 1, 4, 0, 1)[0, 0] = row

    for run in (add_rows, numba.njit(add_rows)):
        array, total = np.arange(12.0), np.zeros(2)
        references = sys.getrefcount(array)
        run(array, total)
        assert total.tolist() == [15, 18]
        assert array.reshape(3, 4)[:, 0].tolist() == [0, 1, 2]
        assert sys.getrefcount(array) == references
