"""How long blocks of a group wait for each other, when there is nothing to wait for."""

from __future__ import annotations

from bench.floor import THREADS, WAITS, typical
from bench.place import Place
from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import lane_functions
from rnnops.kernels.cuda.device_array import empty
from rnnops.kernels.cuda.facade import launch

GROUPS = 2
GROUPS_WAIT = """\
from typing import Any

import numpy as np
from numba import cuda

from rnnops.kernels.cuda.lane_functions import add_release, load_acquire

device_function = cuda.jit(device=True)


{functions}


@cuda.jit
def kernel(counters, members, count):
    line, member = cuda.blockIdx.x // members * 32, cuda.blockIdx.x % members
    turn = turn_of(counters, line)
    for step in range(count):
        arrive(counters, line, member, members)
        await_group(counters, line, members, turn + step)
"""


def group_wait_seconds(place: Place, blocks: int, threads: int = THREADS, count: int = WAITS) -> float:
    """Of one wait, where groups of half the blocks each do nothing else.

    Args:
        blocks: that run at the same time.
        count: of waits of a launch.
    """
    members = blocks // GROUPS
    kernel = load_module(GROUPS_WAIT.format(functions=lane_functions.groups_source())).kernel
    counters = empty((GROUPS * lane_functions.WORDS,), "uint32")
    counters.fill(0)
    return typical(place, lambda: launch(kernel, GROUPS * members, threads, 0, 0, counters, members, count)) / count
