"""Pointwise kernels for a block that has a part of a row: nests of `block_rows.py`, of which it does some iterations.

Of a nest that parts share out a block does its part of one axis, of others all or nothing (`row_parts.py`). What all
parts compute each keeps for itself; numbers that others read the first part writes for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rnnops.compiler.ir.expressions import Expr, Name, compare
from rnnops.compiler.ir.kernel import If, Store
from rnnops.compiler.schedule.loop_nests import Nest
from rnnops.compiler.targets.cuda.block_rows import BlockPointwiseWriter
from rnnops.compiler.targets.cuda.row_parts import EVERY, FIRST, RowNest
from rnnops.compiler.targets.cuda.share_lanes import Share, share_lanes

PART = "part"  # the number of a block among those of its row


class PartPointwiseWriter(BlockPointwiseWriter):
    """Writes the nests of a region that several blocks do together for one row."""

    work: Mapping[int, RowNest]  # by the nest's `id`
    private: Collection[str]
    parts: int  # blocks of a row
    bounds: Callable[[int], tuple[Name, Name]]  # of what a block has of an axis of some size
    own: RowNest  # the nest that is being written

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.own = self.work[id(nest)]
        if self.own.axis != FIRST:
            super()._nest(nest, needed)
            return
        outside, self.lines = self.lines, []
        super()._nest(nest, needed)
        self.lines = [*outside, If(self._is_first(), tuple(self.lines))]

    def _shared(self, nest: Nest) -> Share:
        return share_lanes(self.own.part(self.parts))

    def _bounds(self, nest: Nest, depth: int) -> tuple[Expr, Expr]:
        if depth != self.own.axis:
            return super()._bounds(nest, depth)
        first, last = self.bounds(self.own.size)
        self._scalars(first.name, last.name)
        return first, last

    def _write(self, depth: int, line: Store) -> None:
        if self.own.axis != EVERY or line.blob in self.private:
            super()._write(depth, line)
            return
        outside, self.lines = self.lines, []
        super()._write(depth, line)
        self.lines = [*outside, If(self._is_first(), tuple(self.lines))]

    def _is_first(self) -> Expr:
        return compare("==", self._scalar(PART), 0)
