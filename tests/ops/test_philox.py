"""Philox4x32-10 against the known answers of Random123, and how rows of random numbers are laid out."""

from __future__ import annotations

import numpy as np
import pytest

from rnnops.kernels.scalar_functions import philox4x32, uniform_rows

KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    first, second = words(key)
    assert philox4x32(np.array(words(counter)), (first, second)).tolist() == words(answer)


def test_counters_are_independent_of_each_other() -> None:
    counters = np.random.default_rng(0).integers(0, 2**32, (4, 3, 5))
    together = philox4x32(counters, (7, 8))
    assert together.shape == (4, 3, 5)
    assert together.dtype == np.uint32
    for i, j in np.ndindex(3, 5):
        np.testing.assert_array_equal(philox4x32(counters[:, i, j], (7, 8)), together[:, i, j])


def test_layout_of_rows() -> None:
    seed, ordinal, t = (9 << 32) + 5, 3, 2
    uniform = uniform_rows(seed, ordinal, t, rows=2, row_size=6)
    for n, element in np.ndindex(2, 6):
        word = philox4x32(np.array([t, n, element // 4, 9]), (5, ordinal))[element % 4]
        assert uniform[n, element] == int(word) / 2**32


@pytest.mark.parametrize(("rows", "size"), [(0, 7), (7, 0), (0, 0), (1, 1), (2, 4)])
def test_sizes(rows: int, size: int) -> None:
    uniform = uniform_rows(1, 0, 0, rows, size)
    assert uniform.shape == (rows, size)
    assert ((uniform >= 0) & (uniform < 1)).all()
    assert uniform.dtype == np.float64
