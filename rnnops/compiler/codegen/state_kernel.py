"""Pointwise kernels over large states, in whose text the sizes of a row stand.

Elsewhere sizes are arguments, so that no width needs a compiler. Loops over the few vectors of a matrix's row would
test as much as they compute then, and what is summed along its columns would go through memory at each of its rows.
"""

from __future__ import annotations

from operator import index

from rnnops.compiler.codegen.pointwise_kernel import PointwiseWriter
from rnnops.compiler.ir.expressions import Expr, Literal


class StateWriter(PointwiseWriter):
    """Writes the nests of one pointwise kernel over a large state."""

    def _size(self, value: int) -> Expr:
        return Literal(index(value))
