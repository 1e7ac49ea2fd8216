"""numba's CUDA simulator: `SIMULATED` tells if it is used, the rest makes launches in it faster and correct.

**Launches in numba's CUDA simulator, several times faster than its own**. The simulator polls the threads of a block,
wraps each array twice, and searches a module for the name `cuda` at each call of a device function. Here the last
thread of a block opens a barrier at which the others wait. Kernels get NumPy's arrays. A module is changed once for
each launch, until the launch is over.

Limits: kernels lose two features of the wrappers. Fields of records are not attributes, and negative indices of shapes
are not refused.

**One shared array for all threads of a block**. The simulator's `cuda.shared.array` looks an array up by the line of
the call, and makes it if there is none. If two threads do so at once, each gets its own array. Sums were then wrong,
about once in a thousand launches (numba 0.68, `FakeCUDAShared.array`). Here look-up and making are one step. Dynamic
arrays, which have size 0, are left to the simulator.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numba import config, cuda, types
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray
from numba.cuda.simulator.kernelapi import FakeCUDAShared
from numba.np.numpy_support import as_dtype

SIMULATED = bool(config.ENABLE_CUDASIM)
launchers: list[Any] = []  # classes that replace `SimulatedBlock`; the last one is used. Tests add theirs


def hasten_launches() -> None:
    """Let the simulator launch kernels by the classes of this file."""
    simulator.BlockManager = lambda *arguments: (launchers[-1] if launchers else SimulatedBlock)(*arguments)
    simulator.swapped_cuda_module = SwappedModules()
    simulator.FakeCUDAKernel.__call__ = call_of(simulator.FakeCUDAKernel.__call__)


def call_of(launch: Any) -> Any:
    """The function that calls kernels: it calls a device function directly, and launches any other kernel."""

    def called(kernel: Any, *arguments: Any) -> Any:
        if not kernel._device:
            return launch(kernel, *arguments)
        simulator.swapped_cuda_module.swap(kernel.fn.__globals__, simulator._get_kernel_context())
        return kernel.fn(*arguments)

    return called


def plain(argument: Any) -> Any:
    """A kernel's argument: NumPy's array without the simulator's wrappers, or an argument of another type."""
    if isinstance(argument, FakeWithinKernelCUDAArray):
        argument = argument._item
    return argument._ary if isinstance(argument, FakeCUDAArray) else argument


class SimulatedLane(simulator.BlockThread):
    """A thread of a block, which waits without being polled."""

    def __init__(
        self, work: Any, block: SimulatedBlock, place: tuple[int, ...], index: tuple[int, ...], debug: bool
    ) -> None:
        super().__init__(work, block, place, index, debug)
        self.opened = threading.Lock()
        self.opened.acquire()

    def run(self) -> None:
        super().run()
        self._manager.ended(self)

    def syncthreads(self) -> None:
        self._check()
        self._manager.arrived(self)
        self.opened.acquire()
        self._check()

    def _check(self) -> None:
        if self.abort:
            raise RuntimeError("another thread of the block has failed")


class SimulatedBlock(simulator.BlockManager):
    """The threads of a block; a barrier opens when all that have not ended have come to it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._changing = threading.Lock()
        self._waiting: list[SimulatedLane] = []
        self._lanes: list[SimulatedLane] = []
        self._running, self._failed = 0, list[SimulatedLane]()

    def run(self, place: tuple[int, ...], *arguments: Any) -> None:
        """Run all threads of a block to their ends. Raises the error of the thread that failed first."""
        work = partial(self._f, *map(plain, arguments))
        self._lanes = [SimulatedLane(work, self, place, index, self._debug) for index in np.ndindex(*self._block_dim)]
        self._running = len(self._lanes)
        for lane in self._lanes:
            lane.start()
        for lane in self._lanes:
            lane.join()
        for lane in self._failed:
            error, trace = lane.exception
            raise error.with_traceback(trace)

    def arrived(self, lane: SimulatedLane) -> None:
        """Note that a thread waits at a barrier, and open the barrier if all have come."""
        with self._changing:
            self._waiting.append(lane)
            self._open()

    def ended(self, lane: SimulatedLane) -> None:
        """Note that a thread has ended. If it has failed, the others end at their barriers."""
        with self._changing:
            self._running -= 1
            if lane.exception:
                self._failed.append(lane)
                for other in self._lanes:
                    other.abort = True
            self._open()

    def _open(self) -> None:
        if self._failed or len(self._waiting) == self._running:
            waiting, self._waiting = self._waiting, []
            for lane in waiting:
                lane.opened.release()


class SwappedModules:
    """Puts the simulator's `cuda` into modules of kernels and device functions, until the whole launch is over.

    The simulator removes it from a module when a call of a device function returns. Another thread may still need it.
    """

    def __init__(self) -> None:
        self._swapped: dict[int, tuple[dict[str, Any], list[str]]] = {}

    @contextmanager
    def __call__(self, function: Any, module: Any) -> Iterator[None]:
        self.swap(function.__globals__, module)
        try:
            yield
        finally:
            self._restore()

    def swap(self, names: dict[str, Any], module: Any) -> None:
        """Put the simulator's `cuda` into a module, given by the dictionary of its names."""
        if id(names) not in self._swapped:
            found = [name for name, value in names.items() if value is cuda]
            names.update(dict.fromkeys(found, module))
            self._swapped.setdefault(id(names), (names, []))[1].extend(found)  # other threads may come here at once

    def _restore(self) -> None:
        for names, found in self._swapped.values():
            names.update(dict.fromkeys(found, cuda))
        self._swapped.clear()


_dynamic = FakeCUDAShared.array


def shared_array(memory: FakeCUDAShared, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
    """The array of the line that calls. `dict.setdefault` is one step for all threads. `alignment` has no effect."""
    if shape == 0:
        return _dynamic(memory, shape, dtype)
    asking = sys._getframe(1)
    made = np.empty(shape, as_dtype(dtype) if isinstance(dtype, types.Type) else dtype)
    return memory._allocations.setdefault((asking.f_code, asking.f_lineno), made)


def share_arrays() -> None:
    """Let kernels in the simulator get their shared arrays from `shared_array`."""
    FakeCUDAShared.array = shared_array
