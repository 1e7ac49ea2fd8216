"""Streams of a CUDA device, by whoever made them, and what waits for what in them.

Limits: stream 0 is CUDA's legacy default stream; `NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM` is not provided for. The
simulator has one stream, in which everything is done at once.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from rnnops.errors import DeviceError
from rnnops.kernels.cuda.simulated import SIMULATED

LEGACY_STREAM = 1  # the address by which libraries tell each other of stream 0


def stream_of(given: Any) -> Any:
    """A stream as numba has it.

    Args:
        given: None or 0 for the default stream, its address, or a stream of PyTorch, CuPy or numba.

    Raises DeviceError for anything else.
    """
    if given is None:
        return 0
    owner = given
    for name in ("cuda_stream", "ptr"):
        given = getattr(given, name, given)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return _external(given, owner) if given not in (0, LEGACY_STREAM) and not SIMULATED else 0
    if hasattr(given, "synchronize") and (SIMULATED or hasattr(given, "handle")):
        return 0 if SIMULATED else given
    wanted = "the address of a stream, or a stream of PyTorch, CuPy or numba"
    raise DeviceError(
        "not a stream", wanted=wanted, came=repr(given) if isinstance(given, int) else type(given).__name__
    )


def _external(address: int, owner: Any) -> Any:
    """numba's object for a stream of another library, which lives as long as it."""
    stream = cuda.external_stream(address)
    stream.owner = owner
    return stream


def wait_for(before: Any, stream: Any) -> None:
    """Let all that comes into a stream from now on wait for what is in another one; the host does not wait."""
    if SIMULATED or address_of(before) == address_of(stream):
        return
    event = cuda.event(timing=False)
    event.record(before)
    event.wait(stream)


def synchronize(stream: Any) -> None:
    """Let the host wait for all that is in a stream."""
    if stream:
        stream.synchronize()
    else:
        cuda.synchronize()


def cupy_stream(cupy: Any, stream: Any) -> Any:
    """A stream of numba's for CuPy: a context in which CuPy uses it."""
    address = address_of(stream)
    return cupy.cuda.ExternalStream(address) if address else cupy.cuda.Stream.null


def address_of(stream: Any) -> int:
    """The address of a stream of numba's, 0 for the default one."""
    handle = getattr(stream, "handle", stream)
    address = int(getattr(handle, "value", handle) or 0)
    return 0 if address == LEGACY_STREAM else address
