"""Races of simulated kernels: each kind is found whatever the order of threads, and its repaired twin passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import cuda
from whole_grid import RaceError, whole_grid

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda import facade, gemm
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.lane_functions import add_release, load_acquire

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not facade.SIMULATED, reason="the check is for the simulator")]
SEEDS = [None, 0, 1, 2]
Body = Callable[..., None]
LANE, BLOCK, GRID = range(3)  # what separates two halves of a kernel: nothing, syncthreads, a grid's sync


def halves(first: Body, second: Body, barrier: int) -> Any:
    """A kernel of two bodies `(x, shared, block, thread, lane)` with a barrier in between."""

    @cuda.jit
    def kernel(x: Any) -> None:
        part = cuda.shared.array(8, np.float64)
        places = x, part, cuda.blockIdx.x, cuda.grid(1), cuda.threadIdx.x
        first(*places)
        if barrier == BLOCK:
            cuda.syncthreads()
        elif barrier == GRID:
            cuda.cg.this_grid().sync()
        second(*places)

    return kernel


def own(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x[thread] = 1.0


def read_of_next_lane(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x[3 * block + (lane + 1) % 3]


def read_of_next_thread(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x[(thread + 1) % 6]


def write_of_next_thread(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x[(thread + 1) % 6] = 2.0


def share(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    part[lane] = 3.0


def read_shared(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    for i in range(3):
        part[i]


def first_adds(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    if lane == 0:
        x[7] += 1.0


def atomic(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    cuda.atomic.add(x, 7, 1.0)
    cuda.atomic.max(x[6:], 1, 5.0)


def read_atomic(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    if thread == 5:
        x[7]


def row(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x[:6].reshape((3, 2))[lane : lane + 1, block : block + 1][0, 0] = 1.0


def write_slice(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x[thread : thread + 1] = 4.0


def write_half(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x[4:].view(np.float32)[thread] = 1.0


def read_of_half(x: Any, part: Any, block: int, thread: int, lane: int) -> None:
    x.T[4:7].view(np.float32).reshape((3, 2))[:, 1:2][thread // 2, 0]


def nothing(*places: Any) -> None:
    pass


RACES = {  # bodies, and the least barrier that separates them
    "read of a lane's write": (own, read_of_next_lane, BLOCK),
    "write to what a lane has read": (read_of_next_lane, own, BLOCK),
    "read of another block's write": (own, read_of_next_thread, GRID),
    "write to what another block has read": (read_of_next_thread, own, GRID),
    "write after write": (own, write_of_next_thread, GRID),
    "shared memory": (share, read_shared, BLOCK),
    "shared memory is used again": (read_shared, share, BLOCK),
    "atomics and a read": (atomic, read_atomic, GRID),
    "atomics after a read": (read_atomic, atomic, GRID),
    "rows and columns of a view": (row, write_slice, GRID),
    "view of another dtype": (write_half, read_of_half, GRID),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RACES)
def test_races_are_found_and_barriers_repair_them(name: str, seed: int | None) -> None:
    first, second, needed = RACES[name]
    for barrier in (LANE, BLOCK, GRID):
        with whole_grid(check=True, seed=seed):
            kernel = halves(first, second, barrier)
            if barrier >= needed:
                facade.launch(kernel, 2, 3, 0, 0, np.zeros(8))
            else:
                with pytest.raises(RaceError):
                    facade.launch(kernel, 2, 3, 0, 0, np.zeros(8))


@pytest.mark.parametrize("seed", SEEDS)
def test_atomics_add_up_where_a_sum_is_a_race(seed: int | None) -> None:
    x = np.zeros(8)
    with whole_grid(check=True, seed=seed):
        facade.launch(halves(atomic, nothing, LANE), 2, 3, 0, 0, x)
        assert x[7] >= 5
        facade.launch(halves(first_adds, nothing, LANE), 1, 3, 0, 0, x)
        with pytest.raises(RaceError, match=r"x\[7\]"):
            facade.launch(halves(first_adds, nothing, LANE), 2, 3, 0, 0, x)


@cuda.jit
def names_threads(y: Any, table: Any) -> None:
    if cuda.blockIdx.x == 1 and cuda.threadIdx.x == 2:
        table[2:][1, 1:][0] = 5.0
    if cuda.blockIdx.x == 2 and cuda.threadIdx.x == 0:
        table[3, 1]


@cuda.jit
def names_shared(x: Any) -> None:
    total = cuda.shared.array((2, 2), np.float32)
    total[1, 0] = cuda.threadIdx.x


def test_an_error_names_element_threads_and_lines() -> None:
    with whole_grid(check=True):
        with pytest.raises(RaceError) as caught:
            facade.launch(names_threads, 3, 3, 0, 0, np.zeros(1), np.zeros((5, 2)))
        with pytest.raises(RaceError, match=r"total\[1, 0\]: written by thread 0 of block 0 .*without a syncthreads"):
            facade.launch(names_shared, 1, 2, 0, 0, np.zeros(1))
    line = names_threads.py_func.__code__.co_firstlineno
    assert str(caught.value) == (
        f"kernel names_threads: race for table[3, 1]: written by thread 2 of block 1 (test_race_check.py:{line + 3}), "
        f"read by thread 0 of block 2 (test_race_check.py:{line + 5}), without a sync of the grid between them"
    )


@cuda.jit
def two_arguments(x: Any, y: Any) -> None:
    if cuda.blockIdx.x == 0:
        x[3] = 1.0
    else:
        y[0]


def test_arguments_that_overlap() -> None:
    x = on_device(np.zeros(6))
    with whole_grid(check=True):
        facade.launch(two_arguments, 2, 1, 0, 0, x, x[4:])
        with pytest.raises(RaceError, match=r"y\[0\]"):
            facade.launch(two_arguments, 2, 1, 0, 0, x, x[3:])


def all_write(value: Callable[[int], float], reads: bool) -> Any:
    @cuda.jit
    def kernel(x: Any) -> None:
        if reads:
            x[0]
        x[0] = value(cuda.grid(1))
        x[0]

    return kernel


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_value_from_all_threads_is_fine_on_request(seed: int | None) -> None:
    kernels = {
        True: all_write(lambda thread: 7.0, False),
        False: all_write(float, False),
        None: all_write(lambda thread: 7.0, True),
    }
    for fine, kernel in kernels.items():
        with whole_grid(check=True, seed=seed), pytest.raises(RaceError):
            facade.launch(kernel, 2, 2, 0, 0, np.zeros(1))
        with whole_grid(check=True, seed=seed, same_value_is_fine=True):
            if fine:
                facade.launch(kernel, 2, 2, 0, 0, np.zeros(1))
            else:
                with pytest.raises(RaceError):
                    facade.launch(kernel, 2, 2, 0, 0, np.zeros(1))


def test_products_of_the_library_have_no_races() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(7, 5)), random.normal(size=(5, 8))
    c, d = on_device(np.zeros(56)), on_device(np.zeros(25))
    A, B = (gemm.Matrix(on_device(x.reshape(-1)), 0, x.shape[1]) for x in (a, b))
    products = [
        gemm.Product(A, B, gemm.Matrix(c, 0, 8), 7, 8, 5),
        gemm.Product(A.transposed, A, gemm.Matrix(d, 0, 5), 5, 5, 7),
    ]
    with whole_grid(check=True, seed=0):
        gemm.multiply(*products)
    np.testing.assert_allclose(c.to_host().reshape(7, 8), a @ b, rtol=1e-13)
    np.testing.assert_allclose(d.to_host().reshape(5, 5), a.T @ a, rtol=1e-13)


def test_scans_of_the_library_have_no_races() -> None:
    net = ro.Net("lstm")
    outputs = ro.LSTM(net, net.input("xs"), net.input("lengths", "int32"), None, 2, 3)
    net.outputs(**dict(zip(("h_all", "h_last", "c_all", "c_last"), outputs, strict=True)))
    random = np.random.default_rng(0)
    feeds = {spec.name: random.normal(size=spec.shape) for spec in net.parameters}
    feeds |= {"xs": random.normal(size=(4, 3, 2)), "lengths": np.array([4, 0, 2], "int32")}
    tuning = Options(tile=2, around="rows", device=Cuda(3))
    with whole_grid(check=True, seed=0, same_value_is_fine=True):
        ro.testing.check_devices(net, feeds, {"cuda": lambda net: ro.compile(net, device="cuda", tuning=tuning)})


def added(counters: Any) -> None:
    cuda.atomic.add(counters, 0, 1)


def released(counters: Any) -> None:
    add_release(counters, 0, 1)


def polled(counters: Any) -> Any:
    return cuda.atomic.add(counters, 0, 0)


def acquired(counters: Any) -> Any:
    return load_acquire(counters, 0)


def handing_over(tell: Body, look: Callable[[Any], Any], before: bool = True, after: bool = True) -> Any:
    """A kernel whose blocks write numbers, wait for each other by a counter, and read what another block wrote."""

    @cuda.jit
    def kernel(x: Any, y: Any, counters: Any) -> None:
        x[cuda.grid(1)] = cuda.grid(1)
        if before:
            cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            tell(counters)
            while look(counters) < cuda.gridDim.x:
                pass
        if after:
            cuda.syncthreads()
        y[cuda.grid(1)] = x[(cuda.grid(1) + cuda.blockDim.x) % cuda.gridsize(1)]

    return kernel


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_released_and_acquired_is_visible(seed: int | None) -> None:
    y = np.zeros(9)
    with whole_grid(check=True, seed=seed):
        facade.launch(handing_over(released, acquired), 3, 3, 0, 0, np.zeros(9), y, np.zeros(1, np.uint32))
    np.testing.assert_array_equal(y, [3, 4, 5, 6, 7, 8, 0, 1, 2])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "kernel",
    [
        handing_over(added, acquired),
        handing_over(released, polled),
        handing_over(released, acquired, before=False),
        handing_over(released, acquired, after=False),
    ],
    ids=["no release", "no acquire", "no barrier before the release", "no barrier after the acquire"],
)
def test_a_write_is_invisible_until_it_was_released_and_acquired(kernel: Any, seed: int | None) -> None:
    """The numbers that are read would be right in all of them: threads of the simulator have one memory."""
    with whole_grid(check=True, seed=seed), pytest.raises(RaceError, match=r"race for x\["):
        facade.launch(kernel, 3, 3, 0, 0, np.zeros(9), np.zeros(9), np.zeros(1, np.uint32))


def test_what_a_block_was_told_it_tells_others() -> None:
    """Block 0 tells block 1, which tells block 2: nothing is told by block 0 to block 2 itself."""

    @cuda.jit
    def kernel(x: Any, counters: Any) -> None:
        block = cuda.blockIdx.x
        if block > 0:
            while load_acquire(counters, block) == 0:
                pass
        if block == 0:
            x[0] = 7.0
        if block == 2:
            x[1] = x[0]
        if block < 2:
            add_release(counters, block + 1, 1)

    x = np.zeros(2)
    with whole_grid(check=True, seed=1):
        facade.launch(kernel, 3, 1, 0, 0, x, np.zeros(3, np.uint32))
    assert x[1] == 7.0


@cuda.jit
def reads_counters(counters: Any) -> None:
    add_release(counters, 0, 1)
    counters[0]


def test_plain_reads_of_a_place_that_is_released_are_a_race() -> None:
    with whole_grid(check=True), pytest.raises(RaceError, match=r"counters\[0\]"):
        facade.launch(reads_counters, 2, 1, 0, 0, np.zeros(1, np.uint32))
