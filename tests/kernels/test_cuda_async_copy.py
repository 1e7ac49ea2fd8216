"""Copies into shared memory that go on: when they arrive, where they may begin; and devices that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda
from numba import cuda
from whole_grid import RaceError, whole_grid
from without_simulator import run_compiler

from rnnops.kernels.cuda import facade, step_product
from rnnops.kernels.cuda.lane_functions import copies_done, copy_soon, fetch_early, starts_a_copy

pytestmark = on_cuda
simulated = pytest.mark.skipif(not facade.SIMULATED, reason="a look at the simulator's twin")


@cuda.jit
def through_shared_memory(source: Any, target: Any, first: int) -> None:
    staged = cuda.shared.array(8, np.float32)
    lane = cuda.threadIdx.x
    fetch_early(source, first)
    copy_soon(staged, 4 * lane, source, first + 4 * lane)
    copies_done()
    cuda.syncthreads()
    for i in range(4):
        target[4 * lane + i] = staged[7 - (4 * lane + i)]


def test_what_lanes_copy_others_read_behind_a_barrier() -> None:
    target = np.zeros(8, np.float32)
    with whole_grid(check=True, seed=1):
        facade.launch(through_shared_memory, 1, 2, 0, 0, np.arange(12, dtype=np.float32), target, 4)
    np.testing.assert_array_equal(target, np.arange(11, 3, -1))


@cuda.jit
def too_early(source: Any, target: Any) -> None:
    staged = cuda.shared.array(4, np.float32)
    copy_soon(staged, 0, source, 0)
    target[0] = staged[0]
    source[0] = 7.0
    copies_done()
    target[1] = staged[0]


@simulated
def test_copies_read_and_write_as_late_as_they_may() -> None:
    target = np.zeros(2, np.float32)
    with whole_grid():
        facade.launch(too_early, 1, 1, 0, 0, np.ones(4, np.float32), target)
    assert np.isnan(target[0])
    assert target[1] == 7.0


@cuda.jit
def without_a_barrier(source: Any, target: Any) -> None:
    staged = cuda.shared.array(8, np.float32)
    copy_soon(staged, 4 * cuda.threadIdx.x, source, 4 * cuda.threadIdx.x)
    copies_done()
    target[cuda.threadIdx.x] = staged[4 - 4 * cuda.threadIdx.x]


@simulated
def test_what_others_copied_needs_a_barrier() -> None:
    with whole_grid(check=True), pytest.raises(RaceError, match="staged"):
        facade.launch(without_a_barrier, 1, 2, 0, 0, np.ones(8, np.float32), np.zeros(2, np.float32))


@simulated
def test_where_copies_may_begin() -> None:
    singles, doubles = np.zeros(8, np.float32), np.zeros(8)
    assert [starts_a_copy(singles, i) for i in range(5)] == [True, False, False, False, True]
    assert [starts_a_copy(doubles, i) for i in range(3)] == [True, False, True]


COMPILE = """
from numba import types
from rnnops.kernels.cuda import lane_functions
array = types.Array(types.float32, 1, "C")

def kernel(x, y):
    staged = facade.cuda.shared.array(4, types.float32)
    lane_functions.copy_soon(staged, 0, x, 0)
    lane_functions.copies_done()
    y[0] = staged[3]

for capability in ((7, 5), (8, 0)):  # CUDA 13 compiles for 7.5 and more
    text = facade.ptx(kernel, (array, array), capability)
    print("cp.async" in text, "ld.global.v4" in text or "ld.v4" in text)
"""


def test_devices_without_such_copies_load_and_store() -> None:
    assert run_compiler(COMPILE) == ["False True", "True False"]


def test_constants_of_a_module_are_of_its_dtype() -> None:
    assert "TOGETHER = 4" in step_product.source("float32", "float16")
    assert "TOGETHER = 2" in step_product.source("float64", "float64")
