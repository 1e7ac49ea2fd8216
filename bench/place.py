"""Where arrays of the benchmark live, and what only the library that put them there can do: draw, compare, time.

On a CUDA device PyTorch does it where it sees one, else numba-cuda; elsewhere, and in numba's simulator, all arrays are
NumPy's.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from bench.problems import Array, Shape

Block = Callable[[], object]


class NoDeviceError(Exception):
    """There is no GPU that anything here could use."""


class HostPlace:
    """NumPy and the processor's clock; what CUDA devices do in another way, they override.

    Attributes:
        torch_device: where PyTorch computes; empty where it sees no device.
    """

    torch_device = "cpu"

    def put(self, array: Array) -> Any:
        """An array of NumPy on the device."""
        return array

    def normal(self, shape: Shape, seed: int) -> Any:
        """Normal float32 numbers."""
        return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)

    def error(self, came: Any, wanted: Any) -> float:
        """Norm of the difference / norm of what is wanted."""
        return relative_error(to_host(came), to_host(wanted))

    def seconds(self, block: Block) -> float:
        """How long the device takes for what a block enqueues."""
        start = time.perf_counter()
        block()
        self.wait()
        return time.perf_counter() - start

    def wait(self) -> None:
        """Until all work is done. Raises where the device has failed."""

    def clean(self) -> None:
        """Give unused memory back."""

    def free_bytes(self) -> int | None:
        """Free memory of the device, where it counts."""
        return None

    def peak_bytes(self, block: Block) -> int | None:
        """The most that PyTorch holds during a block over what it held before; elsewhere the block does not run."""
        return None


Place = HostPlace


class NumbaPlace(HostPlace):
    """A device without PyTorch: arrays and events of numba-cuda."""

    torch_device = ""

    def __init__(self) -> None:
        self.cuda: Any = import_module("numba.cuda")

    def put(self, array: Array) -> Any:
        return self.cuda.to_device(np.ascontiguousarray(array))

    def normal(self, shape: Shape, seed: int) -> Any:
        return self.put(super().normal(shape, seed))

    def seconds(self, block: Block) -> float:
        start, end = self.cuda.event(), self.cuda.event()
        start.record()
        block()
        end.record()
        end.synchronize()
        return float(self.cuda.event_elapsed_time(start, end)) * 1e-3

    def wait(self) -> None:
        self.cuda.synchronize()

    def clean(self) -> None:
        gc.collect()

    def free_bytes(self) -> int | None:
        return int(self.cuda.current_context().get_memory_info().free)


class TorchPlace(HostPlace):
    """A device that PyTorch sees: its tensors, its events, its counters of memory."""

    torch_device = "cuda"

    def __init__(self) -> None:
        self.torch: Any = import_module("torch")

    def put(self, array: Array) -> Any:
        return self.torch.from_numpy(np.array(array)).cuda()

    def normal(self, shape: Shape, seed: int) -> Any:
        generator = self.torch.Generator("cuda").manual_seed(seed)
        return self.torch.randn(shape, generator=generator, device="cuda")

    def error(self, came: Any, wanted: Any) -> float:
        one, other = self.tensor(came), self.tensor(wanted)
        if one.shape != other.shape:
            return math.inf
        other = other.double()
        return ratio(float((one.double() - other).norm()), float(other.norm()))

    def tensor(self, array: Any) -> Any:
        """An array of any library as a tensor on the device."""
        if isinstance(array, self.torch.Tensor):
            return array.detach()
        if isinstance(array, np.ndarray):
            return self.put(array)
        lent = hasattr(array, "__dlpack__")
        return self.torch.from_dlpack(array) if lent else self.torch.as_tensor(array, device="cuda")

    def seconds(self, block: Block) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        block()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def clean(self) -> None:
        gc.collect()
        self.torch.cuda.empty_cache()

    def free_bytes(self) -> int | None:
        return int(self.torch.cuda.mem_get_info()[0])

    def peak_bytes(self, block: Block) -> int | None:
        self.wait()
        self.torch.cuda.reset_peak_memory_stats()
        before = self.torch.cuda.memory_allocated()
        block()
        self.wait()
        return int(self.torch.cuda.max_memory_allocated() - before)


def to_host(array: Any) -> Array:
    """An array of any library as one of NumPy."""
    if hasattr(array, "detach"):
        array = array.detach().float().cpu().numpy()
    return np.asarray(array.copy_to_host() if hasattr(array, "copy_to_host") else array)


def relative_error(came: Array, wanted: Array) -> float:
    """Norm of the difference / norm of what is wanted; infinite for different shapes."""
    if came.shape != wanted.shape:
        return math.inf
    exact = wanted.astype(np.float64)
    return ratio(float(np.linalg.norm((came - exact).ravel())), float(np.linalg.norm(exact.ravel())))


def ratio(difference: float, norm: float) -> float:
    return difference / norm if norm else difference


def find_place(on_device: bool) -> Place:
    """Where this process measures. Raises NoDeviceError where it should be a CUDA device and there is none."""
    if not on_device:
        return HostPlace()
    found = [torch_reason(), numba_reason()]
    if all(found):
        raise NoDeviceError("; ".join(found))
    return NumbaPlace() if found[0] else TorchPlace()


def torch_reason() -> str:
    """Why PyTorch computes on no device here; empty where it does."""
    try:
        import torch
    except ImportError as error:
        return f"PyTorch does not import ({error})"
    return "" if torch.cuda.is_available() else f"PyTorch {torch.__version__} sees no device"


def numba_reason() -> str:
    """Why numba-cuda computes on no device here; empty where it does."""
    try:
        cuda: Any = import_module("numba.cuda")
        return "" if cuda.is_available() else "numba-cuda is missing, or sees no device"
    except Exception as error:  # of the driver, its loader or the import
        return f"numba-cuda cannot be used ({type(error).__name__})"
