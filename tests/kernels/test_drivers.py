"""What drivers find their arrays by, and how they see parts of them in plain Python."""

from __future__ import annotations

import ctypes

import numpy as np

from rnnops.kernels.cpu.native import at, matrix, vector
from rnnops.kernels.cpu.threads import HEADER, as_words, memory_address


def test_numpy_keeps_the_address_behind_the_header() -> None:
    array = np.arange(10.0)
    for known in (array, array[3:], array.reshape(2, 5), array.astype("f"), np.zeros(())):
        found = ctypes.c_void_p.from_address(id(known) + HEADER).value
        assert found == known.ctypes.data == memory_address(known)


def test_arrays_are_addresses_and_sizes() -> None:
    arrays = [np.zeros(2), np.zeros((3, 4), "f")]
    assert as_words(arrays).tolist() == [*map(id, arrays), 2, 12]


def test_parts_are_views() -> None:
    x = np.arange(24.0)
    matrix(x, 2, 2, 4, 1, 2)[1, 1] = -7
    vector(x, 1, 3)[2] = -5
    at(x, 20)[1] = -3
    assert [x[8], x[3], x[21]] == [-7, -5, -3]
    assert matrix(x, 0, 3, 8, 6, 2).tolist() == [[6, 7], [14, 15], [22, 23]]
