"""Whole grids in numba's simulator: barriers, deadlocks, shared memory, orders of threads, modules of kernels."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numba import cuda
from whole_grid import BarrierError, DeadlockError, DivergentBarrierError, whole_grid

from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.device_array import on_device

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not facade.SIMULATED, reason="a device runs whole grids by itself")]
SEEDS = [None, 0, 1, 2]


@cuda.jit
def ring(x: Any, steps: int) -> None:
    """Each thread adds what its neighbour in the grid has, step by step."""
    i, size = cuda.grid(1), cuda.gridsize(1)
    for step in range(steps):
        here, there = step % 2 * size, (step + 1) % 2 * size
        x[there + i] = x[here + i] + x[here + (i + 1) % size]
        cuda.cg.this_grid().sync()


def ring_reference(x: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        x = x + np.roll(x, -1)
    return x


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (1, 8), (4, 3), (8, 8)])
def test_a_ring_of_all_blocks(blocks: int, threads: int, seed: int | None) -> None:
    size = blocks * threads
    x = np.zeros(2 * size)
    x[:size] = np.arange(size)
    with whole_grid(check=True, seed=seed):
        facade.launch(ring, blocks, threads, 0, 0, x, 5)
    np.testing.assert_array_equal(x[size:], ring_reference(np.arange(size), 5))


def test_the_simulator_alone_is_wrong_about_the_ring() -> None:
    x = np.arange(12.0)
    facade.launch(ring, 2, 3, 0, 0, x, 5)
    assert not np.array_equal(x[6:], ring_reference(np.arange(6.0), 5))


@cuda.jit
def indices(x: Any) -> None:
    i, j, k = cuda.grid(3)
    x[i, j, k, 0] = cuda.blockIdx.x + 10 * cuda.blockIdx.y + 100 * cuda.blockIdx.z
    x[i, j, k, 1] = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 100 * cuda.threadIdx.z
    x[i, j, k, 2] = cuda.syncthreads_count(cuda.threadIdx.x == 0) + 10 * cuda.syncthreads_or(cuda.blockIdx.x)
    x[i, j, k, 3] = cuda.gridDim.x + 10 * cuda.gridDim.y + 100 * cuda.blockDim.x + 1000 * cuda.laneid


def test_indices_and_votes() -> None:
    found, wanted = np.zeros((6, 2, 4, 4), int), np.zeros((6, 2, 4, 4), int)
    with whole_grid(seed=0, check=True):
        facade.launch(indices, (3, 1, 2), (2, 2, 2), 0, 0, found)
    indices[(3, 1, 2), (2, 2, 2)](wanted)
    np.testing.assert_array_equal(found, wanted)


@cuda.jit
def note_order(order: Any, count: Any, way: int) -> None:
    for _ in range(3):
        order[cuda.atomic.add(count, 0, 1)] = cuda.blockIdx.x
        if way == 1:
            cuda.syncthreads()
        elif way == 2:
            cuda.cg.this_grid().sync()


def block_order(way: int, seed: int | None) -> list[int]:
    order = np.zeros(3 * 4 * 3, int)
    with whole_grid(seed=seed):
        facade.launch(note_order, 4, 3, 0, 0, order, np.zeros(1, int), way)
    return order.tolist()


def test_a_seed_shuffles_and_the_same_one_again_does_the_same() -> None:
    orders = [block_order(1, seed) for seed in range(6)]
    assert orders == [block_order(1, seed) for seed in range(6)]
    assert len({tuple(order) for order in orders}) == 6


def test_barriers_separate_what_they_are_for() -> None:
    ahead = False
    for seed in range(6):
        grid, block = np.array(block_order(2, seed)).reshape(3, 12), np.array(block_order(1, seed))
        assert all(np.array_equal(np.sort(part), np.repeat(range(4), 3)) for part in grid)
        ahead |= bool(np.any(np.bincount(block[:12], minlength=4) == 9))
    assert ahead  # syncthreads lets a block do all its rounds before others have done one each


@cuda.jit
def polls(flags: Any, asks: int) -> None:
    if cuda.blockIdx.x == 0:
        while cuda.atomic.add(flags, 0, 0) < asks:
            pass
    else:
        cuda.atomic.add(flags, 0, 1)


@cuda.jit
def spins(flags: Any) -> None:
    while flags[0] == 0:
        pass


@cuda.jit
def one_block_skips(x: Any) -> None:
    if cuda.blockIdx.x > 0:
        cuda.cg.this_grid().sync()


@cuda.jit
def one_thread_skips(x: Any) -> None:
    if cuda.threadIdx.x != 1:
        cuda.syncthreads()


@cuda.jit
def barriers_differ(x: Any) -> None:
    if cuda.threadIdx.x == 1:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


@cuda.jit
def kinds_differ(x: Any) -> None:
    if cuda.threadIdx.x == 1:
        cuda.syncthreads()
    else:
        cuda.cg.this_grid().sync()


@cuda.jit
def divides(x: Any) -> None:
    if cuda.grid(1) == 4:
        x[0] = 1 // int(x[0])
    cuda.cg.this_grid().sync()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kernel", "error", "text"),
    [
        (one_block_skips, DeadlockError, r"block 0, thread 0, 1, 2: has ended\n  block 1, thread 0, 1, 2: waits at a "),
        (one_thread_skips, DivergentBarrierError, r"have ended(.|\n)*waits at syncthreads \(test_whole_grid.py:\d+\)"),
        (barriers_differ, DivergentBarrierError, "kernel barriers_differ: threads wait at different barriers"),
        (kinds_differ, DivergentBarrierError, "another barrier"),
        (divides, ZeroDivisionError, "division"),
    ],
)
def test_errors_end_the_launch(kernel: Any, error: type[Exception], text: str, seed: int | None) -> None:
    with whole_grid(seed=seed), pytest.raises(error, match=text):
        facade.launch(kernel, 2, 3, 0, 0, np.zeros(1))
    with whole_grid(seed=seed):  # the next launch does not notice
        facade.launch(ring, 2, 1, 0, 0, np.zeros(4), 2)


def test_an_error_says_in_which_thread() -> None:
    with whole_grid(), pytest.raises(ZeroDivisionError) as caught:
        facade.launch(divides, 2, 3, 0, 0, np.zeros(1))
    assert getattr(caught.value, "__notes__", ["in thread 1 of block 1 of kernel divides"]) == [
        "in thread 1 of block 1 of kernel divides"
    ]


def test_polling_goes_on_and_what_never_ends_is_ended() -> None:
    with whole_grid(seed=0):
        facade.launch(polls, 3, 2, 0, 0, np.zeros(1, int), 4)
    begin = time.monotonic()
    for kernel, arguments in ((polls, (np.zeros(1, int), 5)), (spins, (np.zeros(1),))):
        with whole_grid(seconds=0.3), pytest.raises(DeadlockError, match=r"for 0.3 s(.|\n)*test_whole_grid.py:\d+"):
            facade.launch(kernel, 3, 2, 0, 0, *arguments)
    assert time.monotonic() - begin < 5


def test_blocks_that_find_no_room() -> None:
    with whole_grid(blocks=2):
        assert ring.overloads["any"].max_cooperative_grid_blocks(3) == 2
        facade.launch(ring, 2, 1, 0, 0, np.zeros(4), 1)
        facade.launch(note_order, 3, 1, 0, 0, np.zeros(9), np.zeros(1, int), 1)
        with pytest.raises(BarrierError, match="3 blocks wait for each other, and 2 can run"):
            facade.launch(ring, 3, 1, 0, 0, np.zeros(6), 1)


@cuda.jit
def shared_sums(x: Any, sums: Any) -> None:
    part = cuda.shared.array(8, np.float64)
    other = cuda.shared.array((2, 4), np.float64)
    dynamic, again = cuda.shared.array(0, np.float64), cuda.shared.array(0, np.int32)
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    part[lane] = x[cuda.grid(1)]
    other[lane // 4, lane % 4] = 1.0
    dynamic[lane] = part[lane]
    cuda.syncthreads()
    if lane == 0:
        for i in range(lanes):
            sums[cuda.blockIdx.x] += part[i] * other[i // 4, i % 4] + dynamic[i]
        sums[cuda.blockIdx.x] += 1000 * dynamic.size + 100 * again.size


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_shared_memory_belongs_to_a_block(seed: int | None, check: bool) -> None:
    x, sums = np.arange(20.0), np.zeros(4)
    with whole_grid(seed=seed, check=check):
        shared_sums[4, 5, 0, 8 * 5](x, sums)
    np.testing.assert_array_equal(sums, 2 * x.reshape(4, 5).sum(1) + 6000)


@cuda.jit
def reads_garbage(x: Any) -> None:
    part = cuda.shared.array(4, np.float32)
    x[cuda.threadIdx.x] = part[cuda.threadIdx.x]


def test_shared_memory_begins_with_garbage() -> None:
    x = np.zeros(4)
    with whole_grid():
        facade.launch(reads_garbage, 1, 4, 0, 0, x)
    assert np.isnan(x).all()


DEVICE_FUNCTION = """\
from numba import cuda


@cuda.jit(device=True)
def shifted(x):
    cuda.cg.this_grid().sync()
    found = x[(cuda.grid(1) + 1) % x.size]
    cuda.syncthreads()
    return found
"""
KERNEL = """

@cuda.jit
def kernel(x, y):
    y[cuda.grid(1)] = shifted(x)
    cuda.cg.this_grid().sync()
    x[cuda.grid(1)] = shifted(y)
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("apart", [False, True])
def test_generated_modules_and_device_functions_of_others(apart: bool, seed: int | None) -> None:
    functions = load_module(DEVICE_FUNCTION)
    module = load_module("from numba import cuda\n" + KERNEL if apart else DEVICE_FUNCTION + KERNEL)
    module.shifted = functions.shifted if apart else module.shifted
    x, y = on_device(np.arange(6.0)), on_device(np.zeros(6))
    with whole_grid(seed=seed, check=True):
        facade.launch(module.kernel, 3, 2, 0, 0, x, y)
    np.testing.assert_array_equal(x.to_host(), np.roll(np.arange(6), -2))
    assert module.cuda is cuda
    assert functions.cuda is cuda
