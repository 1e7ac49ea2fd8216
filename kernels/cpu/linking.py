"""Micro-kernels compiled once and called by name from everything else that is compiled.

numba copies what a function calls into the function's own machine code, and compiles it again: thirty tiles, half a
second, in every generated function that multiplies matrices. So the tiles of a dtype and width live in one small
function that numba compiles, or loads from its disk cache, and that returns their addresses; `link` gives these to LLVM
under names that callers only declare, as numba does with BLAS.

Limits: code that declares such a name, compiled or from the disk, can be loaded only after `link`, else LLVM ends the
process, naming the symbol. Names hold a checksum of the arguments, so that no code is called by mistake that another
release compiled.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import lower_builtin, type_callable

from rnnops.kernels.cpu.machine_code import compile_once
from rnnops.kernels.cpu.micro_kernel import BLOCK_TYPES, COPY_TYPES, Operands, define_block, define_copy
from rnnops.kernels.cpu.revision import REVISION
from rnnops.kernels.cpu.vectors import I64, lanes

Define = Callable[[ir.Module, str, int], ir.Function]


def _copy(vectors: int) -> Define:
    return lambda module, dtype, width: define_copy(module, dtype, lanes(width, dtype), vectors)


PARTS: tuple[tuple[str, tuple[ir.Type, ...], Define], ...] = (
    ("block", BLOCK_TYPES, define_block),
    ("copy1", COPY_TYPES, _copy(1)),
    ("copy2", COPY_TYPES, _copy(2)),
    ("copy3", COPY_TYPES, _copy(3)),
)
INTERFACE = zlib.crc32(" ".join([*(field.name for field in fields(Operands)), str(COPY_TYPES)]).encode())


def symbol(part: str, dtype: str, width: int) -> str:
    """The name under which callers know a part."""
    return f"rnnops_{part}_{dtype}_{width}_{INTERFACE:08x}"


def declare(module: ir.Module, part: str, dtype: str, width: int) -> ir.Function:
    """A part as callers see it."""
    name = symbol(part, dtype, width)
    if name not in module.globals:
        arguments = next(kinds for known, kinds, _ in PARTS if known == part)
        ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    return module.globals[name]


@cache
def link(dtype: str, width: int) -> None:
    """Makes the parts of a dtype and width known to LLVM; with NUMBA_DISABLE_JIT=1 there is nothing to do."""
    arguments = types.Array(getattr(types, dtype), 1, "C")
    addresses = compile_once(_make_addresses(width), types.UniTuple(types.intp, len(PARTS))(arguments))
    for (part, _, _), address in zip(PARTS, addresses(np.empty(0, dtype)), strict=True):
        if address:
            llvm.add_symbol(symbol(part, dtype, width), address)


def _make_addresses(width: int) -> Callable[[Any], tuple[int, ...]]:
    revision = REVISION

    def addresses(like: Any) -> tuple[int, ...]:
        _ = revision
        return (
            code_address(width, 0, like),
            code_address(width, 1, like),
            code_address(width, 2, like),
            code_address(width, 3, like),
        )

    return addresses


def code_address(width: int, part: int, like: Any) -> int:
    """Where the machine code of a part is, for the dtype of an array; 0 in plain Python."""
    return 0


@type_callable(code_address)
def _type_code_address(context: Any) -> Any:
    def typer(width: Any, part: Any, like: Any) -> Any:
        if isinstance(width, types.IntegerLiteral) and isinstance(part, types.IntegerLiteral):
            return signature(types.intp, width, part, like)
        return None

    return typer


@lower_builtin(code_address, types.IntegerLiteral, types.IntegerLiteral, types.Array)
def _lower_code_address(context: Any, builder: Any, sig: Any, _values: Any) -> Any:
    width, part = (kind.literal_value for kind in sig.args[:2])
    _, _, define = PARTS[part]
    return builder.ptrtoint(define(builder.module, str(sig.args[2].dtype), width), I64)
