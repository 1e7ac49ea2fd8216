"""Definitions of the scalar functions that generated code calls; loaded where no object of that code is on disk."""

from __future__ import annotations

from functools import cache

from llvmlite import ir

from rnnops.compiler.targets.cpu.row_sums import Scalars
from rnnops.kernels.cpu.bits import round_bfloat16
from rnnops.kernels.cpu.pointwise import FUNCTIONS, uniform
from rnnops.kernels.cpu.traced import define

TRACED = {**FUNCTIONS, "uniform": uniform, "round_bfloat16": round_bfloat16}


def scalar_functions(scalars: Scalars) -> str:
    """Definitions of scalar functions, as LLVM IR."""
    texts = dict(one for name, used in scalars.used.items() for one in _definition(name, *used))
    return "\n".join(text for name, text in texts.items() if name not in scalars.declared)  # all is there once


@cache
def _definition(name: str, function: str, dtypes: tuple[str, ...], result: str) -> tuple[tuple[str, str], ...]:
    """A scalar function, and what it declares, by name."""
    holder = ir.Module(name)
    define(holder, TRACED[function], name, dtypes, result)
    return tuple((one, str(text)) for one, text in holder.globals.items())
