"""Names that a module of LLVM IR uses from elsewhere, and definitions of scalar functions.

The names that a module of LLVM IR uses from elsewhere: scalar functions, intrinsics, tables, and marks of loops.

Definitions of the scalar functions that generated code calls; loaded where no object of that code is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnops.compiler.ir.expressions import ScalarCall
from rnnops.compiler.targets.cpu.row_sums import BLOCK
from rnnops.types import BOOL

FLOATS = {"float32": "float", "float64": "double"}
MARKED = (
    '!0 = !{!"llvm.loop.unroll.disable"}',
    '!1 = !{!"llvm.loop.vectorize.followup_vectorized", !2}',
    '!2 = !{!"llvm.loop.unroll.full"}',
    '!3 = !{!"llvm.loop.interleave.count", i32 2}',
    '!4 = !{!"llvm.loop.interleave.count", i32 1}',
)
MARKS = {"unrolled": "!0, !1", "by twos": "!0, !3", "by ones": "!0, !4"}  # of the vectors that a loop is made of


def llvm_type(dtype: str) -> str:
    """The type of a number in a register."""
    return FLOATS.get(dtype) or ("i1" if dtype == BOOL else f"i{8 * np.dtype(dtype).itemsize}")


def symbol_of(function: str, dtypes: Sequence[str]) -> str:
    """The name of a scalar function for operands of some dtypes."""
    return "_".join([function, *dict.fromkeys(dtypes)])


class Scalars:
    """The scalar functions that a module calls: name -> (function, dtypes of its operands, dtype of its result)."""

    def __init__(self) -> None:
        self.used: dict[str, tuple[str, tuple[str, ...], str]] = {}
        self.declared: dict[str, str] = {}
        self.marks: list[str] = []  # of loops: what each is to become

    def name(self, call: ScalarCall) -> str:
        dtypes = tuple(operand.dtype for operand in call.operands)
        name = symbol_of(call.function, dtypes)
        self.used[name] = call.function, dtypes, call.dtype
        return name

    def declare(self, name: str, result: str, kinds: Sequence[str]) -> str:
        """A function from elsewhere, as callers see it."""
        self.declared[name] = f'declare {result} @"{name}"({", ".join(kinds)})'
        return name

    def mark(self, what: str) -> str:
        """What marks the last branch of a loop that is to become one of `MARKS`."""
        self.marks.append(what)
        return f", !llvm.loop !{len(MARKED) + len(self.marks)}"

    def mask(self) -> str:
        """The name of a table: as many times -1 as a block has elements, then as many zeros."""
        marks = ", ".join(f"i32 {mark}" for mark in [-1] * BLOCK + [0] * BLOCK)
        self.declared["mask"] = f"@mask = internal constant [{2 * BLOCK} x i32] [{marks}], align 64"
        return "mask"

    def metadata(self) -> list[str]:
        """What the marks mean."""
        numbers = range(len(MARKED) + 1, len(MARKED) + 1 + len(self.marks))
        loops = [f"!{i} = distinct !{{!{i}, {MARKS[what]}}}" for i, what in zip(numbers, self.marks, strict=True)]
        return [*MARKED, *loops] if loops else []
