"""Functions compiled once and called by name from all else that is compiled.

numba copies what a function calls into the function's own machine code and compiles it again: a product of matrices, a
third of a second, in every generated driver. A function that is called by name is compiled, or loaded from the disk,
once in a process; callers only declare its name, by numba's calling convention, and LLVM knows where it is.

Limits: code that declares such a name, compiled or from the disk, can be loaded only after the function was made, else
LLVM ends the process, naming the symbol. Names hold the revision of the kernels, so that no code is called by mistake
that another release compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import llvmlite.binding as llvm
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher

from rnnops.kernels.cpu.fastmath import extending
from rnnops.kernels.cpu.machine_code import compile_once
from rnnops.kernels.cpu.revision import REVISION


def called_by_name(function: Callable[..., Any], signature: Any, **options: Any) -> Callable[..., Any]:
    """Compile a function of one signature for calls by the name of its module and its own.

    Args:
        options: numba's. With NUMBA_DISABLE_JIT=1 the function itself is returned.
    """
    compiled: Any = compile_once(function, signature, **options)
    if not isinstance(compiled, Dispatcher):
        return function
    (version,) = compiled.overloads.values()
    name = f"{function.__module__}.{function.__qualname__}_{REVISION:x}"
    llvm.add_symbol(name, version.library.get_pointer_to_function(version.fndesc.llvm_func_name))

    @wraps(function)
    def called(*operands: Any) -> Any:
        return compiled(*operands)

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        convention, result, kinds = context.call_conv, signature.return_type, signature.args
        declared = cgutils.get_or_insert_function(builder.module, convention.get_function_type(result, kinds), name)
        status, value = convention.call_function(builder, declared, result, kinds, values)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return value

    @wraps(function)  # numba reads the names of parameters
    def typer(*operands: Any) -> Any:
        return signature

    extending.type_callable(called)(lambda _context: typer)
    extending.lower_builtin(called, *signature.args)(lower)
    called.compiled, called.symbol = compiled, name  # type: ignore[attr-defined]
    return called
