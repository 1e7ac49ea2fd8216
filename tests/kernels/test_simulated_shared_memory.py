"""Threads of the simulator that ask for a block's shared array at the same time get one array."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("rnnops.kernels.cuda.facade")  # which puts ours in numba's place
simulator = pytest.importorskip("numba.cuda.simulator.kernelapi")
THREADS, ROUNDS = 4, 300


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_one_array_for_all_threads() -> None:
    together, memories = threading.Barrier(THREADS), [simulator.FakeCUDAShared(64) for _ in range(ROUNDS)]

    def ask(_: int) -> list[tuple[int, int]]:
        arrays = []
        for memory in memories:
            together.wait()
            arrays.append((memory.array((2, 3), np.float32), memory.array(0, np.dtype("float64"))))
        return [
            (fixed.__array_interface__["data"][0], dynamic.__array_interface__["data"][0]) for fixed, dynamic in arrays
        ]

    with ThreadPoolExecutor(THREADS) as pool:
        first, *others = pool.map(ask, range(THREADS))
    assert all(other == first for other in others)


def test_lines_have_arrays_of_their_own() -> None:
    memory = simulator.FakeCUDAShared(0)
    one = memory.array(3, np.float32)
    other = memory.array(3, np.float32)
    assert not np.shares_memory(one, other)
    assert one.dtype == np.float32
