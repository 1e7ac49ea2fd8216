"""Kernels over large states: sizes of a row are numbers in the text, so that loops over few vectors are straight."""

from __future__ import annotations

from small_programs import lowered_of

from rnnops.compiler.codegen.pointwise_kernel import SizeArguments, StateWriter
from rnnops.compiler.lower.expressions import Constants
from rnnops.compiler.schedule.loop_nests import fuse_nests


def test_sizes_of_a_row_stand_in_the_text() -> None:
    lowered = lowered_of("a = Mul(s, x); y = ReduceSum(a, axes=[0], keepdims=0)", s=(8, 5), x=(8, 5))
    sizes = SizeArguments()
    writer = StateWriter("row", lowered.types, {}, {"y"}, {}, sizes, Constants())
    program = writer.write(fuse_nests(lowered.statements, large_apart=True))
    lines = [text.strip() for line in program.body for text in line.lines()]
    assert [line for line in lines if line.startswith("for ")] == [
        "for i0 in range(5):",  # sums begin before all else
        "for i0 in range(8):",
        "for i1 in range(5):",
    ]
    assert (sizes.values, program.sizes) == ([], [])
