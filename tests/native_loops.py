"""Loops over arrays as kernel IR, compiled: what scalar expressions, folds and functions are tested by."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rnnops.compiler.lower.expressions import Expr, Literal, Load, ModuleConstant, Name, ScalarCall
from rnnops.compiler.lower.kernel import Assign, For, Function, Parameter, Statement, Store
from rnnops.compiler.targets.driver_text import Row
from rnnops.compiler.targets.llvm_text import Scalars
from rnnops.kernels.cpu.elementary import definitions
from rnnops.kernels.cpu.native import LEVEL, _machine, _optimised, assembly, compiled, engine_of

Array = npt.NDArray[Any]
ELEMENT, ZERO, ONE = Name("i"), Literal(0), Literal(1)


@dataclass(frozen=True)
class NativeRows:
    """Pointwise kernels that Python calls with arrays and whole numbers, compiled together."""

    functions: tuple[Function, ...]

    @cached_property
    def text(self) -> str:
        scalars = Scalars()
        texts = [Row(function, scalars).text(linkage="") for function in self.functions]
        text = "\n\n".join([*scalars.declared.values(), *texts, *scalars.metadata(), ""])
        return text + definitions(scalars.used, scalars.declared)

    @property
    def optimised(self) -> str:
        return str(_optimised(self.text, _machine(LEVEL), LEVEL))

    @property
    def assembly(self) -> str:
        return assembly(self.text)

    @cached_property
    def _engine(self) -> Any:
        return engine_of(compiled(self.text))

    def __call__(self, *arguments: Any, number: int = 0) -> None:
        """Call one of the functions."""
        function = self.functions[number]
        kinds = [ctypes.c_void_p if parameter.is_memory else ctypes.c_int64 for parameter in function.parameters]
        start = ctypes.CFUNCTYPE(None, *kinds)(self._engine.get_function_address(function.name))
        given = [x.view(np.uint8) if isinstance(x, np.ndarray) and x.dtype == bool else x for x in arguments]
        for parameter, array in zip(function.parameters, given, strict=True):
            if parameter.is_memory:
                assert array.dtype == parameter.dtype, f"{array.dtype} instead of {parameter.dtype}"
                assert array.flags.c_contiguous
        start(*(x.ctypes.data if isinstance(x, np.ndarray) else int(x) for x in given))


def loop_over(names: Sequence[str], dtypes: Sequence[str], body: Sequence[Statement], name: str = "loop") -> NativeRows:
    """A function of arrays and of how many elements they have, which goes through a loop over `i`."""
    memory = [Parameter(one, f"{dtype}*") for one, dtype in zip(names, dtypes, strict=True)]
    loop = For("i", ZERO, Name("n"), ONE, tuple(body))
    return NativeRows((Function(name, (*memory, Parameter("n")), (loop,)),))


@cache
def elementwise(function: str, dtype: str, operands: int) -> Callable[..., None]:
    """`out[i] = function(x[i], ...)`: called with the result, then the operands."""
    names = [f"x{k}" for k in range(operands)]
    loads = tuple(Load(name, ELEMENT, dtype=dtype) for name in names)
    value = ScalarCall(function, loads, dtype=dtype)
    row = loop_over(["out", *names], [dtype] * (operands + 1), [Store("out", ELEMENT, value)])

    def run(*arrays: Array) -> None:
        row(*arrays, arrays[0].size)

    run.row = row  # type: ignore[attr-defined]
    return run


def folded(function: str, start: Expr, element: Expr, dtype: str) -> NativeRows:
    """`out[0] = function(... function(start, element), element)` of arrays `x` and `out`."""
    total = Name("total", dtype=dtype)
    step = Assign("total", ScalarCall(function, (total, element), dtype=dtype))
    loop = For("i", ZERO, Name("n"), ONE, (step,))
    body = Assign("total", start), loop, Store("out", ZERO, total)
    memory = [Parameter(name, f"{dtype}*") for name in ("out", "x", "first")]
    return NativeRows((Function("fold", (*memory, Parameter("n")), body),))


def number(value: Any, dtype: str) -> ModuleConstant:
    """A constant."""
    return ModuleConstant("k", np.dtype(dtype).type(value), dtype=dtype)
