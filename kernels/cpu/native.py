"""LLVM IR as machine code for the processor at hand, by way of an object on disk, and the runtime that kernels call.

What runs is always the object, whether it was compiled a moment ago or read: the same bits from either. Its engine goes
with the function that Python holds, and the machine code with it. An object is compiled once on a machine.

The runtime is what drivers call by name and what starts them, as two objects: products of a dtype, and threads. Their
keys on disk say the revision of the kernels, so that nothing is written where they are there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from rnnops import util
from rnnops.errors import DeviceError
from rnnops.kernels.cpu.processor import (
    BYTES,
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
    llvm,
    room_to_compile,
    room_to_load,
    vector_width,
)
from rnnops.kernels.cpu.threads import CALLED, threads_text
from rnnops.kernels.object_cache import key_of, load_object, save_object
from rnnops.util import LOADING, LazyModule, wait_for

# Of LLVM's optimisation: generated code, straight arithmetic in loops, is as fast at 1 as at 3 and made in two thirds
# of the time; products of a single row gain a tenth.
LEVEL, PRODUCTS_LEVEL = 1, 3
util.wait_for(llvm.ffi.lib._lock)


@dataclass(frozen=True, eq=False)
class NativeFunction:
    """Machine code that is started by its address.

    Args:
        engine: what holds the code.
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
        name: of the function in it; no other module of this process may have the same.
    """
    engine = engine_of(object_of(text, write))
    return NativeFunction(address_of(engine, name), engine, name, write or (lambda: text))


def address_of(engine: Any, name: str) -> int:
    """The address of a function. Raises RuntimeError where the engine's code has none of that name."""
    address = int(engine.get_function_address(name))
    if address == 0:
        raise RuntimeError(f"compiled code without the function {name}: is a file of the cache folder another's?")
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
        text: of the module. With `write`: a text that names all that the module depends on, as a key of the cache.
        write: writes the module's text, which takes long; called only where the cache has no object.
        level: of LLVM's optimisation, from 0 to 3.
        room: bytes that are needed to write the text and to compile it, at least.
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
        exported: functions that are seen from outside; of the others those stay that these need.
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
    """The triple and the name of this processor, as LLVM has them."""
    return _target()[:2]


def assembly(text: str, level: int = LEVEL) -> str:
    """The assembly of an LLVM module for this processor, as text for people."""
    machine = _machine(level)
    return str(machine.emit_assembly(_optimised(text, machine, level)))


def optimised(text: str, level: int = LEVEL) -> str:
    """An LLVM module as LLVM optimises it for this processor."""
    return str(_optimised(text, _machine(level), level))


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
    """A target machine of its own for each engine, which ends it."""
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
UNPACKED = ("gemm_nn", "gemm_nt")  # of operands that no plan rounds
ROUNDED = {f"{name}_bfloat16": name for name in PRODUCTS}  # as drivers call them
BY_INT8 = {f"{name}_int8": name for name in PRODUCTS if name != "gemm_tn"}  # likewise; gradients are of floats
OF_BYTES = {f"{name}_{BYTES}": name for name in PRODUCTS if name != "gemm_tn"}  # for weights that are known
NAMES = {**ROUNDED, **BY_INT8, **OF_BYTES}  # of functions in their libraries
gemm = LazyModule("rnnops.kernels.cpu.gemm")
_libraries: dict[str, Library] = {}  # that were made, for good: threads run their code, and LLVM knows their addresses
_MAKING = threading.RLock()  # were two threads to make one library, the code of one would be freed while it runs
wait_for(_MAKING, outer=True)


@dataclass(frozen=True, eq=False)
class Library:
    """Compiled functions that stay for good.

    Args:
        symbols: function -> its name in LLVM, which generated code may declare.
        engine: what holds the code.
    """

    symbols: Mapping[str, str]
    engine: Any

    def address(self, function: str) -> int:
        """Where a function lies."""
        return address_of(self.engine, self.symbols[function])

    def callable(self, function: str, numbers: int, result: Any = None) -> Callable[..., Any]:
        """A function of whole numbers for Python, which runs without the interpreter's lock."""
        made: Callable[..., Any] = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * numbers)(self.address(function))
        return made

    def method(self, function: str, holder: Any) -> Callable[[Any], Any]:
        """A function of two objects as a method of the first: a call takes a tenth of the time of one by `callable`."""
        address = self.address(function)
        definition = _definitions.setdefault(address, _Definition(b"method", address, ONE_ARGUMENT))
        made: Callable[[Any], Any] = _new_method(definition, holder, None)
        return made


class _Definition(ctypes.Structure):
    """The description of a method: PyMethodDef of Python's C interface."""

    _fields_: ClassVar[Any] = [
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    ]


ONE_ARGUMENT = 8  # METH_O
_new_method = ctypes.pythonapi.PyCFunction_NewEx
_new_method.restype, _new_method.argtypes = (
    ctypes.py_object,
    [
        ctypes.POINTER(_Definition),
        ctypes.py_object,
        ctypes.py_object,
    ],
)
_definitions: dict[int, _Definition] = {}  # by the address of the function; methods read them for good


def runtime(names: Iterable[str], dtype: str, width: int | None) -> dict[str, str]:
    """Functions that drivers call -> their names in LLVM, where they are registered from now on.

    Args:
        names: of what is called.
        dtype: of products.
        width: of vectors in bits; the host's if None.
    """
    libraries = {name: _library_of(name, dtype, vector_width(width)) for name in names}
    return {name: library.symbols[NAMES.get(name, name)] for name, library in libraries.items()}


def _library_of(name: str, dtype: str, width: int) -> Library:
    """Where what is called so lies."""
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
    """How rounded operands are multiplied: as pairs where the processor can, else as single numbers."""
    return PAIRS if has_pairs(width) else SINGLES


def products(dtype: str, width: int) -> Library:
    """Products and packing of one dtype with vectors of one width."""
    name = f"products_{dtype}_{width}"
    return _library(name, (*PRODUCTS, *UNPACKED), lambda symbols: gemm.products_text(symbols, dtype, width))


def rounded_products(way: str, width: int) -> Library:
    """Products and packing of float32 operands that are rounded to bfloat16, pairs or single numbers, or are bytes."""
    name, functions = f"products_{way}_{width}", OF_BYTES.values() if way == QUADS else PRODUCTS
    return _library(name, functions, lambda symbols: gemm.rounded_products_text(symbols, way, width))


def int8_products(width: int) -> Library:
    """Products of float32 rows with whole numbers of a byte each, and packing of these."""
    name = f"products_int8_{width}"
    return _library(name, BY_INT8.values(), lambda symbols: gemm.int8_products_text(symbols, width))


def threads() -> Library:
    """Barriers, what starts drivers, and lists of rows."""
    return _library("threads", CALLED, threads_text, WRITE)


def _library(
    name: str, functions: Iterable[str], write: Callable[[Mapping[str, str]], str], room: int = WRITE_PRODUCTS
) -> Library:
    """The library of a name, made by the first who asks while others wait."""
    if name not in _libraries:
        with LOADING, _MAKING:  # in the order in which a fork takes them: what writes a library is imported here
            if name not in _libraries:
                _libraries[name] = _make_library(name, functions, write, room)
    return _libraries[name]


def _make_library(name: str, functions: Iterable[str], write: Callable[[Mapping[str, str]], str], room: int) -> Library:
    symbols = {one: f"rnnops_{name}_{REVISION:015x}_{one}" for one in functions}
    engine = engine_of(object_of(f"{name} {REVISION:x}", lambda: write(symbols), PRODUCTS_LEVEL, room))
    for symbol in symbols.values():
        llvm.add_symbol(symbol, address_of(engine, symbol))
    return Library(symbols, engine)
