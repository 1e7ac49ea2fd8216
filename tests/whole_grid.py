"""numba's CUDA simulator with all blocks of a launch at once, and with a check for races.

The simulator runs block after block and takes a grid's `sync` for a barrier of the block, so that it shows neither
deadlocks nor races between blocks. Within `whole_grid` launches are as on a device: kernels that wait for all blocks
run (`grid_threads.py`), a shared array belongs to a block and begins with garbage, and accesses to arrays can be
checked (`race_check.py`).

    with whole_grid(check=True, seed=1):
        facade.launch(kernel, 4, 3, x, y)

Where there is a device and no simulator, `whole_grid` does nothing: launches are of whole grids there.

Limits: some 8 blocks of 8 threads, or two warps, as Python threads take turns; the names that the simulator has.
Nothing is undone of what a launch wrote to arrays of the device before it failed.
"""

from __future__ import annotations

import inspect
import linecache
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from grid_threads import BarrierError, DeadlockError, DivergentBarrierError, Grid
from numba import types
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.kernelapi import FakeCUDAModule
from numba.np.numpy_support import as_dtype
from race_check import RaceError, Races, WatchedArray, names_of

from rnnops.kernels.cuda import facade, lane_functions, simulated, tensor_cores
from rnnops.kernels.cuda.simulated import plain

assert facade.SIMULATED == simulated.SIMULATED  # imported first: it puts its launches into the simulator
__all__ = ["BarrierError", "DeadlockError", "DivergentBarrierError", "RaceError", "whole_grid"]
MOST_BLOCKS = 8  # for kernels that ask how many blocks can wait for each other
GARBAGE = 0xFF  # in each byte: NaN, or -1


@contextmanager
def whole_grid(
    blocks: int | None = None,
    check: bool = False,
    seed: int | None = None,
    same_value_is_fine: bool = False,
    seconds: float = 20.0,
) -> Iterator[None]:
    """Let launches in the simulator run all their blocks at once.

    A launch raises what one of its threads raises, DivergentBarrierError, DeadlockError, or RaceError.

    Args:
        blocks: how many the device has room for: a launch of more cannot wait for its whole grid.
        check: for races on arrays that are arguments of the kernel, or shared.
        seed: of the order in which threads run; None is the order of their indices.
        same_value_is_fine: whether threads may write the same value to one element without a barrier.
        seconds: how long a thread may run from one barrier to the next before that counts as a deadlock.
    """
    if not simulated.SIMULATED:
        yield
        return
    options = Options(blocks, check, seed, same_value_is_fine, seconds)
    most = MOST_BLOCKS if blocks is None else blocks
    with ExitStack() as patches:
        for name, value in (
            ("FakeCUDAModule", WholeGridModule),
            ("FakeOverload.max_cooperative_grid_blocks", lambda overload, threads: most),
        ):
            patches.enter_context(mock.patch(f"{simulator.__name__}.{name}", value))
        launcher = partial(Launch, options)  # not patched in: the first import of the facade would put its own there
        simulated.launchers.append(launcher)
        patches.callback(simulated.launchers.remove, launcher)
        patches.enter_context(mock.patch.object(lane_functions, "simulated", OrderedMemory()))
        patches.enter_context(mock.patch.object(tensor_cores, "simulated", WarpsInTurn()))
        yield


@dataclass(frozen=True)
class Options:
    """The arguments of `whole_grid`."""

    blocks: int | None
    check: bool
    seed: int | None
    same_value_is_fine: bool
    seconds: float


class Launch:
    """In the place of the simulator's `BlockManager`: with the first block, it runs all of them."""

    def __init__(self, options: Options, function: Any, grid_dim: Any, block_dim: Any, debug: bool) -> None:
        self.options, self.function, self.dims = options, function, (grid_dim, block_dim)
        self.name = function.__name__
        self.races = Races(self.name, options.same_value_is_fine) if options.check else None
        self.arguments: tuple[Any, ...] = ()

    def run(self, block: tuple[int, ...], *arguments: Any) -> None:
        if any(block):
            return
        if self.races is not None:
            names = names_of(inspect.signature(self.function).parameters, len(arguments))
            arguments = tuple(map(self.races.watched, arguments, names))
        self.arguments = tuple(map(plain, arguments))
        Grid(self, *self.dims, self.options.seed, self.options.seconds).run()

    def work(self) -> None:
        self.function(*self.arguments)

    def synced(self) -> None:
        if self.races is not None:
            self.races.forget()


class WholeGridModule(FakeCUDAModule):
    """`cuda` as kernels see it."""

    def __init__(self, grid_dim: Any, block_dim: Any, dynamic_nbytes: int) -> None:
        super().__init__(grid_dim, block_dim, dynamic_nbytes)
        self._dynamic_nbytes = dynamic_nbytes
        self._cg = CooperativeGroups()
        self._atomic = Atomics(self._atomic)

    @property
    def shared(self) -> SharedArrays:
        thread: Any = threading.current_thread()
        if thread.block.shared is None:
            thread.block.shared = SharedArrays(self._dynamic_nbytes, thread.grid.launch.races)
        return thread.block.shared


class CooperativeGroups:
    """`cuda.cg`, and the one group that it has."""

    def this_grid(self) -> CooperativeGroups:
        return self

    def sync(self) -> None:
        thread: Any = threading.current_thread()
        launch, count = thread.grid.launch, len(thread.grid.blocks)
        most = launch.options.blocks
        if most is not None and count > most:
            raise DeadlockError(f"kernel {launch.name}: {count} blocks wait for each other, and {most} can run")
        thread.sync_grid()


class Atomics:
    """`cuda.atomic`: before each operation other threads may take turns."""

    def __init__(self, atomics: Any) -> None:
        self._atomics = atomics

    def __getattr__(self, name: str) -> Any:
        return partial(self._operate, getattr(self._atomics, name))

    def _operate(self, operation: Any, array: Any, *operands: Any) -> Any:
        thread: Any = threading.current_thread()
        thread.hand_over()
        if not isinstance(array, WatchedArray):
            return operation(array, *operands)
        if operation.__name__ == "compare_and_swap":  # of the first element
            first = (0,) * array.ndim
            return array.atomically(lambda plain, index, *values: operation(plain, *values), first, *operands)
        return array.atomically(operation, *operands)


class OrderedMemory:
    """Releases and acquires: before each other threads may take turns, as before atomic operations."""

    def add_release(self, counters: Any, place: int, value: Any) -> None:
        thread: Any = threading.current_thread()
        thread.hand_over()
        self._atomically(_added, counters, place, value)
        if isinstance(counters, WatchedArray):
            thread.grid.clocks.release(thread.number, counters.place(place))

    def load_acquire(self, counters: Any, place: int) -> Any:
        thread: Any = threading.current_thread()
        thread.hand_over()
        if isinstance(counters, WatchedArray):
            thread.grid.clocks.acquire(thread.number, counters.place(place))
        return self._atomically(lambda array, index: array[index], counters, place)

    def _atomically(self, operation: Any, array: Any, *operands: Any) -> Any:
        watched = isinstance(array, WatchedArray)
        return array.atomically(operation, *operands) if watched else operation(array, *operands)


class WarpsInTurn(tensor_cores.Warps):
    """Warps whose lanes let others take turns until all have come; a warp's instruction orders no memory."""

    def block_of(self, thread: Any) -> Any:
        return thread.block

    def wait(self, thread: Any, meeting: tensor_cores.Meeting) -> None:
        meeting.changed.release()
        try:
            thread.hand_over()
        finally:
            meeting.changed.acquire()


def _added(array: Any, index: int, value: Any) -> None:
    array[index] = (int(array[index]) + int(value)) % lane_functions.WORD_VALUES


class SharedArrays:
    """`cuda.shared` of one block: an array for each call in the text of a kernel, and one piece of dynamic memory."""

    def __init__(self, dynamic_nbytes: int, races: Races | None) -> None:
        self._dynamic, self._races = np.full(dynamic_nbytes, GARBAGE, np.uint8), races
        self._static: dict[Any, np.ndarray] = {}

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        dtype = as_dtype(dtype) if isinstance(dtype, types.Type) else np.dtype(dtype)
        caller = sys._getframe(1)
        if shape == 0:
            array = self._dynamic[: self._dynamic.size // dtype.itemsize * dtype.itemsize].view(dtype)
        else:
            array = self._static.setdefault((caller.f_code, caller.f_lasti), _garbage(shape, dtype))
        if self._races is None:
            return array
        line = linecache.getline(caller.f_code.co_filename, caller.f_lineno)
        name, assignment, _ = line.partition("= cuda.shared.array")
        return self._races.watched(array, name.strip() if assignment else "shared array")


def _garbage(shape: Any, dtype: np.dtype) -> np.ndarray:
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = GARBAGE
    return array
