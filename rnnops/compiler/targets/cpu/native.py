"""A generated module as machine code of this processor."""

from __future__ import annotations

from functools import cache

from llvmlite import ir

from rnnops.compiler.ir.kernel import Do, Module, statements_of
from rnnops.compiler.targets.cpu.llvm_text import Scalars, llvm_text
from rnnops.kernels.cpu.drivers import GIVEN
from rnnops.kernels.cpu.native import NativeFunction, native_function
from rnnops.kernels.cpu.pointwise import FUNCTIONS
from rnnops.kernels.cpu.runtime import runtime
from rnnops.kernels.cpu.traced import define
from rnnops.kernels.cpu.uniform import uniform
from rnnops.kernels.object_cache import key_of

TRACED = {**FUNCTIONS, "uniform": uniform}


def native_scan(module: Module, width: int | None) -> NativeFunction:
    """The driver of a module, compiled or from the disk.

    Args:
        width: of vectors in bits; the host's if None.
    """
    own = {program.name for program in module.programs}
    called = {line.function for line in statements_of(module.driver.body) if isinstance(line, Do)} - own
    text, scalars = llvm_text(module, "scan", runtime(sorted(called), module.dtype, width), GIVEN)
    name = f"scan_{key_of(text)}"  # engines share one table of names
    return native_function(text.replace('@"scan"(', f'@"{name}"(', 1) + scalar_functions(scalars), name)


def scalar_functions(scalars: Scalars) -> str:
    """Definitions of scalar functions, as LLVM IR."""
    texts = (text for name, used in scalars.used.items() for text in _definition(name, *used))
    return "\n".join(dict.fromkeys(texts))  # what several of them declare is there once


@cache
def _definition(name: str, function: str, dtypes: tuple[str, ...], result: str) -> tuple[str, ...]:
    """A scalar function, and what it declares."""
    holder = ir.Module(name)
    define(holder, TRACED[function], name, dtypes, result)
    return tuple(map(str, holder.globals.values()))
