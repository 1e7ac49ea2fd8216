"""Threads of the simulator that ask for a block's shared array at the same time get one array."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("rnnops.kernels.cuda.facade")  # which puts our way of sharing in numba's place
simulator = pytest.importorskip("numba.cuda.simulator.kernelapi")
THREADS = 3


class Size:
    """A size that no thread comes past before all have asked for it, which is when numba's own way goes wrong."""

    def __init__(self) -> None:
        self.together = threading.Barrier(THREADS, timeout=10)

    def __index__(self) -> int:
        self.together.wait()
        return 3


def test_one_array_for_all_threads() -> None:
    memory, size = simulator.FakeCUDAShared(64), Size()
    with ThreadPoolExecutor(THREADS) as pool:
        first, *others = pool.map(lambda _: memory.array((2, size), np.float32), range(THREADS))
    assert first.shape == (2, 3)
    assert all(other is first for other in others)


def test_dynamic_arrays_are_the_same_memory() -> None:
    memory = simulator.FakeCUDAShared(64)
    assert np.shares_memory(memory.array(0, np.dtype("float32")), memory.array(0, np.dtype("float64")))


def test_lines_have_arrays_of_their_own() -> None:
    memory = simulator.FakeCUDAShared(0)
    one = memory.array(3, np.float32)
    other = memory.array(3, np.float32)
    assert not np.shares_memory(one, other)
    assert one.dtype == np.float32
