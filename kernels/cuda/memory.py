"""Memory of a CUDA device: lenders of memory, pieces of it and their streams, and exchange with other libraries.

**Lenders**: a framework that owns the device's memory may lend the memory that a call needs. Results then belong to the
framework without a copy, and a graph that it captures finds all memory in the framework's pool. A lender also tells
whether a CUDA graph is captured. During a capture the host may not wait, copy arrays to the device, read arrays of the
device, or load code. `refuse_in_graph` raises an error before such work can spoil the graph.

**Pieces of a CUDA device's memory, and the streams that use them**. A stream that reads a piece waits for the stream
that wrote it last. A stream that writes a piece waits for all streams that have used it. Streams wait for events, so
the host waits for nothing. Work that stays in one stream, such as a run, needs no events.

Limits: other libraries must order their own uses of our memory. For their memory, this file believes the stream that
they name.

**DLPack**: capsules with our arrays for other libraries, and arrays from their capsules. ctypes is enough for both.
The structures are those of DLPack's header (https://dmlc.github.io/dlpack/latest/c_api.html). Structures without a
version cannot tell that an array is read-only. Those of version 1 have a flag for it. A library that takes a capsule
renames it, and calls the deleter when it is done. If no library takes a capsule, its destructor releases the array.

**Arrays of other libraries on a CUDA device, and arrays for them**: `__cuda_array_interface__`, version 3, and DLPack.
Both name the stream in which an array was written, so that the reader can wait. Limits: PyTorch names no stream in its
`__cuda_array_interface__`, and ignores ours. It does both through DLPack.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char_p,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
    pythonapi,
)
from math import prod
from typing import Any, Protocol

import numpy as np

from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import (
    LEGACY_STREAM,
    address_of,
    cuda,
    cupy_stream,
    optional,
    prepared,
    stream_of,
    synchronize,
    wait_for,
)
from rnnops.kernels.cuda.simulated import SIMULATED

_LENDER = threading.local()
RUN_BEFORE = "Run it once before the capture, with arrays of the same shapes and dtypes, as PyTorch wants it too."


class Lender(Protocol):
    """Lends memory of the device.

    Args:
        captures: True while the current stream is captured as a graph.
    """

    captures: bool

    def take(self, nbytes: int) -> tuple[Any, int]:
        """New memory for the current stream: the object that owns it, and its address, a multiple of 256."""


def current_lender() -> Lender | None:
    """The lender of this thread's memory. None if memory comes from CuPy's pool or from the driver (`allocate`)."""
    return getattr(_LENDER, "lender", None)


@contextmanager
def lent_by(lender: Lender) -> Iterator[None]:
    """Let a lender give all memory that this thread needs for arrays of the device."""
    before = current_lender()
    _LENDER.lender = lender
    try:
        yield
    finally:
        _LENDER.lender = before


def is_captured() -> bool:
    """True while this thread's work is captured as a graph."""
    lender = current_lender()
    return lender is not None and lender.captures


def refuse_in_graph(problem: str, hint: str = RUN_BEFORE) -> None:
    """Raise DeviceError while a graph is captured, for work that a graph cannot hold."""
    if is_captured():
        raise DeviceError(f"a CUDA graph is captured, and {problem}", hint=hint)


if not SIMULATED:
    from numba.cuda.cudadrv import driver


def allocate(nbytes: int, stream: Any) -> tuple[Any, int]:
    """Memory of the device: the object that owns it, and its address. Raises DeviceError if too little is left.

    If CuPy is installed, its pool gives the memory, because the driver is slow. The pool gives memory that was used in
    one stream only to that stream again.
    """
    cupy = optional("cupy")
    try:
        if cupy is not None:
            with cupy_stream(cupy, stream):
                owner = cupy.cuda.alloc(max(nbytes, 1))
            return owner, int(owner.ptr)
        owner = cuda.current_context().memalloc(max(nbytes, 1))
        return owner, int(owner.device_pointer_value)
    except Exception as error:  # each library has a different class for this error
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
    """Copy a contiguous array of the device into a NumPy array, after all earlier work of the stream is done."""
    prepared(source).copy_to_host(array, stream=stream)
    synchronize(stream)


def clear(target: Any, stream: Any) -> None:
    """Fill a contiguous array of the device with bytes that are 0."""
    driver.device_memset(prepared(target), 0, target.nbytes, stream)


_STATE = threading.local()


def current_stream() -> Any:
    """The stream in which this thread reads and writes arrays; 0 for the default one."""
    return getattr(_STATE, "stream", 0)


@contextmanager
def in_stream(stream: Any, ordered: bool = True) -> Iterator[None]:
    """Let a stream do all that this thread does with arrays of the device.

    Args:
        ordered: True: pieces of memory make streams wait for each other. False: they do not. A run needs no waits,
            because its arrays were ordered before it. A stream that is recorded could not wait for other streams.
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
        nbytes: size of the piece in bytes.
        owner, pointer: another library's object and the address of its memory. If left out: new memory, from the
            lender if there is one.

    Attributes:
        writer: the stream that wrote the piece last. None if all streams may read it without a wait.
        users: address -> stream, for the streams that have used the piece since that write.
    """

    def __init__(self, nbytes: int, owner: Any = None, pointer: int = 0) -> None:
        self.nbytes = nbytes
        self.frame = np.zeros(nbytes, np.uint8)  # twins are views of it
        self.start: int = self.frame.__array_interface__["data"][0]
        self.owner, self.pointer = (owner, pointer) if owner is not None else _allocated(nbytes)
        self.host = _bytes_at(self.pointer, nbytes) if SIMULATED else None
        self.writer: Any = current_stream() if owner is None else None
        self.users: dict[int, Any] = {}

    def read_in(self, stream: Any) -> None:
        """Before a stream reads the piece: let it wait for the last writer."""
        address = address_of(stream)
        if address not in self.users and _is_ordered():
            if self.writer is not None:
                wait_for(self.writer, stream)
            self.users[address] = stream

    def write_in(self, stream: Any) -> None:
        """Before a stream writes the piece: let it wait for the last writer and for all streams that read it."""
        if not _is_ordered():
            return
        for other in (self.writer, *self.users.values()):
            if other is not None:
                wait_for(other, stream)
        self.writer, self.users = stream, {}

    def done(self) -> None:
        """The host has waited for the piece, so that no stream has to."""
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


CPU, CUDA, CUDA_MANAGED = 1, 2, 13  # DLDeviceType
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLDataTypeCode for each kind of NumPy's dtypes
KINDS = {code: kind for kind, code in CODES.items()}
READ_ONLY, IS_COPIED = 1, 2  # flags
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
VERSION = 1, 0


class Described(Structure):
    """`DLTensor`: address, dtype, shape and strides of an array."""

    _fields_ = (
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )  # fmt: skip


class Managed(Structure):
    """`DLManagedTensor`."""

    _fields_ = (("tensor", Described), ("context", c_void_p), ("deleter", c_void_p))


class ManagedVersioned(Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
        ("tensor", Described),
    )  # fmt: skip


DELETER, DESTRUCTOR = CFUNCTYPE(None, c_void_p), CFUNCTYPE(None, c_void_p)
# PYFUNCTYPE calls them with the interpreter's lock held. Without it Python 3.12 and newer crash.
_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
_is = PYFUNCTYPE(c_int32, c_void_p, c_char_p)(("PyCapsule_IsValid", pythonapi))
_inside = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_rename = PYFUNCTYPE(c_int32, c_void_p, c_char_p)(("PyCapsule_SetName", pythonapi))
_held: dict[int, tuple[Any, ...]] = {}  # address of a structure -> objects that other libraries keep alive


@DELETER
def _let_go(address: int, held: dict[int, tuple[Any, ...]] = _held) -> None:
    held.pop(address, None)


@DESTRUCTOR
def _destroyed(
    capsule: int, names: Any = (PLAIN, VERSIONED), is_one: Any = _is, inside: Any = _inside, let_go: Any = _let_go
) -> None:
    """Releases the array of a capsule that was never used."""
    for name in names:
        if is_one(capsule, name):
            let_go(inside(capsule, name))


for _callback in (_let_go, _destroyed):  # other libraries may call them after this module is gone, at process end
    pythonapi.Py_IncRef(py_object(_callback))


def capsule_of(array: Any, device: tuple[int, int], flags: int, versioned: bool) -> Any:
    """A capsule with an array. The array lives until the capsule, or the library that took it, releases it.

    Args:
        array: an object with `pointer`, `shape`, `strides` and `dtype`.
        device: DLPack's type and number of the device.
        flags: `READ_ONLY` or `IS_COPIED`, used only by the structure of version 1.
        versioned: True for the structure of version 1, False for the one without a version.
    """
    sizes, size = c_int64 * max(array.ndim, 1), array.dtype.itemsize
    shape, strides = sizes(*array.shape), sizes(*(stride // size for stride in array.strides))
    tensor = Described(
        array.pointer, *device, array.ndim, CODES[array.dtype.kind], 8 * size, 1, shape, strides, 0,
    )  # fmt: skip
    deleter = ctypes.cast(_let_go, c_void_p)
    made = ManagedVersioned(*VERSION, None, deleter, flags, tensor) if versioned else Managed(tensor, None, deleter)
    address, name = ctypes.addressof(made), VERSIONED if versioned else PLAIN
    _held[address] = made, shape, strides, array
    return _new(address, name, ctypes.cast(_destroyed, c_void_p))


class Taken:
    """The array of another library's capsule; it is released with this object.

    Attributes:
        pointer, shape, strides, dtype: those of the array. Strides are in bytes.
        device: DLPack's type and number of the device.
        read_only: True if the other library has set that flag.
    """

    def __init__(self, capsule: Any) -> None:
        name = next((name for name in (VERSIONED, PLAIN) if _is(id(capsule), name)), None)
        if name is None:
            raise BufferError("what __dlpack__ gave is not a capsule with an array, or was used already")
        address = _inside(id(capsule), name)
        kind = ManagedVersioned if name == VERSIONED else Managed
        managed: Any = kind.from_address(address)
        if name == VERSIONED and managed.major != VERSION[0]:
            raise BufferError(f"DLPack of version {managed.major}.{managed.minor}; wanted {VERSION[0]}")
        self._describe(managed.tensor)
        self.read_only = bool(name == VERSIONED and managed.flags & READ_ONLY)
        self._name = b"used_" + name  # a capsule does not keep its name alive
        _rename(id(capsule), self._name)
        if managed.deleter:
            weakref.finalize(self, ctypes.cast(managed.deleter, DELETER), address)

    def _describe(self, tensor: Any) -> None:
        kind, size = KINDS.get(tensor.code), tensor.bits // 8
        if kind is None or tensor.lanes != 1 or (kind == "b" and size != 1):
            raise BufferError(f"elements of DLPack's code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
        self.dtype = np.dtype(np.bool_ if kind == "b" else f"{kind}{size}")
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.strides = tuple(size * step for step in tensor.strides[: tensor.ndim]) if tensor.strides else None
        self.pointer = (tensor.data or 0) + tensor.byte_offset
        self.device = tensor.device_type, tensor.device_id

    def interface(self) -> dict[str, Any]:
        """The array as a dictionary of `__cuda_array_interface__`."""
        data = self.pointer, self.read_only
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "strides": self.strides, "stream": None}


def borrowed(array: Any) -> tuple[MemoryPiece, Any]:
    """Another library's memory, and a twin of its array. Raises TypeError if `array` is on no CUDA device."""
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        array, interface = _through_dlpack(array)
    memory, twin = _borrowed(array, interface)
    memory.read_in(current_stream())
    return memory, twin


def capsule(array: Any, read_only: bool, stream: Any, options: dict[str, Any]) -> Any:
    """A capsule of DLPack, with the arguments of `__dlpack__` in the array API standard.

    Args:
        array: an array of the device.
        stream: the stream in which the other library will read: an address, 1 or None for the legacy default stream, 2
            for the default stream of its thread. -1: no stream needs to wait.
        options: `max_version`, `dl_device` and `copy`.

    Raises BufferError for a request that cannot be met.
    """
    if SIMULATED:
        raise BufferError("the simulator's memory is not a device's; .to_host() copies it")
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
    """A capsule with a copy on the host. Raises BufferError for other devices, and if no copy is allowed."""
    if device != (CPU, 0) or copied is False:
        wanted = array.__dlpack_device__() if copied is False else f"{array.__dlpack_device__()} or {(CPU, 0)}"
        raise BufferError(f"an array of DLPack's device {device} without a copy; wanted {wanted}")
    return array.to_host().__dlpack__(max_version=max_version, copy=None)


def _through_dlpack(array: Any) -> tuple[Any, Any]:
    """An array from its capsule. Its library has made the current stream wait for the array."""
    device = getattr(array, "__dlpack_device__", tuple)()
    if tuple(device[:1]) not in ((CUDA,), (CUDA_MANAGED,)):
        wanted, came = "a NumPy array, or an array of a CUDA device", type(array).__name__
        raise TypeError(f"no array that goes to a CUDA device: wanted {wanted}, got {came}")
    stream = address_of(current_stream()) or LEGACY_STREAM  # the other library makes this stream wait
    try:
        given = array.__dlpack__(stream=stream, max_version=VERSION)
    except TypeError:  # it knows no versions
        given = array.__dlpack__(stream=stream)
    found = Taken(given)
    return found, found.interface()


def _borrowed(array: Any, interface: Any) -> tuple[MemoryPiece, Any]:
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
    memory = MemoryPiece(_span(shape, kind.itemsize, strides), array, pointer)
    memory.frame.flags.writeable = not read_only
    memory.writer = _writer(interface.get("stream"))
    return memory, np.ndarray(shape, kind, memory.frame, 0, strides)


def _writer(stream: Any) -> Any:
    """The stream that a `__cuda_array_interface__` names; None if readers need not wait."""
    if stream is None:
        return None
    if not isinstance(stream, int) or isinstance(stream, bool) or stream <= 0:
        raise TypeError(f"a __cuda_array_interface__ with the stream {stream!r}; wanted None, 1, 2 or an address")
    return stream_of(stream)


def _span(shape: tuple[int, ...], itemsize: int, strides: Any) -> int:
    """Bytes from the start of the first element to the end of the last. Raises TypeError for negative strides."""
    if strides is None or prod(shape) == 0:
        return prod(shape) * itemsize
    if any(stride < 0 for stride in strides):
        raise TypeError("an array with negative strides")
    return itemsize + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
