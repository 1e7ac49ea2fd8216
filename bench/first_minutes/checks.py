"""What kernels are made of, each beside something plain on the same device, for `first_minutes.py`.

Barriers of groups, copies that go on (`cp.async`), and products on tensor cores: where one of them is wrong, nothing
above it can be right, and this says which.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import rnnops as ro
from bench.first_minutes.steps import tell
from bench.floor import typical
from bench.group_wait import GROUPS_WAIT
from bench.place import find_place
from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import lane_functions
from rnnops.kernels.cuda.device_array import empty
from rnnops.kernels.cuda.facade import SIMULATED, card, cuda, kernel, launch
from rnnops.kernels.cuda.lane_functions import copies_done, copy_soon

GROUPS, LANES, STEPS = 2, 256, 200
LINE, WORDS_OF_GROUP = 32, 2 * 32  # numbers of a group's counters that lie beside each other, and that it may need
AT_ONCE, NUMBERS = 4, 2**24  # numbers of a copy of 16 bytes; that are copied
TENSOR_CORES = "bench.check_tensor_cores"  # each instruction beside its twin
RING = """

@cuda.jit
def ring(x, counters, members, steps):
    group, member, lane = cuda.blockIdx.x // members, cuda.blockIdx.x % members, cuda.threadIdx.x
    line, width = group * 32, members * cuda.blockDim.x
    turn = turn_of(counters, line)
    own = member * cuda.blockDim.x + lane
    for step in range(steps):
        x[group, step + 1, own] = x[group, step, (own + cuda.blockDim.x + 1) % width] + 1
        arrive(counters, line, member, members)
        await_group(counters, line, members, turn + step)
"""


def barriers(options: argparse.Namespace) -> None:
    """Blocks of groups read in turn what their neighbours have written: each step waits for the one before."""
    lanes, steps = (2, 3) if options.tiny else (LANES, STEPS)
    members = 1 if SIMULATED else card().multiprocessors // GROUPS
    made = load_module(GROUPS_WAIT.format(functions=lane_functions.groups_source()) + RING).ring
    first = np.arange(GROUPS * members * lanes, dtype=np.float32).reshape(GROUPS, -1)
    x = np.zeros((GROUPS, steps + 1, first.shape[1]), np.float32)
    x[:, 0] = first
    wanted = np.roll(first, -steps * (lanes + 1), axis=1) + steps
    counters = empty((GROUPS * lane_functions.WORDS,), "uint32")
    counters.fill(0)
    for turn in range(3):  # counters go on where the launch before has left them
        given = ro.on_device(x)
        launch(made, GROUPS * members, lanes, 0, 0, given, counters, members, steps)
        wrong = int((given.to_host()[:, steps] != wanted).sum())
        tell(groups=GROUPS, members=members, waits=steps * (turn + 1))
        if wrong:
            tell(wrong=f"{wrong} of {wanted.size} numbers of launch {turn} are not those that a neighbour wrote")
            return


def copies(options: argparse.Namespace) -> None:
    """Numbers through shared memory by copies that go on, from places that begin at 16 bytes, beside a plain copy."""
    lanes, count = (2, 48) if options.tiny else (LANES, NUMBERS)
    source = ro.on_device(np.random.default_rng(0).standard_normal(count + AT_ONCE, dtype=np.float32))
    plain, came = (empty((count,), "float32") for _ in range(2))
    blocks = 2 if SIMULATED else 4 * card().multiprocessors
    going_on, at_once = kernel(_going_on(lanes)), kernel(_plain)
    for first in (0, AT_ONCE):
        came.fill(np.nan)
        ways: dict[str, Callable[[], None]] = {
            "cp.async": lambda first=first: launch(going_on, blocks, lanes, 0, 0, source, came, first, count),
            "plain": lambda first=first: launch(at_once, blocks, lanes, 0, 0, source, plain, first, count),
        }
        for way in ways.values():
            way()
        differ = int((came.to_host().view(np.uint32) != plain.to_host().view(np.uint32)).sum())
        if differ:
            tell(wrong=f"{differ} of {count} numbers from {first} on are not those of a plain copy")
            return
        tell(**{f"from {first}": "equal bits"})
    place = find_place(not options.tiny)
    for name, way in ways.items():
        tell(**{f"{name}, GB/s": round(8 * count / typical(place, way) / 1e9, 3)})


def _going_on(lanes: int) -> Callable[..., None]:
    """Through shared memory, four numbers a lane; each lane then writes what others have copied."""
    staged_numbers = AT_ONCE * lanes

    def copied(source: Any, target: Any, first: int, count: int) -> None:
        staged = cuda.shared.array(staged_numbers, np.float32)
        lane = cuda.threadIdx.x
        for start in range(cuda.blockIdx.x * staged_numbers, count, cuda.gridDim.x * staged_numbers):
            if start + 4 * lane < count:
                copy_soon(staged, 4 * lane, source, first + start + 4 * lane)
            copies_done()
            cuda.syncthreads()
            for place in range(lane, min(staged_numbers, count - start), cuda.blockDim.x):
                target[start + place] = staged[place]
            cuda.syncthreads()

    return copied


def _plain(source: Any, target: Any, first: int, count: int) -> None:
    for place in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count, cuda.gridDim.x * cuda.blockDim.x):
        target[place] = source[first + place]


def tensor_cores(options: argparse.Namespace) -> None:
    """Each instruction of tensor cores beside what it should compute."""
    try:
        compare = import_module(TENSOR_CORES).compare_tensor_cores
    except ImportError as error:
        tell(not_there=f"no check of tensor cores ({error})")
        return
    for one in compare():
        tell(**({str(one.instruction.short): str(one)} if one.is_right else {"wrong": str(one)}))
