"""Arrays of other libraries on a CUDA device, and arrays for them: `__cuda_array_interface__`, version 3, and DLPack.

Both say in which stream an array was written, so that no side reads what is not there yet. Limits: PyTorch says
nothing of its streams in its interface, and reads nothing of ours; DLPack, which says it, needs CuPy.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import SIMULATED, optional
from rnnops.kernels.cuda.memory import Memory, current_stream
from rnnops.kernels.cuda.streams import cupy_stream, stream_of


def borrowed(array: Any) -> tuple[Memory, Any]:
    """Another library's memory, and a twin of its array. Raises TypeError for what is no array of a CUDA device."""
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        array, interface = _through_dlpack(array)
    memory, twin = _borrowed(array, interface)
    memory.read_in(current_stream())
    return memory, twin


class Unordered:
    """An array without its stream, for a library that would let the host wait for that."""

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self.owner, self.__cuda_array_interface__ = owner, interface


def capsule(memory: Memory, array: Unordered, stream: Any, options: dict[str, Any]) -> Any:
    """A capsule of DLPack, by CuPy. Raises BufferError where that is missing.

    Args:
        stream: of the one who asks: its address, 1 or None for the legacy default stream, -1 for no order.
    """
    cupy = None if SIMULATED else optional("cupy")
    if cupy is None:
        raise BufferError("DLPack from arrays of the CUDA device needs CuPy; __cuda_array_interface__ does without")
    if stream == 0:
        raise BufferError("stream 0 is ambiguous in DLPack: 1 is the legacy default stream, 2 that of a thread")
    if stream == -1:
        return cupy.asarray(array).__dlpack__(stream=-1, **options)
    asking = stream_of(stream)
    memory.read_in(asking)
    with cupy_stream(cupy, asking):
        return cupy.asarray(array).__dlpack__(stream=stream, **options)


def _through_dlpack(array: Any) -> tuple[Any, Any]:
    """An array as CuPy has it, once the stream that is current waits for what its library is doing with it."""
    cupy = optional("cupy")
    if cupy is None or not hasattr(array, "__dlpack__"):
        wanted = "a NumPy array, or an array of a CUDA device"
        raise TypeError(f"no array that goes to a CUDA device: wanted {wanted}, got {type(array).__name__}")
    with cupy_stream(cupy, current_stream()):  # which the other library lets wait
        found = cupy.from_dlpack(array)
    return found, {**found.__cuda_array_interface__, "stream": None}


def _borrowed(array: Any, interface: Any) -> tuple[Memory, Any]:
    if interface.get("mask") is not None:
        raise TypeError("an array with a mask")
    lacking = [key for key in ("shape", "typestr", "data") if key not in interface]
    if lacking:
        raise TypeError(f"a __cuda_array_interface__ without {', '.join(lacking)}")
    shape, kind = tuple(interface["shape"]), np.dtype(interface["typestr"])
    pointer, read_only = interface["data"]
    if not pointer and prod(shape):
        raise TypeError(f"a __cuda_array_interface__ with no address for {prod(shape)} elements")
    strides = interface.get("strides")
    memory = Memory(_span(shape, kind.itemsize, strides), array, pointer)
    memory.frame.flags.writeable = not read_only
    memory.writer = _writer(interface.get("stream"))
    return memory, np.ndarray(shape, kind, memory.frame, 0, strides)


def _writer(stream: Any) -> Any:
    """The stream that a `__cuda_array_interface__` names; None where there is nothing to wait for."""
    if stream is None:
        return None
    if not isinstance(stream, int) or isinstance(stream, bool) or stream <= 0:
        raise TypeError(f"a __cuda_array_interface__ with the stream {stream!r}; wanted None, 1, 2 or an address")
    return stream_of(stream)


def _span(shape: tuple[int, ...], itemsize: int, strides: Any) -> int:
    """Bytes from the first to the last element. Raises TypeError where one lies before the first."""
    if strides is None or prod(shape) == 0:
        return prod(shape) * itemsize
    if any(stride < 0 for stride in strides):
        raise TypeError("an array with negative strides")
    return itemsize + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
