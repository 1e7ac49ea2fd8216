"""Products by cuBLAS, where it is installed; float32 stays float32, unless a product says what to round to.

Operands that are rounded are given as they are, with a kind of computation that lets the library round them on their
way into tensor cores, to that format or to a finer one.

The library is called by ctypes, in whatever stream there is. CuPy's binding would not do: it refuses to work while a
CUDA graph is recorded, and its module loads only where something else has loaded cuBLAS before.

cuBLAS counts elements column by column: what is `[rows, columns]` row by row is its `[columns, rows]`, so that
`C = A @ B` is asked for as `C^T = B^T @ A^T`.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, byref, c_double, c_float, c_int, c_size_t, c_void_p
from functools import cache
from typing import Any

from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import SIMULATED, current_device, optional
from rnnops.kernels.cuda.memory import current_lender, is_captured
from rnnops.kernels.cuda.streams import address_of

NORMAL, TRANSPOSED = 0, 1  # cublasOperation_t
MAJOR, MINOR = 0, 1  # libraryPropertyType
MOST = 2**31 - 1  # of a size or a stride
WORKSPACE = 32 << 20  # bytes, which NVIDIA recommends from compute capability 9.0 on; less would do before
FINDER = "cuda.pathfinder"  # NVIDIA's own: wheels, conda, CUDA_HOME, the system; comes with numba-cuda
ROUNDED, SINGLE, ANY_ALGORITHM = "cublasGemmEx", 0, -1  # CUDA_R_32F of cudaDataType, CUBLAS_GEMM_DEFAULT
ROUNDINGS = {"float16": 74, "bfloat16": 75, "tfloat32": 77}  # CUBLAS_COMPUTE_32F_FAST_16F, ..._16BF, ..._TF32
PRODUCTS = {"float32": ("cublasSgemm_v2", c_float), "float64": ("cublasDgemm_v2", c_double)}


class Cublas:
    """cuBLAS of one process. Raises what its finder and loader raise, and DeviceError where it does not start."""

    def __init__(self) -> None:
        finder = optional(FINDER)
        if finder is None:
            raise DeviceError(f"the package {FINDER} is not installed", hint="It comes with numba-cuda.")
        self.path = str(finder.load_nvidia_dynamic_lib("cublas").abs_path)
        self._library = ctypes.CDLL(self.path)
        self._products = {dtype: (name, self._product(name, kind), kind) for dtype, (name, kind) in PRODUCTS.items()}
        self._products |= {name: (ROUNDED, self._rounded(kind), c_float) for name, kind in ROUNDINGS.items()}
        self._library.cublasSetStream_v2.argtypes = [c_void_p, c_void_p]
        self._library.cublasSetWorkspace_v2.argtypes = [c_void_p, c_void_p, c_size_t]
        self._lock = threading.Lock()  # a handle has one stream at a time
        self._handles: dict[int, c_void_p] = {}
        self._handle()  # a library that is too new for the driver is found out now, not in the midst of a run

    def __str__(self) -> str:
        return f"cuBLAS {'.'.join(str(self._property(which)) for which in (MAJOR, MINOR))}"

    def multiply(
        self, a: Any, b: Any, c: Any, rows: int, columns: int, inner: int, beta: int, stream: Any, rounding: str = ""
    ) -> None:
        """C [rows, columns] becomes `A @ B + beta * C`.

        Args:
            a, b, c: as `gemm.Matrix`; rows of C are contiguous.
            stream: of the device, 0 for the default one.
            rounding: what operands of float32 may be rounded to, one of `ROUNDINGS`; empty for nothing.
        """
        name, product, number = self._products[rounding or str(c.array.dtype)]
        (of_b, b_stride), (of_a, a_stride) = _operand(b, columns, inner), _operand(a, inner, rows)
        with self._lock:
            handle = self._handle()
            _check(self._library.cublasSetStream_v2(handle, address_of(stream)), "cublasSetStream")
            _lent = self._workspace(handle)  # until the product is in the stream
            status = product(
                handle, of_b, of_a, columns, rows, inner, byref(number(1)), (_start(b), b_stride),
                (_start(a), a_stride), byref(number(beta)), (_start(c), max(c.row, columns)),
            )  # fmt: skip
        _check(status, name)

    def _workspace(self, handle: c_void_p) -> Any:
        """Memory that a graph lends to a product, which would otherwise allocate its own; the stream sets it back."""
        lender = current_lender()
        if lender is None or not is_captured():
            return None
        owner, pointer = lender.take(WORKSPACE)
        _check(self._library.cublasSetWorkspace_v2(handle, pointer, WORKSPACE), "cublasSetWorkspace")
        return owner

    def _product(self, name: str, number: Any) -> Any:
        """A product of matrices that are places and strides."""
        function, matrix = getattr(self._library, name), (c_void_p, c_int)
        function.argtypes = [c_void_p, *(c_int,) * 5, POINTER(number), *matrix, *matrix, POINTER(number), *matrix]
        return lambda *given: function(*given[:7], *given[7], *given[8], given[9], *given[10])

    def _rounded(self, computation: int) -> Any:
        """A product of float32 that lets the library round operands."""
        function, matrix, scale = getattr(self._library, ROUNDED), (c_void_p, c_int, c_int), POINTER(c_float)
        function.argtypes = [c_void_p, *(c_int,) * 5, scale, *matrix, *matrix, scale, *matrix, c_int, c_int]

        def product(*given: Any) -> Any:
            b, a, c = ((start, SINGLE, stride) for start, stride in (given[7], given[8], given[10]))
            return function(*given[:7], *b, *a, given[9], *c, computation, ANY_ALGORITHM)

        return product

    def _handle(self) -> c_void_p:
        """Of the device that is current; in its default mode, in which products of float32 take no TF32."""
        device = current_device()
        if device not in self._handles:
            made = c_void_p()
            _check(self._library.cublasCreate_v2(byref(made)), f"cublasCreate of {self}")
            self._handles[device] = made
        return self._handles[device]

    def _property(self, which: int) -> int:
        found = c_int()
        self._library.cublasGetProperty(which, byref(found))
        return found.value


def cublas() -> Cublas | None:
    """cuBLAS, None where there is none; the answer stays the same in a process."""
    return _found()[0]


def products() -> str:
    """The library for products of whole tiles, and the reason if it is not cuBLAS."""
    library, reason = _found()
    return str(library) if library is not None else f"kernels of rnnops ({reason})"


@cache
def _found() -> tuple[Cublas | None, str]:
    if SIMULATED:
        return None, "the simulator has no cuBLAS"
    try:
        return Cublas(), ""
    except Exception as error:  # of the finder, the loader, the driver
        return None, f"no cuBLAS: {type(error).__name__}: {' '.join(str(error).split())}"


def fits(matrix: Any, rows: int, columns: int) -> bool:
    """True if a matrix has neighbouring numbers along one axis, and further apart along the other than that is long."""
    apart, inside, along = (matrix.row, columns, rows) if matrix.column == 1 else (matrix.column, rows, columns)
    return 1 in (matrix.row, matrix.column) and (inside <= apart <= MOST or along == 1) and max(rows, columns) <= MOST


def _operand(matrix: Any, columns: int, rows: int) -> tuple[int, int]:
    """How cuBLAS sees `[rows, columns]`, and from where to where its columns go."""
    if matrix.column == 1:
        return NORMAL, max(matrix.row, columns, 1)
    return TRANSPOSED, max(matrix.column, rows, 1)


def _start(matrix: Any) -> int:
    return int(matrix.array.pointer + matrix.start * matrix.array.itemsize)


def _check(status: int, what: str) -> None:
    if status != 0:
        raise DeviceError(f"{what} failed", came=f"status {status} of cublasStatus_t")
