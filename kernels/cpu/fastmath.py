"""How kernels are compiled: the one place with numba's options.

Of LLVM's fast-math flags three are safe here and wanted:

- `contract`: a product and a sum become one multiply-add;
- `nsz`: the sign of a zero may be lost (functions that promise it set it with integer instructions);
- `afn`: LLVM may use its own forms of library functions.

Never `arcp`, which turns 1 / sqrt(x) in float32 into an estimate that is NaN at 0 and at infinity, never `nnan` and
`ninf`, which delete tests for NaN and infinity, nor `reassoc`, which deletes rounding by magic numbers
and lets sums depend on the vector width; reductions that want it say so themselves. `error_model="numpy"` makes `x / 0`
infinite: Python's exception is a branch that stops vectorisation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numba
import numba.extending

from rnnops.kernels.cpu import traced
from rnnops.kernels.cpu.machine_code import compile_once

Function = TypeVar("Function", bound=Callable[..., Any])

types: Any = numba.types  # numba has type hints for some of its names, for others from version to version
extending: Any = numba.extending

FLAGS = {*traced.FLAGS}
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": FLAGS}
INLINED: dict[str, Any] = {**OPTIONS, "forceinline": True}


def kernel(function: Function) -> Function:
    """Compile for calls from Python and from other kernels: kept on disk, runs without the interpreter's lock.

    numba notices when the file of a kernel changes, not when a function that it calls does (see `revision.py`).
    """
    return compile_once(function, **OPTIONS)


def inlined(function: Function) -> Function:
    """Compile into whatever kernel calls it, with the flags above whatever the caller's; plain Python elsewhere."""
    registered: Function = extending.register_jitable(**INLINED)(function)
    return registered


def compiled_as(choose: Callable[..., Any]) -> Callable[[Function], Function]:
    """Compile another function instead of the decorated one; `choose` finds it by numba's types, None where none is."""

    def register(function: Function) -> Function:
        extending.overload(function, jit_options=INLINED, strict=False)(choose)
        return function

    return register


def primitive(typing: Callable[..., Any], emit: Callable[..., Any]) -> Callable[[Function], Function]:
    """Give a Python function a meaning in compiled code.

    Args:
        typing: from operand types to numba's signature, None where the function has no meaning.
        emit: from an LLVM builder and LLVM values of the operands to that of the result.
    """

    def lower(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return emit(builder, *values)

    def register(function: Function) -> Function:
        @wraps(function)  # numba reads the names of parameters
        def typer(*operands: Any) -> Any:
            return typing(*map(types.unliteral, operands))

        extending.type_callable(function)(lambda _context: typer)
        extending.lower_builtin(function, types.VarArg(types.Any))(lower)
        return function

    return register
