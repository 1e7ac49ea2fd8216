"""Arrays of other libraries on a CUDA device, and arrays for them: `__cuda_array_interface__`, version 3, and DLPack.

Both say in which stream an array was written, so that no side reads what is not there yet. Limits: PyTorch says
nothing of its streams in its interface, and reads nothing of ours; DLPack says it.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rnnops.kernels.cuda.dlpack import CPU, CUDA, CUDA_MANAGED, IS_COPIED, READ_ONLY, VERSION, Taken, capsule_of
from rnnops.kernels.cuda.memory import Memory, current_stream, in_stream
from rnnops.kernels.cuda.simulated import SIMULATED
from rnnops.kernels.cuda.streams import LEGACY_STREAM, address_of, stream_of


def borrowed(array: Any) -> tuple[Memory, Any]:
    """Another library's memory, and a twin of its array. Raises TypeError for what is no array of a CUDA device."""
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        array, interface = _through_dlpack(array)
    memory, twin = _borrowed(array, interface)
    memory.read_in(current_stream())
    return memory, twin


def capsule(array: Any, read_only: bool, stream: Any, options: dict[str, Any]) -> Any:
    """A capsule of DLPack, as the array API standard has `__dlpack__`.

    Args:
        array: of the device.
        stream: of the one who asks: its address, 1 or None for the legacy default stream, 2 for that of its thread, -1
            for no order.
        options: `max_version`, `dl_device` and `copy`.

    Raises BufferError for what cannot be.
    """
    if SIMULATED:
        raise BufferError("the simulator's memory is no device's; .to_host() copies it")
    max_version, device, copied = (options.get(name) for name in ("max_version", "dl_device", "copy"))
    versioned = max_version is not None and tuple(max_version) >= VERSION
    if device is not None and tuple(device) != array.__dlpack_device__():
        return _on_host(array, tuple(device), copied, max_version)
    if read_only and not versioned and not copied:
        raise BufferError("a read-only array; DLPack says so from version 1 on: max_version=(1, 0), or copy=True")
    if stream is not None and (not isinstance(stream, int) or stream < -1 or stream == 0):
        known = "None or 1 for the legacy default stream, 2 for that of a thread, -1 for no order, or an address"
        raise BufferError(f"not a stream of DLPack: {stream!r}; wanted {known}")
    asking = current_stream() if stream == -1 else stream_of(stream)
    if copied:
        with in_stream(asking):
            array = array.copy()
    elif stream != -1:
        array.memory.read_in(asking)
    flags = IS_COPIED if copied else READ_ONLY if read_only else 0
    return capsule_of(array, array.__dlpack_device__(), flags, versioned)


def _on_host(array: Any, device: tuple[int, ...], copied: bool | None, max_version: Any) -> Any:
    """A capsule with a copy on the host, for who cannot read elsewhere."""
    if device != (CPU, 0) or copied is False:
        wanted = array.__dlpack_device__() if copied is False else f"{array.__dlpack_device__()} or {(CPU, 0)}"
        raise BufferError(f"an array of DLPack's device {device} without a copy; wanted {wanted}")
    return array.to_host().__dlpack__(max_version=max_version, copy=None)


def _through_dlpack(array: Any) -> tuple[Any, Any]:
    """An array out of its capsule, once the stream that is current waits for what its library is doing with it."""
    device = getattr(array, "__dlpack_device__", tuple)()
    if tuple(device[:1]) not in ((CUDA,), (CUDA_MANAGED,)):
        wanted, came = "a NumPy array, or an array of a CUDA device", type(array).__name__
        raise TypeError(f"no array that goes to a CUDA device: wanted {wanted}, got {came}")
    stream = address_of(current_stream()) or LEGACY_STREAM  # which the other library lets wait
    try:
        given = array.__dlpack__(stream=stream, max_version=VERSION)
    except TypeError:  # it knows no versions
        given = array.__dlpack__(stream=stream)
    found = Taken(given)
    return found, found.interface()


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
