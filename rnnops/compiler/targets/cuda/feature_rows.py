"""Pointwise kernels for single features: the same nests, each lane of a CUDA device going through those of its own.

A lane calls the function for a row and a feature `u`, and does all nests of the program for it, one after another,
without a look at any other lane. Loops along the axis of features take `u, u + P, u + 2P, ...`. What a row has but one
number of is computed by all lanes alike, and written by the one of feature 0.
"""

from __future__ import annotations

from collections.abc import Collection

from rnnops.compiler.codegen.pointwise_kernel import PointwiseWriter
from rnnops.compiler.ir.expressions import Expr, Literal, Name, compare
from rnnops.compiler.ir.kernel import If, Store
from rnnops.compiler.schedule.loop_nests import Nest
from rnnops.compiler.targets.cuda.cyclic_distribution import feature_axis


class FeaturePointwiseWriter(PointwiseWriter):
    """Writes a pointwise kernel whose features stand by themselves (`by_features`)."""

    period: int  # of features
    written: Collection[str]  # owners that the program writes
    axis: int | None  # of the nest that is being written

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.axis = feature_axis(nest, self.written, self.period)
        self._scalar("u")
        super()._nest(nest, needed)

    def _range(self, nest: Nest, depth: int) -> tuple[Expr, Expr, Expr]:
        if depth != self.axis:
            return super()._range(nest, depth)
        size, own = nest.extents[depth], Name("u")
        if size == self.period:
            return own, own + 1, Literal(1)
        return own, self._size(size), self._size(self.period)

    def _write(self, depth: int, line: Store) -> None:
        if depth > 0:
            super()._write(depth, line)
        else:
            self.lines.append(If(compare("==", Name("u"), 0), (line,)))
