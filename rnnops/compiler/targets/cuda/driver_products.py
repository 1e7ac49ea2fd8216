"""Kernel IR of products that the driver starts by themselves: of a whole tile, or of a step if weights leave the chip.

Those that do not depend on each other are started together (`apart.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rnnops.compiler.codegen.addresses import Addresses
from rnnops.compiler.codegen.pointwise_kernel import Sizes
from rnnops.compiler.codegen.scan_module import GOES_ON, ONE, STEPS, TRUE, ZERO
from rnnops.compiler.ir.expressions import Expr, Literal
from rnnops.compiler.ir.kernel import Do, MatrixProduct, Statement as Line, StridedMatrix
from rnnops.compiler.ir.nodes import Contraction, Node, Product
from rnnops.compiler.schedule.places import Layouts, Place
from rnnops.compiler.targets.cuda.apart import apart


@dataclass
class DriverProducts:
    """Products of a driver.

    Args:
        has_rows: whether blobs of a step have an axis of the batch.
    """

    layouts: Layouts
    sizes: Sizes
    has_rows: bool
    summed: set[str] = field(default_factory=set)  # what the products before have added to in this tile

    def of_tile(self, nodes: Sequence[Node]) -> list[Line]:
        """Products of all steps of a tile."""
        lines: list[Line] = [Do("on.multiply", tuple(map(self._of_tile, some))) for some in apart(nodes)]
        self.summed.update(node.target for node in nodes if isinstance(node, Contraction))
        return lines

    def of_step(self, nodes: Sequence[Node]) -> list[Line]:
        """Products of the step at hand."""
        return [Do("on.multiply", tuple(map(self._of_step, some))) for some in apart(nodes)]

    def bias(self, node: Product) -> tuple[str, Expr]:
        """The array of a product's bias, and where it begins there; the target's and -1 where it has none."""
        if not node.bias:
            return self._place(node.target).array, Literal(-1)
        return self.layouts.arrays[node.bias.owner], self.sizes.of(node.bias.layout.offset)

    def _of_step(self, node: Product | Contraction) -> MatrixProduct:
        assert isinstance(node, Product)
        left, target = (self._addresses.of_row(self._place(owner), ZERO) for owner in (node.left, node.target))
        return self._product(node, left, target, self.sizes.of(node.rows))

    def _of_tile(self, node: Product | Contraction) -> MatrixProduct:
        if isinstance(node, Contraction):
            return self._contraction(node)
        left, target = (self._base(self._place(owner)) for owner in (node.left, node.target))
        return self._product(node, left, target, STEPS * self.sizes.of(node.rows))

    def _product(self, node: Product, left: Expr, target: Expr, rows: Expr) -> MatrixProduct:
        layout, size = node.right.layout, self.sizes.of
        a = StridedMatrix(self._place(node.left).array, left + size(node.offset), size(node.row_stride), ONE)
        weights = self.layouts.arrays[node.right.owner]
        b = StridedMatrix(weights, size(layout.offset), size(layout.strides[0]), size(layout.strides[1]))
        c = StridedMatrix(self._place(node.target).array, target, size(node.columns), ONE)
        bias = self.bias(node) if node.bias else None
        adds = Literal(node.accumulate, dtype="bool")
        return MatrixProduct(a, b, c, (rows, size(node.columns), size(node.inner)), adds, bias, node.rounding)

    def _contraction(self, node: Contraction) -> MatrixProduct:
        size = self.sizes.of
        left, right, target = (self._place(owner) for owner in (node.left, node.right, node.target))
        a = StridedMatrix(left.array, self._base(left) + size(node.left_offset), ONE, size(node.left_stride))
        b = StridedMatrix(right.array, self._base(right) + size(node.right_offset), size(node.right_stride), ONE)
        c = StridedMatrix(target.array, ZERO, size(node.columns), ONE)
        adds = TRUE if node.target in self.summed else GOES_ON
        sizes = size(node.rows), size(node.columns), STEPS * size(node.inner)
        return MatrixProduct(a, b, c, sizes, adds, rounding=node.rounding)

    def _place(self, owner: str) -> Place:
        return self.layouts.places[owner]

    def _base(self, place: Place) -> Expr:
        return self._addresses.of_tile(place)

    @cached_property
    def _addresses(self) -> Addresses:
        return Addresses(self.sizes, self.has_rows)
