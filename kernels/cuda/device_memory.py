"""Memory of a CUDA device as the driver or CuPy's pool gives it, and what copies to it, from it and clears it."""

from __future__ import annotations

from typing import Any

from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import SIMULATED, cuda, optional, prepared
from rnnops.kernels.cuda.streams import cupy_stream, synchronize

if not SIMULATED:
    from numba.cuda.cudadrv import driver


def allocate(nbytes: int, stream: Any) -> tuple[Any, int]:
    """Memory of the device: what owns it, and its address. Raises DeviceError where there is not as much left.

    CuPy's pool gives it where CuPy is installed, as the driver takes long to; what was used in a stream is used again
    in that stream alone.
    """
    cupy = optional("cupy")
    try:
        if cupy is not None:
            with cupy_stream(cupy, stream):
                owner = cupy.cuda.alloc(max(nbytes, 1))
            return owner, int(owner.ptr)
        owner = cuda.current_context().memalloc(max(nbytes, 1))
        return owner, int(owner.device_pointer_value)
    except Exception as error:  # each library has an error of its own for it
        if "memory" not in f"{type(error).__name__} {error}".lower():
            raise
        info = cuda.current_context().get_memory_info()
        left = f"{info.free} of {info.total} bytes"
        hint = "Use fewer rows, a memory_budget, or checkpoints='memory'."
        raise DeviceError("the device is out of memory", wanted=f"{nbytes} bytes", came=left, hint=hint) from error


def copy_in(target: Any, array: Any, stream: Any) -> None:
    """Copy a contiguous NumPy array to the device."""
    prepared(target).copy_to_device(array, stream=stream)


def copy_out(source: Any, array: Any, stream: Any) -> None:
    """Copy a contiguous array of the device into a NumPy array, once all before it in the stream is done."""
    prepared(source).copy_to_host(array, stream=stream)
    synchronize(stream)


def clear(target: Any, stream: Any) -> None:
    """Fill a contiguous array of the device with bytes that are 0."""
    driver.device_memset(prepared(target), 0, target.nbytes, stream)
