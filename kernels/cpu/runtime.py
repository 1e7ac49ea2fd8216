"""The runtime: what drivers call by name and what starts them, as two objects: products of a dtype, and threads.

Both are compiled once on a machine: their keys on disk say the revision of the kernels, so that nothing is written
where they are there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rnnops.kernels.cpu.native import PRODUCTS_LEVEL, address_of, engine_of, object_of
from rnnops.kernels.cpu.processor import PAIRS, SINGLES, has_pairs, llvm, vector_width
from rnnops.kernels.cpu.revision import REVISION
from rnnops.kernels.cpu.room import WRITE, WRITE_PRODUCTS
from rnnops.util import LazyModule, wait_for

PRODUCTS = ("gemm_packed", "gemm_tn", "pack_into", "pack_transposed_into")
THREADS = (
    "wait",
    "list_rows",
    "lead",
    "serve",
    "open_gate",
    "rouse",
    "lead_region",
    "perform",
    "copy_box",
    "clear",
    "order_rows",
)
ROUNDED = {f"{name}_bfloat16": name for name in PRODUCTS}  # as drivers call them
BY_INT8 = {f"{name}_int8": name for name in PRODUCTS if name != "gemm_tn"}  # likewise; gradients are of floats
write_runtime = LazyModule("rnnops.kernels.cpu.write_runtime")
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
        kind = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * numbers)
        made: Callable[..., Any] = kind(self.address(function))
        return made


def runtime(names: Iterable[str], dtype: str, width: int | None) -> dict[str, str]:
    """Functions that drivers call -> their names in LLVM, where they are registered from now on.

    Args:
        names: of what is called.
        dtype: of products.
        width: of vectors in bits; the host's if None.
    """
    libraries = {name: _library_of(name, dtype, vector_width(width)) for name in names}
    return {name: library.symbols[{**ROUNDED, **BY_INT8}.get(name, name)] for name, library in libraries.items()}


def _library_of(name: str, dtype: str, width: int) -> Library:
    """Where what is called so lies."""
    if name in ROUNDED:
        return rounded_products(way_of(width), width)
    if name in BY_INT8:
        return int8_products(width)
    return products(dtype, width) if name in PRODUCTS else threads()


def way_of(width: int) -> str:
    """How rounded operands are multiplied: as pairs where the processor can, else as single numbers."""
    return PAIRS if has_pairs(width) else SINGLES


def products(dtype: str, width: int) -> Library:
    """Products and packing of one dtype with vectors of one width."""
    name = f"products_{dtype}_{width}"
    return _library(name, PRODUCTS, lambda symbols: write_runtime.products(symbols, dtype, width))


def rounded_products(way: str, width: int) -> Library:
    """Products and packing of float32 operands that are rounded to bfloat16, as pairs or as single numbers."""
    name = f"products_bfloat16_{way}_{width}"
    return _library(name, PRODUCTS, lambda symbols: write_runtime.rounded_products(symbols, way, width))


def int8_products(width: int) -> Library:
    """Products of float32 rows with whole numbers of a byte each, and packing of these."""
    name = f"products_int8_{width}"
    return _library(name, BY_INT8.values(), lambda symbols: write_runtime.int8_products(symbols, width))


def threads() -> Library:
    """Barriers, what starts drivers, and lists of rows."""
    return _library("threads", THREADS, lambda symbols: write_runtime.threads(symbols), WRITE)


def _library(
    name: str, functions: Iterable[str], write: Callable[[Mapping[str, str]], str], room: int = WRITE_PRODUCTS
) -> Library:
    """The library of a name, made by the first who asks while others wait."""
    if name not in _libraries:
        with _MAKING:
            if name not in _libraries:
                _libraries[name] = _make_library(name, functions, write, room)
    return _libraries[name]


def _make_library(name: str, functions: Iterable[str], write: Callable[[Mapping[str, str]], str], room: int) -> Library:
    symbols = {one: f"rnnops_{name}_{REVISION:015x}_{one}" for one in functions}
    engine = engine_of(object_of(f"{name} {REVISION:x}", lambda: write(symbols), PRODUCTS_LEVEL, room))
    for symbol in symbols.values():
        llvm.add_symbol(symbol, address_of(engine, symbol))
    return Library(symbols, engine)
