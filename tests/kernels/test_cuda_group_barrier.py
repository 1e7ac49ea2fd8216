"""Blocks of a group wait for each other: each member sees what the others wrote, and no other group is waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda
from whole_grid import DeadlockError, RaceError, whole_grid

from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.lane_functions import HALF, WORDS, groups_source

pytestmark = on_cuda
simulated = pytest.mark.skipif(not facade.SIMULATED, reason="the race check is for the simulator")
KERNEL = """\
from typing import Any

import numpy as np
from numba import cuda

from rnnops.kernels.cuda.lane_functions import add_release, load_acquire

device_function = cuda.jit(device=True)


{functions}


@cuda.jit
def kernel(x, counters, members, steps):
    group, member, lane = cuda.blockIdx.x // members, cuda.blockIdx.x % members, cuda.threadIdx.x
    line, width = group * 32, members * cuda.blockDim.x
    turn = turn_of(counters, line)
    own = member * cuda.blockDim.x + lane
    for step in range(steps):
        other = (own + cuda.blockDim.x + 1) % width
        x[group, step + 1, own] = x[group, step, other] + 1
        arrive(counters, line, member, members)
        await_group(counters, line, members, turn + step)
"""
SEEDS = [None, 0, 1, 2]


def launch(text: str, groups: int, members: int, steps: int, counters: Any, lanes: int = 3) -> Any:
    x = np.zeros((groups, steps + 1, members * lanes))
    x[:, 0] = np.arange(x[:, 0].size).reshape(groups, -1)
    given = on_device(x)
    facade.launch(load_module(text).kernel, groups * members, lanes, 0, 0, given, counters, members, steps)
    return given.to_host()


def expected(groups: int, members: int, steps: int, lanes: int = 3) -> Any:
    width = members * lanes
    last = (np.arange(width) + steps * (lanes + 1)) % width + steps
    return last + width * np.arange(groups)[:, None]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("groups", "members", "steps"), [(1, 1, 2), (1, 3, 3), (2, 2, 4), (3, 2, 1)])
def test_members_see_what_others_wrote(groups: int, members: int, steps: int, seed: int | None) -> None:
    """Launches go on where the last one left the words: with an odd and an even number of turns."""
    counters = on_device(np.zeros(WORDS * groups, np.uint32))
    for launches in (1, 2):
        with whole_grid(check=True, seed=seed):
            x = launch(KERNEL.format(functions=groups_source()), groups, members, steps, counters)
        np.testing.assert_array_equal(x[:, -1], expected(groups, members, steps))
        turned = HALF * (steps * launches % 2) if members > 1 else 0
        np.testing.assert_array_equal(counters.to_host()[::WORDS], turned)


BROKEN = {
    "no release": ("add_release(counters, line, ", "cuda.atomic.add(counters, line, "),
    "no acquire": (
        "while np.int64(load_acquire(counters, line))",
        "while np.int64(cuda.atomic.add(counters, line, 0))",
    ),
    "no barrier before": ("    cuda.syncthreads()\n    if members > 1 and", "    if members > 1 and"),
    "no barrier after": ("                pass\n        cuda.syncthreads()", "                pass"),
}


@simulated
@pytest.mark.parametrize("seed", SEEDS[1:])
@pytest.mark.parametrize("name", BROKEN)
def test_a_barrier_that_lacks_something_is_caught(name: str, seed: int | None) -> None:
    right, wrong = BROKEN[name]
    functions = groups_source()
    assert functions.count(right) == 1
    counters = on_device(np.zeros(WORDS * 2, np.uint32))
    with whole_grid(check=True, seed=seed, seconds=1.0), pytest.raises((RaceError, DeadlockError)):
        launch(KERNEL.format(functions=functions.replace(right, wrong)), 2, 2, 2, counters)


@simulated
def test_a_member_that_does_not_come_is_told() -> None:
    text = KERNEL.format(functions=groups_source()).replace("range(steps)", "range(steps - member)")
    with whole_grid(seconds=0.5), pytest.raises(DeadlockError):
        launch(text, 2, 2, 2, on_device(np.zeros(WORDS * 2, np.uint32)))
