"""Memory of a CUDA device: who gives it, pieces of it, and the streams that use them.

**Lenders**: others who give the memory that work on a CUDA device takes, and say whether a CUDA graph is captured. A
framework that owns the device's memory lends what a call takes: results are then its own, without a copy, and a graph
that it captures finds all memory in its pool. While one is captured nothing may wait, be copied from the host or be
read there, or be loaded: what would do so is an error here, before it spoils the graph.

**Pieces of a CUDA device's memory, and the streams that use them**. A stream that reads a piece waits for the one that
has written it, and one that writes it for all that have used it. The host waits for nothing: an event in the one stream
is what the other waits for. Work that stays in one stream, as that of a run does, has no events.

Limits: what other libraries do with memory of ours, they order themselves; what they have is ordered as they say.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import cuda, optional, prepared
from rnnops.kernels.cuda.simulated import SIMULATED
from rnnops.kernels.cuda.streams import address_of, cupy_stream, synchronize, wait_for

_LENDER = threading.local()
RUN_BEFORE = "Run it once before the capture, with arrays of the same shapes and dtypes, as PyTorch wants it too."


class Lender(Protocol):
    """Who lends memory of the device.

    Args:
        captures: whether what is done in the stream that is current becomes a graph.
    """

    captures: bool

    def take(self, nbytes: int) -> tuple[Any, int]:
        """New memory: what owns it, and its address, a multiple of 256; for the stream that is current."""


def current_lender() -> Lender | None:
    """Who lends memory to this thread; None where it is the driver's, or a pool's of ours."""
    return getattr(_LENDER, "lender", None)


@contextmanager
def lent_by(lender: Lender) -> Iterator[None]:
    """Let all memory that this thread takes for arrays of the device come from a lender."""
    before = current_lender()
    _LENDER.lender = lender
    try:
        yield
    finally:
        _LENDER.lender = before


def is_captured() -> bool:
    """True if what this thread does becomes a graph."""
    lender = current_lender()
    return lender is not None and lender.captures


def refuse_in_graph(problem: str, hint: str = RUN_BEFORE) -> None:
    """Raise DeviceError where a graph is captured, which has no place for what is to be done."""
    if is_captured():
        raise DeviceError(f"a CUDA graph is captured, and {problem}", hint=hint)


if not SIMULATED:
    from numba.cuda.cudadrv import driver


def allocate(nbytes: int, stream: Any) -> tuple[Any, int]:
    """Memory of the device: what owns it, and its address. Raises DeviceError where there is not as much left.

    CuPy's pool gives it where CuPy is installed, as the driver takes long to; what was used in a stream is used again
    only in that stream.
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


_STATE = threading.local()


def current_stream() -> Any:
    """The stream that arrays of this thread are read and written in; 0 for the default one."""
    return getattr(_STATE, "stream", 0)


@contextmanager
def in_stream(stream: Any, ordered: bool = True) -> Iterator[None]:
    """Let all that this thread does with arrays of the device go into a stream.

    Args:
        ordered: False where streams need not wait for each other: in a run, whose arrays were looked at before it. A
            stream that is recorded could not wait for one that is not, and is soon gone.
    """
    before = current_stream(), _is_ordered()
    _STATE.stream, _STATE.ordered = stream, ordered
    try:
        yield
    finally:
        _STATE.stream, _STATE.ordered = before


def _is_ordered() -> bool:
    return getattr(_STATE, "ordered", True)


class MemoryPiece:
    """A piece of the device's memory.

    Args:
        nbytes: of it.
        owner, pointer: of memory that is somebody else's; new memory, of a lender where there is one, if left out.

    Attributes:
        writer: the stream in which it was written last; None where that is done.
        users: by their addresses, the streams that have used it since.
    """

    def __init__(self, nbytes: int, owner: Any = None, pointer: int = 0) -> None:
        self.nbytes = nbytes
        self.frame = np.zeros(nbytes, np.uint8)  # what twins are views of
        self.start: int = self.frame.__array_interface__["data"][0]
        self.owner, self.pointer = (owner, pointer) if owner is not None else _allocated(nbytes)
        self.host = _bytes_at(self.pointer, nbytes) if SIMULATED else None
        self.writer: Any = current_stream() if owner is None else None
        self.users: dict[int, Any] = {}

    def read_in(self, stream: Any) -> None:
        """Let what a stream does from now on see what is written here."""
        address = address_of(stream)
        if address not in self.users and _is_ordered():
            if self.writer is not None:
                wait_for(self.writer, stream)
            self.users[address] = stream

    def write_in(self, stream: Any) -> None:
        """Let what a stream writes from now on come after all that has been done with it."""
        if not _is_ordered():
            return
        for other in (self.writer, *self.users.values()):
            if other is not None:
                wait_for(other, stream)
        self.writer, self.users = stream, {}

    def done(self) -> None:
        """No stream has to wait: the host has."""
        self.writer, self.users = None, {}


def _allocated(nbytes: int) -> tuple[Any, int]:
    lender = current_lender()
    if lender is not None:
        return lender.take(nbytes)
    if not SIMULATED:
        return allocate(nbytes, current_stream())
    owner = np.full(max(nbytes, 1), 0xFF, np.uint8)  # NaN, where floats are read before they are written
    return owner, owner.ctypes.data


def _bytes_at(pointer: int, nbytes: int) -> Any:
    return np.frombuffer((ctypes.c_char * nbytes).from_address(pointer), np.uint8) if nbytes else np.empty(0, np.uint8)
