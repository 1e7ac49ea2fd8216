"""A CUDA driver that writes down what it is asked for, and CuPy beside it; memory of the device is the host's.

They stand in for numba-cuda and CuPy under the branches of the facade that the simulator does not take. Kernels are
noted and not run; `Blas` is a cuBLAS that computes, called as a C library is.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, c_double, c_float, c_int, c_size_t, c_void_p
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rnnops.compiler.targets import target
from rnnops.kernels.cuda import device_array, facade, gemm, memory

Log = list[tuple[Any, ...]]
FUNCTION = SimpleNamespace(handle="function", device=SimpleNamespace(id=0))


class FakeStream:
    """A stream, by its address."""

    def __init__(self, log: Log, address: int) -> None:
        self.handle, self.log = address, log

    def synchronize(self) -> None:
        self.log.append(("synchronize", self.handle))


class FakeArray:
    """numba's array of the device, at an address."""

    def __init__(self, log: Log, interface: dict[str, Any]) -> None:
        self.log, self.pointer = log, interface["data"][0]
        self.shape, self.dtype = interface["shape"], np.dtype(interface["typestr"])

    @property
    def host(self) -> Any:
        count = int(np.prod(self.shape)) * self.dtype.itemsize
        memory: Any = (ctypes.c_char * count).from_address(self.pointer)
        return np.frombuffer(memory, self.dtype).reshape(self.shape)

    def copy_to_device(self, array: Any, stream: Any = 0) -> None:
        self.log.append(("to device", _address(stream)))
        self.host[...] = array

    def copy_to_host(self, array: Any, stream: Any = 0) -> None:
        self.log.append(("to host", _address(stream)))
        array[...] = self.host


class FakeKernel:
    """A kernel that notes its launches, and warns of small grids as numba-cuda does."""

    def __init__(self, log: Log, dtypes: tuple[str, ...] = ()) -> None:
        self.log, self.dtypes = log, dtypes
        self._codelibrary = SimpleNamespace(get_cufunc=lambda: FUNCTION)

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        blocks, threads, stream, shared_bytes = configuration
        self.log.append(("configure", blocks, threads))
        warnings.warn(f"Grid size {blocks} will likely result in GPU under-utilization.", stacklevel=1)
        return lambda *given: self.log.append(("launch", blocks, threads, _address(stream), shared_bytes, given))

    def compile(self, signature: Any) -> FakeKernel:
        self.log.append(("compile", len(signature)))
        return self


class FakeCuda:
    """`numba.cuda`."""

    def __init__(self, log: Log) -> None:
        self.log, self.kept, self.free = log, [], 1 << 30
        self.capability, self.name, self.broken = (9, 0), b"a card", ""

    def external_stream(self, address: int) -> FakeStream:
        return FakeStream(self.log, address)

    def event(self, timing: bool) -> Any:
        def noted(what: str) -> Callable[[Any], None]:
            return lambda stream: self.log.append((what, _address(stream)))

        return SimpleNamespace(record=noted("record"), wait=noted("wait"))

    def from_cuda_array_interface(self, interface: dict[str, Any], owner: Any = None, sync: bool = True) -> FakeArray:
        assert interface.get("stream") is None  # numba would make it the stream of all copies
        return FakeArray(self.log, interface)

    def to_device(self, array: Any, stream: Any = 0) -> FakeArray:
        copy = np.array(array)
        self.kept.append(copy)
        self.log.append(("to device", _address(stream)))
        data = copy.ctypes.data, False
        return FakeArray(self.log, {"shape": copy.shape, "typestr": copy.dtype.str, "data": data})

    def synchronize(self) -> None:
        self.log.append(("synchronize", 0))

    def jit(self, function: Any = None, **options: Any) -> FakeKernel:
        return FakeKernel(self.log)

    def is_available(self) -> bool:
        return bool(self.name)

    def get_current_device(self) -> Any:
        if self.broken:
            raise RuntimeError(self.broken)
        sizes = {"MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "MULTIPROCESSOR_COUNT": 132}
        return SimpleNamespace(id=0, compute_capability=self.capability, name=self.name, **sizes)

    def compile(self, function: Any, signature: Any, **options: Any) -> Any:
        self.log.append(("compile for", options["cc"], facade.compiled_for()))
        return f"PTX of {function.__name__}".encode(), None

    def current_context(self) -> Any:
        return SimpleNamespace(memalloc=self._memalloc, get_memory_info=lambda: SimpleNamespace(free=7, total=9))

    def _memalloc(self, nbytes: int) -> Any:
        self.log.append(("memalloc", nbytes))
        if nbytes > self.free:
            raise RuntimeError("[CUresult.CUDA_ERROR_OUT_OF_MEMORY] cuMemAlloc")
        memory = np.empty(nbytes, np.uint8)
        return SimpleNamespace(device_pointer_value=memory.ctypes.data, memory=memory)


class FakeDriver:
    """`numba.cuda.cudadrv.driver`."""

    binding = SimpleNamespace(
        CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared bytes")
    )

    def __init__(self, log: Log) -> None:
        self.driver = SimpleNamespace(cuKernelSetAttribute=lambda *given: log.append(("attribute", *given)))
        self.log = log

    def device_memset(self, array: FakeArray, value: int, nbytes: int, stream: Any) -> None:
        self.log.append(("memset", nbytes, _address(stream)))
        array.host.reshape(-1).view(np.uint8)[...] = value


class FakeCupy:
    """CuPy: a pool, streams, graphs."""

    def __init__(self, log: Log) -> None:
        self.log, self.current, self.refuses = log, [0], ""
        self.cuda = SimpleNamespace(
            Stream=self._stream, ExternalStream=lambda address: CupyStream(self, address), alloc=self._alloc
        )
        self._stream.__func__.null = CupyStream(self, 0)  # type: ignore[attr-defined]

    def _stream(self, non_blocking: bool) -> CupyStream:
        return CupyStream(self, 99)

    def _alloc(self, nbytes: int) -> Any:
        memory = np.empty(nbytes, np.uint8)
        self.log.append(("alloc", nbytes, self.current[-1]))
        return SimpleNamespace(ptr=memory.ctypes.data, memory=memory)


class CupyStream:
    """A stream of CuPy's, within which it is current."""

    def __init__(self, cupy: FakeCupy, address: int) -> None:
        self.cupy, self.ptr = cupy, address

    def __enter__(self) -> CupyStream:
        self.cupy.current.append(self.ptr)
        return self

    def __exit__(self, *_: object) -> None:
        self.cupy.current.pop()

    def begin_capture(self) -> None:
        self.cupy.log.append(("begin capture", self.ptr))

    def end_capture(self) -> Any:
        self.cupy.log.append(("end capture", self.ptr))
        return SimpleNamespace(launch=lambda stream: self.cupy.log.append(("graph", stream.ptr)))


class Blas:
    """libcublas, for arrays of the host: column by column, as cuBLAS counts; functions of C that Python is behind."""

    def __init__(self, log: Log, starts: bool = True) -> None:
        create = CFUNCTYPE(c_int, POINTER(c_void_p))
        self.log, self.starts = log, starts
        self.cublasCreate_v2 = create(self._create)
        self.cublasGetProperty = CFUNCTYPE(c_int, c_int, POINTER(c_int))(self._property)
        self.cublasSetStream_v2 = CFUNCTYPE(c_int, c_void_p, c_void_p)(self._set_stream)
        self.cublasSetWorkspace_v2 = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)(self._set_workspace)
        self.cublasSgemm_v2 = self._gemm(c_float, np.float32)
        self.cublasDgemm_v2 = self._gemm(c_double, np.float64)
        self.cublasGemmEx = self._gemm_of_floats()

    def _create(self, handle: Any) -> int:
        self.log.append(("create",))
        handle[0] = 5
        return 0 if self.starts else 1

    def _property(self, which: int, value: Any) -> int:
        value[0] = (12, 9)[which]
        return 0

    def _set_stream(self, handle: int, stream: int | None) -> int:
        self.log.append(("set stream", handle, stream or 0))
        return 0

    def _set_workspace(self, handle: int, address: int, nbytes: int) -> int:
        self.log.append(("set workspace", handle, address, nbytes))
        return 0

    def _gemm(self, number: Any, dtype: Any) -> Any:
        def product(
            handle: int, of_a: int, of_b: int, m: int, n: int, k: int, alpha: Any, a: int, lda: int, b: int, ldb: int,
            beta: Any, c: int, ldc: int,
        ) -> int:  # fmt: skip
            self.log.append(("gemm", m, n, k))
            left = _columns(a, (k, m) if of_a else (m, k), lda, dtype)
            right = _columns(b, (n, k) if of_b else (k, n), ldb, dtype)
            into = _columns(c, (m, n), ldc, dtype)
            found = alpha[0] * ((left.T if of_a else left) @ (right.T if of_b else right))
            into[...] = found + (beta[0] * into if beta[0] else 0)
            return 0

        matrix, scalar = (c_void_p, c_int), POINTER(number)
        return CFUNCTYPE(c_int, c_void_p, *(c_int,) * 5, scalar, *matrix, *matrix, scalar, *matrix)(product)

    def _gemm_of_floats(self) -> Any:
        """`cublasGemmEx` of float32, which says how it was asked to compute, and rounds nothing."""
        product, single = self._gemm(c_float, np.float32), 0

        def converted(*given: Any) -> int:
            operands, (a, a_kind, lda, b, b_kind, ldb), beta = given[:7], given[7:13], given[13]
            c, c_kind, ldc, computation, algorithm = given[14:]
            assert (a_kind, b_kind, c_kind, algorithm) == (single, single, single, -1)
            self.log.append(("computation", computation))
            return int(product(*operands, a, lda, b, ldb, beta, c, ldc))

        matrix, scalar = (c_void_p, c_int, c_int), POINTER(c_float)
        return CFUNCTYPE(c_int, c_void_p, *(c_int,) * 5, scalar, *matrix, *matrix, scalar, *matrix, c_int, c_int)(
            converted
        )


def _columns(address: int, shape: tuple[int, int], apart: int, dtype: Any) -> Any:
    """A matrix column by column, in memory of the host."""
    assert apart >= max(shape[0], 1), "the leading dimension of a matrix is at least its rows"
    size = np.dtype(dtype).itemsize
    memory: Any = (ctypes.c_char * ((shape[1] - 1) * apart * size + shape[0] * size)).from_address(address)
    return np.ndarray(shape, dtype, memory, 0, (size, apart * size))


def _address(stream: Any) -> int:
    return int(getattr(stream, "handle", stream))


class Fakes:
    """All that is asked for, in order."""

    def __init__(self) -> None:
        self.log: Log = []
        self.cuda, self.cupy = FakeCuda(self.log), FakeCupy(self.log)

    def overload(self, function: Any, **options: Any) -> Callable[[Any], None]:
        """`numba.cuda.extending.overload`."""
        return lambda choose: self.log.append(("overload", function.__name__, options))

    def said(self, *what: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.log if entry[0] in what]


@contextmanager
def fake_device(cupy: bool = True) -> Iterator[Fakes]:
    """A driver, with or without CuPy, and no simulator."""
    made = Fakes()
    packages = {"cupy": made.cupy} if cupy else {}
    with pytest.MonkeyPatch.context() as patch:
        for module in (facade, memory, device_array, gemm):
            patch.setattr(module, "SIMULATED", False)
        for module in (facade, memory, gemm):
            patch.setattr(module, "optional", packages.get)
        for module in (facade, memory):
            patch.setattr(module, "cuda", made.cuda)
        for module in (facade, memory):
            patch.setattr(module, "driver", FakeDriver(made.log), raising=False)
        patch.setattr(facade, "overload", made.overload, raising=False)
        dispatcher = SimpleNamespace(get_current_device=made.cuda.get_current_device)
        patch.setattr(facade, "dispatcher", dispatcher, raising=False)
        forget()
        yield made
    forget()


def forget() -> None:
    """What a process remembers of its device, and kernels that were made for it."""
    kernels = device_array.moving_kernel, device_array.adding_kernel, device_array.writing_kernel, gemm.product_kernel
    for remembered in (facade._configured, facade._described, gemm._found, target._load, *kernels):
        remembered.cache_clear()
