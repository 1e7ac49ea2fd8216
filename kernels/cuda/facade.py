"""The one module, beside generated ones, that knows numba-cuda and the simulator that numba brings along.

Kernels are written in the language of `cuda`, which is exported from here: a kernel must see the module under this very
name, as the simulator puts one of its own in its place. What the two do not share is hidden behind functions:

- the simulator (`NUMBA_ENABLE_CUDASIM=1`, set before numba is first imported) runs one Python thread for each of CUDA's
  and block after block, so that sizes are small there (`choose`) and blocks never wait for each other;
- it knows no options of compilation (`kernel` leaves them out) and no compiler (`ptx`).

Limits: one device, the one that is current in this thread. `NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS` is numba's own affair.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numba import config, cuda, types

from rnnops.errors import DeviceError

SIMULATED = bool(config.ENABLE_CUDASIM)
CAPABILITY = 7, 0  # the least: grids that synchronise, shared memory beyond 48 KiB
INSTALL = "Install rnnops with its extra 'cuda' on a machine with an NVIDIA driver, or set NUMBA_ENABLE_CUDASIM=1."
Choice = TypeVar("Choice")
Kernel = Any


@dataclass(frozen=True)
class Card:
    """A CUDA device.

    Args:
        capability: compute capability, (major, minor).
        nbytes: of its memory, 0 where nobody knows.
        multiprocessors: how many blocks at least run at the same time.
    """

    name: str
    capability: tuple[int, int]
    nbytes: int
    multiprocessors: int

    def __str__(self) -> str:
        memory = f", {self.nbytes / 2**30:.0f} GiB" if self.nbytes else ""
        return f"{self.name} (compute capability {self.capability[0]}.{self.capability[1]}{memory})"


def choose(device: Choice, simulator: Choice) -> Choice:
    """One of two values: sizes for a device, or small ones for the simulator."""
    return simulator if SIMULATED else device


def missing() -> str:
    """What is missing for CUDA kernels to run; empty where nothing is."""
    if SIMULATED:
        return ""
    try:
        if not cuda.is_available():
            return "no CUDA driver, or no device that it can use"
        capability = cuda.get_current_device().compute_capability
    except Exception as error:  # numba-cuda, the driver and its loader each have errors of their own
        return f"the CUDA driver cannot be used: {error}"
    if tuple(capability) < CAPABILITY:
        return f"compute capability {CAPABILITY[0]}.{CAPABILITY[1]} or more, and the device has {capability}"
    return ""


def card(net: str | None = None) -> Card:
    """The device that kernels run on. Raises DeviceError where there is none, for the net that wants it."""
    lacking = missing()
    if lacking:
        wanted = "a device that runs CUDA kernels"
        raise DeviceError("no CUDA device", net=net, wanted=wanted, came=lacking, hint=INSTALL)
    if SIMULATED:
        return Card("simulator of numba.cuda", CAPABILITY, 0, 1)
    device = cuda.get_current_device()
    nbytes = int(cuda.current_context().get_memory_info().total)
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    return Card(name, tuple(device.compute_capability), nbytes, int(device.MULTIPROCESSOR_COUNT))


def kernel(function: Callable[..., None], **options: Any) -> Kernel:
    """A kernel: `kernel(f)[blocks, threads](...)`.

    Args:
        options: of numba-cuda's `cuda.jit`, which the simulator does without.
    """
    return cuda.jit(function) if SIMULATED else cuda.jit(function, **options)


def launch(kernel: Kernel, blocks: int, threads: int, *arguments: Any) -> None:
    """Run a kernel and wait for it; arrays of NumPy are copied to the device and back."""
    with warnings.catch_warnings():
        if SIMULATED:  # whose threads know nothing of `np.errstate`
            warnings.simplefilter("ignore", RuntimeWarning)
        kernel[blocks, threads](*arguments)
        cuda.synchronize()


def ptx(function: Callable[..., None], signature: Any, capability: tuple[int, int]) -> str:
    """A kernel as PTX for some compute capability; needs numba-cuda and its compiler library, but no device.

    Raises DeviceError in the simulator, which compiles nothing.
    """
    if SIMULATED:
        raise DeviceError("the simulator compiles nothing", hint="Leave NUMBA_ENABLE_CUDASIM unset.")
    text, _ = cuda.compile(function, signature, cc=capability, device=False, abi="numba", output="ptx")
    return text.decode() if isinstance(text, bytes) else str(text)


def array_type(dtype: str) -> Any:
    """numba's type of a contiguous array of one axis."""
    return types.Array(getattr(types, dtype), 1, "C")


def on_device(array: Any) -> Any:
    """A contiguous copy of a NumPy array in the device's memory."""
    return cuda.to_device(np.ascontiguousarray(array))


def on_host(array: Any) -> Any:
    """A copy of an array of the device as a NumPy array; waits for the kernels that write it."""
    return array.copy_to_host()
