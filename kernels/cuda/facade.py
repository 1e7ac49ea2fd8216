"""How CUDA kernels are written, compiled, kept on disk and launched, and the streams that they are launched in.

**Two compilers**: kernels run by numba-cuda, or by the simulator that is part of numba. Only this file, `simulated.py`
(which this file uses), `memory.py` (which uses this file) and generated modules know the two.

Kernels use the module `cuda`, which they import from here. They must call it `cuda`, because the simulator replaces
the module of that name by its own. Functions of this file hide how the two differ:

- the simulator (`NUMBA_ENABLE_CUDASIM=1`, set before numba is first imported) runs one Python thread for each of
  CUDA's, and one block after another. Sizes are therefore small there (`choose`), and blocks never wait for each other;
- it knows no options of compilation (`kernel` leaves them out) and no compiler (`ptx`).

Machine code is stored in the cache folder, never next to the source of kernels in the installed package. This file
makes no streams but the one that it records graphs in: all others come from callers.

Limits: one device, the one that is current in this thread. numba writes the files of machine code, and they hold
pickles: the folder must be writable only by this user. Stream 0 is CUDA's legacy default stream;
`NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM` is not supported. The simulator has one stream and runs each launch at once.
"""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numba.extending
import numpy as np
from numba import cuda, types
from numba.core.caching import _CacheLocator, _SourceFileBackedLocatorMixin
from numba.core.compiler_lock import global_compiler_lock

from rnnops import util
from rnnops.errors import DeviceError
from rnnops.kernels.cpu.processor import cache_folder
from rnnops.kernels.cuda.simulated import SIMULATED as SIMULATED

KERNELS = Path(__file__).resolve().parent
util.wait_for(global_compiler_lock, outer=True)  # numba takes this lock first, and LLVM's lock inside it


class KernelsInCacheFolder(_SourceFileBackedLocatorMixin, _CacheLocator):  # type: ignore[misc]
    """Tells numba-cuda where the files of our kernels are stored, and which text they were compiled from."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._cache_path = os.path.join(cache_folder(), "machine_code", self.get_suitable_cache_subpath(file))

    def get_cache_path(self) -> str:
        return self._cache_path

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """A locator for our kernels. None for others, so that numba asks its other locators."""
        return cls(function, file) if Path(file).resolve().is_relative_to(KERNELS) else None


LEGACY_STREAM = 1  # libraries write this address if they mean stream 0


def stream_of(given: Any) -> Any:
    """numba's object for a stream, or 0 for the default stream.

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
    """numba's object for a stream of another library. It keeps the other library's object alive."""
    stream = cuda.external_stream(address)
    stream.owner = owner
    return stream


def wait_for(before: Any, stream: Any) -> None:
    """Let all later work of `stream` wait for the work that is now in `before`. The host does not wait."""
    if SIMULATED or address_of(before) == address_of(stream):
        return
    event = cuda.event(timing=False)
    event.record(before)
    event.wait(stream)


def synchronize(stream: Any) -> None:
    """Let the host wait until all work in a stream is done."""
    if stream:
        stream.synchronize()
    else:
        cuda.synchronize()


def cupy_stream(cupy: Any, stream: Any) -> Any:
    """CuPy's object for one of numba's streams. As a context it lets CuPy use that stream."""
    address = address_of(stream)
    return cupy.cuda.ExternalStream(address) if address else cupy.cuda.Stream.null


def address_of(stream: Any) -> int:
    """The address of one of numba's streams, 0 for the default stream."""
    handle = getattr(stream, "handle", stream)
    address = int(getattr(handle, "value", handle) or 0)
    return 0 if address == LEGACY_STREAM else address


def device_functions(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """The text of each function, decorated as a device function, for modules that define `device_function`."""
    return [f"@device_function\n{_text(function)}" for function in functions]


@cache
def _text(function: Callable[..., Any]) -> str:
    return inspect.getsource(function).rstrip()


if SIMULATED:
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    from rnnops.kernels.cuda.simulated import hasten_launches, share_arrays

    share_arrays()
    hasten_launches()
    intrinsic: Any = None  # functions in Python replace those in LLVM IR
else:  # the simulator has none of these modules
    from numba.cuda import dispatcher, extending
    from numba.cuda.cudadrv import driver

    intrinsic = extending.intrinsic
    overload = getattr(extending, "overload", None)  # None if numba-cuda is missing or too old
    # numba-cuda asks these where files of a kernel are stored, also for the copies that it makes of kernels.
    dispatcher.CUDACacheImpl._locator_classes = [KernelsInCacheFolder, *dispatcher.CUDACacheImpl._locator_classes]

SHARED_BYTES = 40 * 1024  # dynamic shared memory of a block; a kernel must be allowed more (`_allow_shared_bytes`)
CAPABILITY = 7, 0  # the least that kernels need: grids that synchronise, shared memory beyond 48 KiB
INSTALL = "Install rnnops with its extra 'cuda' on a machine with an NVIDIA driver, or set NUMBA_ENABLE_CUDASIM=1."
Choice = TypeVar("Choice")
Function = TypeVar("Function", bound=Callable[..., Any])
Kernel = Any
_RECORDING = threading.local()  # in the simulator: `calls`, launches that are listed instead of run
_CONFIGURING = threading.Lock()  # filters of warnings belong to the whole process


@dataclass(frozen=True)
class Card:
    """A CUDA device.

    Args:
        capability: compute capability, (major, minor).
        nbytes: size of its memory in bytes, 0 if unknown.
        multiprocessors: their count. At least as many blocks run at the same time.
        shared_bytes: the most bytes of shared memory that a block may have.
    """

    name: str
    capability: tuple[int, int]
    nbytes: int
    multiprocessors: int
    shared_bytes: int = SHARED_BYTES

    def __str__(self) -> str:
        memory = f", {self.nbytes / 2**30:.0f} GiB" if self.nbytes else ""
        return f"{self.name} (compute capability {self.capability[0]}.{self.capability[1]}{memory})"


def choose(device: Choice, simulator: Choice) -> Choice:
    """One of two values: sizes for a device, or small ones for the simulator."""
    return simulator if SIMULATED else device


def missing() -> str:
    """The requirement of CUDA kernels that is missing; empty if none is."""
    if SIMULATED:
        return ""
    if overload is None:
        return "no numba-cuda of version 0.30 or newer"
    unfit = _unfit_versions()
    if unfit:
        return unfit
    try:
        if not cuda.is_available():
            return "no CUDA driver, or no device that it can use"
        capability = cuda.get_current_device().compute_capability
    except Exception as error:  # numba-cuda, the driver and its loader raise different errors
        return f"the CUDA driver cannot be used: {error}"
    if tuple(capability) < CAPABILITY:
        return (
            f"a device of compute capability {capability[0]}.{capability[1]}, less than {CAPABILITY[0]}.{CAPABILITY[1]}"
        )
    return ""


@cache
def _unfit_versions() -> str:
    """The reason why the installed numba-cuda cannot compile with the installed NumPy; empty if it can.

    At its first compilation numba-cuda 0.30 loads names of NumPy. NumPy 2.5 no longer has them.
    """
    try:
        installed = f"numba-cuda {version('numba-cuda')} and NumPy {np.__version__}"
        import_module("numba.cuda.np.arrayobj")
    except PackageNotFoundError:
        return ""  # `missing` has looked at `overload`
    except Exception as error:  # an import of another package may raise anything
        return f"{installed}, which do not go together ({error}); pip install 'numpy<2.5' or a newer numba-cuda"
    return ""


def card(net: str | None = None) -> Card:
    """The device that kernels run on. Raises DeviceError if there is none; the error names `net`."""
    lacking = missing()
    if lacking:
        wanted = "a device that runs CUDA kernels"
        raise DeviceError("no CUDA device", net=net, wanted=wanted, came=lacking, hint=INSTALL)
    if SIMULATED:
        return Card("simulator of numba.cuda", CAPABILITY, 0, 1)
    device = cuda.get_current_device()
    nbytes = int(cuda.current_context().get_memory_info().total)
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    shared = int(device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
    return Card(name, tuple(device.compute_capability), nbytes, int(device.MULTIPROCESSOR_COUNT), shared)


def kernel(function: Callable[..., None], **options: Any) -> Kernel:
    """A kernel: `kernel(f)[blocks, threads](...)`.

    Args:
        options: for numba-cuda's `cuda.jit`. The simulator gets none.
    """
    return cuda.jit(function) if SIMULATED else cuda.jit(function, **options)


def compiled_as(choose: Callable[..., Any]) -> Callable[[Function], Function]:
    """Compile another function instead of the decorated one. `choose` returns it for numba's types, None if none fits.

    In the simulator, kernels call the decorated function itself. numba's code for processors then compiles the other
    one, so that tests can call what a device computes.
    """

    def register(function: Function) -> Function:
        if SIMULATED:
            numba.extending.overload(function, jit_options={"error_model": "numpy"}, strict=False)(choose)
        elif overload is not None:
            overload(function, strict=False)(choose)
        return function

    return register


if SIMULATED:

    def at(array: Any, offset: int) -> Any:
        """A pointer to an element of an array of one axis: indexing it counts from there."""
        return array[offset:]

else:

    @intrinsic
    def at(_context: Any, array: Any, offset: Any) -> Any:
        """A pointer to an element of an array of one axis: indexing it counts from there."""

        def address(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data = values[0]
            if isinstance(signature.args[0], types.Array):
                data = context.make_array(signature.args[0])(context, builder, data).data
            return builder.gep(data, [values[1]])

        return types.CPointer(array.dtype)(array, types.intp), address


def scan_kernel(*dtypes: str) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of `function(low, begin, end, steps, sizes, status, counters, *arrays)`. Its code is kept on disk.

    Args:
        dtypes: dtypes of the arrays, which have one axis. `ptx_of_scan` compiles for them without a device.
    """

    def make(function: Callable[..., None]) -> Kernel:
        made = kernel(function, cache=True)
        made.dtypes = dtypes
        return made

    return make


def ptx_of_scan(kernel: Kernel, capability: tuple[int, int]) -> str:
    """A `scan_kernel` as PTX."""
    return ptx(kernel.py_func, scan_signature(kernel.dtypes), capability)


def record(work: Callable[[Any], None]) -> Callable[[Any], None] | None:
    """Record the work that `work(stream)` queues, without running it. Returns a function that queues it in a stream.

    Returns None if CuPy is missing: the record is one of its CUDA graphs.
    """
    if SIMULATED:
        return _simulated_record(work)
    cupy = optional("cupy")
    if cupy is None:
        return None
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            work(cuda.external_stream(stream.ptr))
        finally:
            graph = stream.end_capture()
    return lambda given: graph.launch(cupy_stream(cupy, given))


def _simulated_record(work: Callable[[Any], None]) -> Callable[[Any], None]:
    calls: list[tuple[Any, ...]] = []
    _RECORDING.calls = calls
    try:
        work(0)
    finally:
        _RECORDING.calls = None

    def replay(_: Any) -> None:
        for call in calls:
            _run_simulated(*call)

    return replay


def launch(kernel: Kernel, blocks: int, threads: int, shared_bytes: int, stream: Any, *arguments: Any) -> None:
    """Put a kernel into a stream.

    Args:
        shared_bytes: bytes of dynamic shared memory for each block; arrays of fixed sizes are not counted.
        stream: a stream of the device, 0 for the default one.
        arguments: numbers, arrays of the device, and arrays of NumPy. The last are copied to the device and back.
    """
    if SIMULATED:
        call = (kernel, (blocks, threads, stream, shared_bytes), [*map(_simulated, arguments)])
        calls = getattr(_RECORDING, "calls", None)
        if calls is None:
            _run_simulated(*call)
        else:
            calls.append(call)
        return
    if shared_bytes > SHARED_BYTES:
        _allow_shared_bytes(kernel, shared_bytes)
    configured = _configured(kernel, blocks, threads, address_of(stream), shared_bytes)
    returning: list[tuple[Any, Any]] = []
    configured(*(_argument(one, stream, returning) for one in arguments))
    for source, array in returning:
        source.copy_to_host(array, stream=stream)
        synchronize(stream)


@lru_cache(maxsize=1024)
def _configured(kernel: Kernel, blocks: Any, threads: Any, stream: int, shared_bytes: int) -> Any:
    """A kernel with its grid, ready to be called. Users do not see numba-cuda's warning about small grids.

    Args:
        stream: the address of the stream.
    """
    external = cuda.external_stream(stream) if stream else 0
    with _CONFIGURING, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Grid size")  # it begins with a code for bold type
        return kernel[blocks, threads, external, shared_bytes]


def _run_simulated(kernel: Kernel, configuration: tuple[Any, ...], arguments: Sequence[Any]) -> None:
    with warnings.catch_warnings():  # `np.errstate` does not reach the simulator's threads
        warnings.simplefilter("ignore", RuntimeWarning)
        kernel[configuration](*arguments)


def _simulated(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(map(_simulated, argument))
    is_array = hasattr(argument, "on_simulated_device")
    return FakeCUDAArray(argument.on_simulated_device()) if is_array else argument


def _argument(argument: Any, stream: Any, returning: list[tuple[Any, Any]]) -> Any:
    """An argument as numba-cuda takes it. Arrays of NumPy are copied; writeable ones go into the list `returning`."""
    if isinstance(argument, tuple):
        return tuple(_argument(one, stream, returning) for one in argument)
    if isinstance(argument, np.ndarray):
        copied = cuda.to_device(argument, stream=stream)
        if argument.flags.writeable:
            returning.append((copied, argument))
        return copied
    return prepared(argument)


def prepared(array: Any) -> Any:
    """An array in the form that `launch` takes fastest, for arrays of many launches."""
    if SIMULATED or not hasattr(array, "pointer"):
        return array
    return _described(array.pointer, array.shape, array.dtype.str)


@lru_cache(maxsize=4096)
def _described(pointer: int, shape: tuple[int, ...], typestr: str) -> Any:
    """numba's array at an address. It does not own the memory; callers of launches do.

    These arrays are cached: to make one takes longer than a launch, and memory pools reuse addresses.
    """
    interface = {"shape": shape, "typestr": typestr, "data": (pointer, False), "strides": None, "version": 3}
    return cuda.from_cuda_array_interface(interface, sync=False)


def _allow_shared_bytes(kernel: Kernel, count: int) -> None:
    """Let a `scan_kernel` have more dynamic shared memory than CUDA gives by default."""
    if getattr(kernel, "allowed_bytes", 0) >= count:
        return
    found = kernel.compile(scan_signature(kernel.dtypes))._codelibrary.get_cufunc()
    attribute = driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.driver.cuKernelSetAttribute(attribute, count, found.handle, found.device.id)
    kernel.allowed_bytes = count


def scan_signature(dtypes: Sequence[str]) -> tuple[Any, ...]:
    """numba's types of the arguments of a `scan_kernel`."""
    numbers = array_type("int64")
    return (*(types.int64,) * 4, numbers, numbers, array_type("uint32"), *map(array_type, dtypes))


def current_device() -> int:
    """The number of the device that is current in this thread."""
    return int(cuda.get_current_device().id)


@cache
def optional(name: str) -> Any:
    """An optional package, None if it is missing. If it is installed but does not import: None and a warning."""
    try:
        if find_spec(name) is None:
            return None
    except ModuleNotFoundError:  # the package around it is missing as well
        return None
    try:
        return import_module(name)
    except Exception as error:  # the modules that it loads may raise anything
        warnings.warn(f"{name} is installed, but does not import: {type(error).__name__}: {error}", stacklevel=2)
        return None


def ptx(function: Callable[..., None], signature: Any, capability: tuple[int, int]) -> str:
    """A kernel as PTX for some compute capability; needs numba-cuda and its compiler library, but no device.

    Raises DeviceError in the simulator, which compiles nothing.
    """
    if SIMULATED:
        raise DeviceError("the simulator compiles nothing", hint="Leave NUMBA_ENABLE_CUDASIM unset.")
    with _pretended(capability):
        text, _ = cuda.compile(function, signature, cc=capability, device=False, abi="numba", output="ptx")
    return text.decode() if isinstance(text, bytes) else str(text)


def compiled_for() -> tuple[int, int]:
    """The compute capability that functions are being compiled for."""
    major, minor = dispatcher.get_current_device().compute_capability
    return int(major), int(minor)


@contextmanager
def _pretended(capability: tuple[int, int]) -> Iterator[None]:
    """If there is no device, let numba-cuda see one of this compute capability, and compile device functions for it."""
    asked = dispatcher.get_current_device
    if not cuda.is_available():
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


def array_type(dtype: str) -> Any:
    """numba's type of a contiguous array of one axis."""
    return types.Array(getattr(types, dtype), 1, "C")
