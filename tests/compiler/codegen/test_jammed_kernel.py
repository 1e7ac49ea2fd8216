"""Kernels over matrices: several rows at a time where columns are summed, else one."""

from __future__ import annotations

import re

from small_programs import lowered_of

from rnnops.compiler.codegen.jammed_kernel import JammedWriter
from rnnops.compiler.codegen.pointwise_kernel import Sizes
from rnnops.compiler.lower.scalar_expressions import Constants
from rnnops.compiler.schedule.loop_nests import fuse_nests


def body(lines: str, *rows: int) -> list[str]:
    lowered = lowered_of(lines, s=rows, x=rows, v=(1, rows[-1]))
    writer = JammedWriter("row", lowered.types, {}, {"y"}, {}, Sizes(), Constants())
    program = writer.write(fuse_nests(lowered.statements, large_apart=True))
    return [text.strip() for line in program.body for text in line.lines()]


def loops(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("for ")]


def test_sums_of_columns_take_four_rows_at_a_time() -> None:
    lines = body("a = Mul(s, x); y = ReduceSum(a, axes=[0], keepdims=0)", 8, 5)
    assert loops(lines)[1:] == ["for i0 in range(0, 8, 4):", "for i1 in range(5):"]
    assert sum(bool(re.match(r"p\d\[i1\] = p\d\[i1\] \+ ", line)) for line in lines) == 4


def test_rows_that_are_left_over_are_none() -> None:
    assert "for i0 in range(0, 6, 2):" in body("a = Mul(s, x); y = ReduceSum(a, axes=[0], keepdims=0)", 6, 5)
    assert "for i0 in range(7):" in body("a = Mul(s, x); y = ReduceSum(a, axes=[0], keepdims=0)", 7, 5)


def test_sums_of_rows_go_one_by_one() -> None:
    assert "for i0 in range(8):" in body("a = Mul(s, x); y = ReduceSum(a, axes=[1], keepdims=0)", 8, 5)
