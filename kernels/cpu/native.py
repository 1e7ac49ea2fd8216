"""LLVM IR as machine code for this processor, by way of an object on disk; and the runtime that kernels call.

The object always runs, whether it was just compiled or read from disk. So both give the same bits. An engine holds the
machine code, and lives as long as the function that Python holds. An object is compiled only once on a machine.

The runtime has the functions that drivers call by name, and those that start drivers. It is two objects: products of a
dtype, and threads. Their keys on disk contain the revision of the kernels' sources. Their texts are written only if an
object is missing.

**Packed matrices**: B [K, N] as panels `[panel][K][panel width]`, in the order in which products read them. Panels are
3 vectors wide. The last one or two are 2 vectors wide if N needs that (7 vectors: 3, 2, 2), and B of a single vector is
one narrow panel. So only the last vector can be partial. It is padded with zeros. A packed matrix is a 1-D array of
K * N numbers, with N rounded up to whole vectors. The panel that starts at column c starts at number K * c.

Products for callers in Python (`Products`) take NumPy arrays, check them, and hand them to `gemm.py`. Generated drivers
in plain Python have stand-ins of the runtime. A packed matrix is then the matrix itself, row by row, in memory that may
be larger: as numbers, as the upper halves of numbers rounded to bfloat16, or as whole numbers of a byte each.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rnnops import util
from rnnops.errors import DeviceError
from rnnops.kernels.cpu.processor import (
    BYTES,
    INT8,
    NUMBERS,
    PAIRS,
    QUADS,
    REVISION,
    SINGLES,
    WRITE,
    WRITE_PRODUCTS,
    demand,
    has_pairs,
    has_quads,
    host,
    key_of,
    lanes,
    llvm,
    load_object,
    room_to_compile,
    room_to_load,
    save_object,
    vector_width,
)
from rnnops.kernels.cpu.threads import CALLED, list_rows as list_numbered_rows, threads_text
from rnnops.kernels.cpu.words import only_compiled
from rnnops.util import LOADING, LazyModule, wait_for

# Levels of LLVM's optimisation. Generated code, straight arithmetic in loops, is as fast at 1 as at 3, and compiles in
# two thirds of the time. Products of a single row gain a tenth at 3.
LEVEL, PRODUCTS_LEVEL = 1, 3
util.wait_for(llvm.ffi.lib._lock)


@dataclass(frozen=True, eq=False)
class NativeFunction:
    """Machine code that is started by its address.

    Args:
        engine: holds the code.
        name: of the function in LLVM.
        write: makes the text of its LLVM module.
    """

    address: int
    engine: Any
    name: str = ""
    write: Callable[[], str] | None = None


def native_function(text: str, name: str, write: Callable[[], str] | None = None) -> NativeFunction:
    """A function of an LLVM module, compiled or from the disk.

    Args:
        text, write: as for `object_of`.
        name: of the function in the module. No other module of this process may have a function of this name.
    """
    engine = engine_of(object_of(text, write))
    return NativeFunction(address_of(engine, name), engine, name, write or (lambda: text))


def address_of(engine: Any, name: str) -> int:
    """The address of a function. Raises RuntimeError if the engine's code has no function of this name."""
    address = int(engine.get_function_address(name))
    if address == 0:
        raise RuntimeError(f"compiled code lacks the function {name}: a file of the cache folder has other content")
    return address


def engine_of(code: bytes) -> Any:
    """An engine that holds an object, and has the addresses of its functions."""
    demand(room_to_load(len(code)), "load compiled kernels")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def object_of(text: str, write: Callable[[], str] | None = None, level: int = LEVEL, room: int = WRITE) -> bytes:
    """The object of an LLVM module: from the disk if it is there.

    Args:
        text: the text of the module. With `write`, `text` is only the cache key. It must name everything that the
            module depends on.
        write: writes the module's text, which takes long. It is called only if the cache has no object.
        level: of LLVM's optimisation, from 0 to 3.
        room: the least bytes that are needed to write the text and to compile it.
    """
    key = key_of(text, str(level), *_target())
    code = load_object(key)
    if code is None:
        demand(room, "write and compile kernels")
        code = compiled(text if write is None else write(), level)
        save_object(key, code)
    return code


def compiled(text: str, level: int = LEVEL) -> bytes:
    """The object of an LLVM module, compiled for this processor."""
    demand(room_to_compile([text]), "compile kernels")
    machine = _machine(level)
    return bytes(machine.emit_object(_optimised(text, machine, level)))


def linked(texts: Iterable[tuple[str, int]], exported: Collection[str]) -> bytes:
    """One object of several LLVM modules, for programs that link it at any address.

    Args:
        texts: of modules, each with its level of optimisation.
        exported: functions that are visible from outside. Of the others, only those that they need stay.
    """
    texts = list(texts)
    demand(room_to_compile([text for text, _ in texts]), "compile kernels")
    machine = _machine(PRODUCTS_LEVEL, reloc="pic", jit=False)
    first, *others = (_optimised(text, machine, level) for text, level in texts)
    for other in others:
        first.link_in(other)
    for function in first.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    clean = llvm.create_new_module_pass_manager()
    clean.add_global_dead_code_eliminate_pass()
    clean.run(first, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(first))


def processor() -> tuple[str, str]:
    """LLVM's triple and name of this processor."""
    return _target()[:2]


def assembly(text: str, level: int = LEVEL) -> str:
    """The assembly of an LLVM module for this processor, as text for people."""
    machine = _machine(level)
    return str(machine.emit_assembly(_optimised(text, machine, level)))


def _optimised(text: str, machine: Any, level: int) -> Any:
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


@cache
def _target() -> tuple[str, str, str, str]:
    """The inputs of code generation other than the text."""
    demand(room_to_load(0), "ask LLVM for the processor")
    version = ".".join(map(str, llvm.llvm_version_info))
    return llvm.get_process_triple(), host().name, host().text, version


def _machine(level: int = LEVEL, reloc: str = "default", jit: bool = True) -> Any:
    """A new target machine. Each engine needs one of its own, and disposes of it."""
    _initialize()
    triple, processor, features, _ = _target()
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=processor, features=features, opt=level, reloc=reloc, codemodel="jitdefault" if jit else "default", jit=jit
    )


@cache
def _initialize() -> None:
    llvm.set_option("", "-enable-mem-access-versioning=false")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


PRODUCTS = ("gemm_packed", "gemm_tn", "pack_into", "pack_transposed_into")
UNPACKED = ("gemm_nn", "gemm_nt")  # products of unpacked operands, which no plan rounds
ROUNDED = {f"{name}_bfloat16": name for name in PRODUCTS}  # name that drivers call -> name in its library; as below
BY_INT8 = {f"{name}_int8": name for name in PRODUCTS if name != "gemm_tn"}  # gradients are of floats
OF_BYTES = {f"{name}_{BYTES}": name for name in PRODUCTS if name != "gemm_tn"}  # for weights that are known
NAMES = {**ROUNDED, **BY_INT8, **OF_BYTES}
gemm = LazyModule("rnnops.kernels.cpu.gemm")
_libraries: dict[str, Library] = {}  # they stay for good: threads run their code, and LLVM knows their addresses
_MAKING = threading.RLock()  # if two threads made one library, the code of one would be freed while it runs
wait_for(_MAKING, outer=True)


@dataclass(frozen=True, eq=False)
class Library:
    """Compiled functions that stay for good.

    Args:
        symbols: function -> its name in LLVM, which generated code may declare.
        engine: holds the code.
    """

    symbols: Mapping[str, str]
    engine: Any

    def address(self, function: str) -> int:
        """The address of a function."""
        return address_of(self.engine, self.symbols[function])

    def callable(self, function: str, numbers: int, result: Any = None) -> Callable[..., Any]:
        """A function of whole numbers, to call from Python. It runs without the interpreter's lock."""
        made: Callable[..., Any] = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * numbers)(self.address(function))
        return made

    def method(self, function: str, holder: Any) -> Callable[[Any], Any]:
        """A function of two objects as a method of the first. A call takes a tenth of the time of one by `callable`."""
        address = self.address(function)
        definition = _definitions.setdefault(address, _Definition(b"method", address, ONE_ARGUMENT))
        made: Callable[[Any], Any] = _new_method(definition, holder, None)
        return made


class _Definition(ctypes.Structure):
    """The description of a method: PyMethodDef of Python's C interface."""

    _fields_: ClassVar[Any] = [
        ("name", ctypes.c_char_p), ("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("text", ctypes.c_char_p)
    ]  # fmt: skip


ONE_ARGUMENT = 8  # METH_O
_new_method = ctypes.pythonapi.PyCFunction_NewEx
_new_method.restype = ctypes.py_object
_new_method.argtypes = [ctypes.POINTER(_Definition), ctypes.py_object, ctypes.py_object]
_definitions: dict[int, _Definition] = {}  # by the address of the function; methods read them for good


def runtime(names: Iterable[str], dtype: str, width: int | None) -> dict[str, str]:
    """Function that drivers call -> its name in LLVM, under which it is registered from now on.

    Args:
        names: of the functions.
        dtype: of products.
        width: of vectors in bits; the host's if None.
    """
    libraries = {name: _library_of(name, dtype, vector_width(width)) for name in names}
    return {name: library.symbols[NAMES.get(name, name)] for name, library in libraries.items()}


def _library_of(name: str, dtype: str, width: int) -> Library:
    """The library with the function that drivers call by a name."""
    if name in ROUNDED:
        return rounded_products(way_of(width), width)
    if name in BY_INT8:
        return int8_products(width)
    if name in OF_BYTES:
        if not has_quads(width):  # LLVM would end the process
            raise DeviceError("products of bytes need a processor with VNNI", came=f"vectors of {width} bits")
        return rounded_products(QUADS, width)
    return products(dtype, width) if name in (*PRODUCTS, *UNPACKED) else threads()


def way_of(width: int) -> str:
    """The way to multiply rounded operands: as pairs if the processor can do so, else as single numbers."""
    return PAIRS if has_pairs(width) else SINGLES


def products(dtype: str, width: int) -> Library:
    """Products and packing of one dtype with vectors of one width."""
    name = f"products_{dtype}_{width}"
    return _library(name, (*PRODUCTS, *UNPACKED), lambda symbols: gemm.products_text(symbols, dtype, width))


def rounded_products(way: str, width: int) -> Library:
    """Products and packing of operands that are rounded to bfloat16 (pairs or single numbers), or are bytes."""
    name, functions = f"products_{way}_{width}", OF_BYTES.values() if way == QUADS else PRODUCTS
    return _library(name, functions, lambda symbols: gemm.rounded_products_text(symbols, way, width))


def int8_products(width: int) -> Library:
    """Products of float32 rows with whole numbers of a byte each, and packing of these."""
    name = f"products_int8_{width}"
    return _library(name, BY_INT8.values(), lambda symbols: gemm.int8_products_text(symbols, width))


def threads() -> Library:
    """Barriers, functions that start drivers, and lists of rows."""
    return _library("threads", CALLED, threads_text, WRITE)


def _library(
    name: str, functions: Iterable[str], write: Callable[[Mapping[str, str]], str], room: int = WRITE_PRODUCTS
) -> Library:
    """The library of a name. The first thread that asks makes it, while others wait."""
    if name not in _libraries:
        with LOADING, _MAKING:  # in the order in which a fork takes them; `write` imports modules
            if name not in _libraries:
                _libraries[name] = _make_library(name, functions, write, room)
    return _libraries[name]


def _make_library(name: str, functions: Iterable[str], write: Callable[[Mapping[str, str]], str], room: int) -> Library:
    symbols = {one: f"rnnops_{name}_{REVISION:015x}_{one}" for one in functions}
    engine = engine_of(object_of(f"{name} {REVISION:x}", lambda: write(symbols), PRODUCTS_LEVEL, room))
    for symbol in symbols.values():
        llvm.add_symbol(symbol, address_of(engine, symbol))
    return Library(symbols, engine)


if TYPE_CHECKING:
    from rnnops.kernels.cpu import pointwise
else:  # for plain Python only
    pointwise = LazyModule("rnnops.kernels.cpu.pointwise")

K_BLOCK = 512  # rows of a panel that lies on the stack


def at(array: Any, offset: int) -> Any:
    """A view of a 1-D array from an element on."""
    return array[offset:]


def vector(array: Any, start: int, count: int) -> Any:
    """`count` numbers of a 1-D array, from `start` on. Nothing is checked."""
    return array[start : start + count]


def matrix(array: Any, start: int, rows: int, stride: int, column: int, columns: int) -> Any:
    """`[rows, columns]` in a 1-D array: rows begin at `start + column`, `stride` numbers apart. Nothing is checked."""
    first = array[start + column :]  # after the last row there may be less than a stride
    return as_strided(first, (rows, columns), (stride * first.itemsize, first.itemsize))


def pack_into(B: Any, packed: Any) -> None:
    """Write B [K, N] into memory of its size or more."""
    packed[: B.size] = B.ravel()


def pack_transposed_into(B: Any, packed: Any) -> None:
    """Write the transpose of B [N, K] into memory of its size or more."""
    packed[: B.size] = B.T.ravel()


def gemm_packed(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """That part of C becomes A @ B, plus the bias if it is not empty. With `accumulate`, A @ B is added to C."""
    first, last, begin, end = part
    K, N = A.shape[1], C.shape[1]
    product = A[first:last] @ packed[: K * N].reshape(K, N)[:, begin:end]
    target = C[first:last, begin:end]
    target[...] = target + product if accumulate else product + bias[begin:end] if bias.size else product


def gemm_tn(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """That part of C becomes A^T @ B. With `accumulate`, the product is added to C."""
    first, last, begin, end = part
    product, target = A[:, first:last].T @ B[:, begin:end], C[first:last, begin:end]
    target[...] = target + product if accumulate else product


def gemm_nn(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """`gemm_tn` with A not transposed: A @ B."""
    gemm_tn(A.T, B, C, accumulate, *part)


def gemm_nt(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """`gemm_tn` with B transposed in place of A: A @ B^T."""
    gemm_tn(A.T, B.T, C, accumulate, *part)


def prefetch(numbers: Any) -> None:
    """Does nothing in plain Python."""


def wait(barrier: Any, threads: int) -> None:
    """Does nothing for one thread. Raises DeviceError for more threads."""
    if threads > 1:
        only_compiled()


def list_rows(ends: Any, order: Any, low: int, steps: int, first: int, last: int, lists: Any, start: int) -> int:
    """`threads.list_rows`, given arrays in place of addresses."""
    (e, batch), (o, _), (rows, size) = ((array.ctypes.data, array.size) for array in (ends, order, lists))
    numbers = map(int, (low, steps, first, last, rows, size, start))
    return list_numbered_rows(e, batch, o, batch, *numbers)


def pack_into_bfloat16(B: Any, packed: Any) -> None:
    """Write B [K, N], rounded, into memory of half its size or more."""
    packed.view(np.uint16)[: B.size] = (pointwise.round_bfloat16(B).ravel().view(np.uint32) >> 16).astype(np.uint16)


def pack_transposed_into_bfloat16(B: Any, packed: Any) -> None:
    """Write the transpose of B [N, K], rounded, into memory of half its size or more."""
    pack_into_bfloat16(B.T, packed)


def gemm_packed_bfloat16(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` of rounded operands."""
    upper = packed.view(np.uint16)[: A.shape[1] * C.shape[1]]
    B = (upper.astype(np.uint32) << 16).view(np.float32)
    gemm_packed(pointwise.round_bfloat16(A), B, C, accumulate, bias, *part)


def gemm_tn_bfloat16(A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
    """`gemm_tn` of rounded operands."""
    gemm_tn(pointwise.round_bfloat16(A), pointwise.round_bfloat16(B), C, accumulate, *part)


def gemm_packed_int8(A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
    """`gemm_packed` with B packed as bytes."""
    gemm_packed(A, packed.astype(A.dtype), C, accumulate, bias, *part)


# A stand-in keeps bytes as they are; `packed` may be larger than B.
pack_into_int8 = pack_into_bytes = pack_into
pack_transposed_into_int8 = pack_transposed_into_bytes = pack_transposed_into
gemm_packed_bytes = gemm_packed_int8


PART = 4  # row_begin, row_end, column_begin, column_end


@dataclass(frozen=True)
class Products:
    """Products of one dtype at one vector width; made by `products_of`.

    Args:
        way: the words of operands that are rounded to bfloat16, `PAIRS` or `SINGLES`; `QUADS` if both operands are
            bytes; `INT8` if only B is packed as bytes; empty for exact operands.
    """

    dtype: str
    width: int
    way: str = ""

    def gemm_packed(self, A: Any, packed: Any, C: Any, accumulate: bool, bias: Any, *part: int) -> None:
        """That part of C [M, N] becomes A [M, K] @ B, plus bias [N] (or [0]: none). B [K, N] is packed.

        Args:
            accumulate: whether the product is added to C. Then bias must be empty.
            part: first row, end of rows, first column, end of columns. A panel of B belongs to the part that has its
                first column.

        Raises ValueError for operands that do not fit.
        """
        K, N = A.shape[1], C.shape[1]
        self._check(A, C, bias)
        self._check_packed(packed)
        self._need(packed.size == self.packed_size(K, N), "packed: wrong size for this matrix")
        self._need(bias.size in (0, 0 if accumulate else N), "bias: wanted [N], or [0] where the product is added to C")
        self._need_part(C, A.shape[0], part)
        self.calls["gemm_packed"](*matrix_of(A), *vector_of(packed), *matrix_of(C), accumulate, *vector_of(bias), *part)

    def gemm_tn(self, A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
        """That part of C [M, N] becomes A^T @ B, for A [K, M] and B [K, N]. With `accumulate` the product is added.

        Raises ValueError for operands that do not fit.
        """
        self._check(A, B, C)
        self._multiply("gemm_tn", A, B, C, accumulate, part, A.T, B)

    def gemm_nn(self, A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
        """The same for A @ B, with A [M, K] and B [K, N]."""
        self._multiply("gemm_nn", A, B, C, accumulate, part, A, B)

    def gemm_nt(self, A: Any, B: Any, C: Any, accumulate: bool, *part: int) -> None:
        """The same for A @ B^T, with A [M, K] and B [N, K]."""
        self._multiply("gemm_nt", A, B, C, accumulate, part, A, B.T)

    def _multiply(
        self, name: str, A: Any, B: Any, C: Any, accumulate: bool, part: tuple[int, ...], left: Any, right: Any
    ) -> None:
        fits = left.shape[1] == right.shape[0] and C.shape == (left.shape[0], right.shape[1])
        self._need(fits, f"{name}: wanted operands of C [M, N] over K, came {A.shape}, {B.shape} and {C.shape}")
        self._need_part(C, C.shape[0], part)
        self.calls[name](*matrix_of(A), *matrix_of(B), *matrix_of(C), accumulate, *part)

    @property
    def packed_dtype(self) -> str:
        """The dtype of packed matrices."""
        return INT8 if self.way in (INT8, QUADS) else self.dtype

    def packed_size(self, K: int, N: int) -> int:
        """Numbers in a packed matrix [K, N]."""
        return prod(self.packed_shape(K, N))

    def packed_shape(self, K: int, N: int) -> tuple[int, int]:
        """The rows of a packed matrix [K, N], and the numbers of each: N, rounded up to whole vectors.

        There are as many rows as words hold a column. For quads, numbers are bytes, and rows fill whole words.
        """
        count, each = lanes(self.width, self.dtype), NUMBERS.get(self.way, 1)
        return -(-K // each) * (each if self.way == QUADS else 1), -(-N // count) * count

    def pack_into(self, B: Any, packed: Any) -> None:
        """Pack B [K, N] into an array of `packed_size(K, N)` numbers."""
        self._pack("pack_into", B, packed, *B.shape)

    def pack_transposed_into(self, B: Any, packed: Any) -> None:
        """Pack the transpose of B [N, K] into an array of `packed_size(K, N)` numbers."""
        self._pack("pack_transposed_into", B, packed, *B.shape[::-1])

    def pack(self, B: Any) -> Any:
        """B [K, N] as a new packed array."""
        packed = np.empty(self.packed_size(*B.shape), self.packed_dtype)
        self.pack_into(B, packed)
        return packed

    def _pack(self, function: str, B: Any, packed: Any, K: int, N: int) -> None:
        self._check(B)
        self._check_packed(packed)
        self._need(packed.size == self.packed_size(K, N), "packed: wrong size for this matrix")
        self.calls[function](*matrix_of(B), *vector_of(packed))

    @cached_property
    def calls(self) -> dict[str, Callable[..., None]]:
        """The native functions by name. They check nothing."""
        library = self._library()
        products = dict.fromkeys(("gemm_packed", "gemm_tn", "gemm_nn", "gemm_nt"), 13 + PART)
        numbers = {**products, "pack_into": 6, "pack_transposed_into": 6}
        return {name: library.callable(name, count) for name, count in numbers.items() if name in library.symbols}

    def _library(self) -> Library:
        if self.way == INT8:
            return int8_products(self.width)
        rounded = rounded_products
        return rounded(self.way, self.width) if self.way else products(self.dtype, self.width)

    def _check_packed(self, packed: Any) -> None:
        if packed.dtype != self.packed_dtype:
            raise TypeError(f"packed: wanted an array of {self.packed_dtype}, came {packed.dtype}")

    def _check(self, *arrays: Any) -> None:
        for array in arrays:
            if array.dtype != self.dtype:
                raise TypeError(f"wanted arrays of {self.dtype}, came {array.dtype}")
            contiguous = array.size < 2 or array.shape[-1] == 1 or array.strides[-1] == array.itemsize
            self._need(contiguous and _row_stride(array) % array.itemsize == 0, "wanted contiguous rows")

    def _need_part(self, C: Any, rows: int, part: tuple[int, ...]) -> None:
        row_begin, row_end, column_begin, column_end = part
        inside = row_begin >= 0 and row_end <= min(rows, C.shape[0]) and column_begin >= 0 and column_end <= C.shape[1]
        self._need(inside, "C: wanted a part that lies within C and A")

    def _need(self, holds: bool, problem: str) -> None:
        if not holds:
            raise ValueError(problem)


def products_of(dtype: str, width: int | None = None) -> Products:
    """Products for a dtype; `width` None is the processor's own."""
    return Products(dtype, vector_width(width))


def rounded_products_of(width: int | None = None, way: str | None = None) -> Products:
    """Products of float32 operands that are rounded to bfloat16; `way` None is the processor's."""
    bits = vector_width(width)
    return Products("float32", bits, way_of(bits) if way is None else way)


def vector_of(array: Any) -> tuple[int, int]:
    """The address and the count of numbers, as `Products.calls` take them."""
    return array.ctypes.data, array.size


def matrix_of(array: Any) -> tuple[int, int, int, int]:
    """The address, rows, numbers from row to row, and columns, as `Products.calls` take them."""
    return array.ctypes.data, array.shape[0], _row_stride(array) // array.itemsize, array.shape[1]


def _row_stride(array: Any) -> int:
    """Bytes from row to row; 0 for a single row, as NumPy's stride means nothing then."""
    return int(array.strides[0]) if array.ndim > 1 and array.shape[0] > 1 else 0
