"""Pointwise kernels over matrices whose outer loop takes several rows of a matrix at a time (unroll and jam).

What is summed along a matrix's columns lies in memory, and is read and written once for several rows; what is read
along them is read once; sums along rows go on side by side instead of each waiting for the one before. Every
number is added to the same ones in the same order as without.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import index

from rnnops.compiler.codegen.pointwise_kernel import ZERO, PointwiseWriter
from rnnops.compiler.ir.expressions import Expr, Literal, Name
from rnnops.compiler.ir.kernel import For
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.loop_nests import Nest

AT_A_TIME = (4, 2)  # rows; more want more registers than there are


class JammedWriter(PointwiseWriter):
    """Writes the nests of one pointwise kernel; those over matrices, several rows at a time."""

    ahead = 0  # of the rows that are taken at a time, which one is written
    jammed: int | None = None  # the axis of these rows

    def _size(self, value: int) -> Expr:
        """Sizes within a row stand in the text; loops over few vectors would else test as much as they compute."""
        return Literal(index(value))

    def _times(self, axis: int, stride: int) -> Expr:
        if axis != self.jammed or self.ahead == 0:
            return super()._times(axis, stride)
        place = Name(f"i{axis}") + self.ahead
        return place if stride == 1 else place * self._size(stride)

    def _level(self, nest: Nest, depth: int, registers: list[Statement], needed: Collection[str]) -> None:
        count = self._at_a_time(nest, depth, registers)
        if count == 1:
            super()._level(nest, depth, registers, needed)
            return
        outside, self.lines = self.lines, []
        self._jammed(nest, depth, registers, needed, count)
        end = self._size(nest.extents[depth])
        self.lines = [*outside, For(f"i{depth}", ZERO, end, Literal(count), tuple(self.lines))]

    def _at_a_time(self, nest: Nest, depth: int, registers: list[Statement]) -> int:
        """How many rows of a matrix the loop at a depth takes at a time."""
        if depth != len(nest.extents) - 2 or any(min(s.folded_axes()) <= depth for s in registers):
            return 1
        if any(s.form == "uniform" or s.target.index is not None for s in nest.statements):
            return 1
        sums = [s for s in nest.statements if depth in s.folded_axes()]
        return next((count for count in AT_A_TIME if nest.extents[depth] % count == 0), 1) if sums else 1

    def _jammed(self, nest: Nest, depth: int, registers: list[Statement], needed: Collection[str], count: int) -> None:
        """The body of the loop over rows: what each row does beside what the others do."""
        known, self.jammed = self.local, depth
        sides = []
        for _ in range(count):
            self.accumulators = {}
            for statement in registers:
                self._start_register(statement)
            sides.append(self.accumulators)
        before, self.lines = self.lines, []
        for self.ahead, self.accumulators in enumerate(sides):
            self.local = dict(known)
            super()._level(nest, depth + 2, registers=[], needed=needed)
        begin, end, step = self._range(nest, depth + 1)
        self.lines = [*before, For(f"i{depth + 1}", begin, end, step, tuple(self.lines), parallel=True)]
        for self.ahead, self.accumulators in enumerate(sides):
            self.local = dict(known)
            for statement in registers:
                self._finish_register(statement, depth + 1, needed)
        self.ahead, self.local, self.jammed = 0, known, None
