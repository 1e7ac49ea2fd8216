"""Kernel IR of products: with a shared inner axis, and those that the driver starts.

**Kernel IR of products that the driver starts by themselves**: of a whole tile, or of a step if weights leave the chip.
Those that do not depend on each other are started together (`loop.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rnnops.compiler.codegen.addresses import Addresses
from rnnops.compiler.codegen.pointwise_kernel import SizeArguments
from rnnops.compiler.codegen.scan_module import GOES_ON, ONE, STEPS, TRUE, ZERO
from rnnops.compiler.lower.expressions import Expr, Literal, Name
from rnnops.compiler.lower.kernel import Argument, Array, Do, MatrixProduct, Pointer, Statement as Line, StridedMatrix
from rnnops.compiler.lower.statements import Contraction, Node, StepProduct
from rnnops.compiler.schedule.places import Layouts, Place
from rnnops.compiler.targets.cuda.lane_nests import remainder
from rnnops.compiler.targets.cuda.loop import PARTIAL, Loop, apart
from rnnops.kernels.cuda.split_product import PartialSums, staged_width
from rnnops.kernels.cuda.step_product import TILE, padded

STEP, GROUP, MEMBER = Name("step"), Name("group"), Name("member")


@dataclass(frozen=True)
class SplitLines:
    """Lines of one kernel.

    Args:
        rows: of the batch.
        scratch: the array in which partial sums lie.
        size: writes a number of the plan.
        features: first and last feature of a member, for a period.
    """

    loop: Loop
    rows: int
    scratch: str
    size: Callable[[int], Expr]
    features: Callable[[int], tuple[Name, Name]]

    def load(self, node: StepProduct, period: int, weights: str, place: int) -> Do:
        """Rows of the weights come into shared memory."""
        layout, size = node.right.layout, self.size
        where = tuple(map(size, (layout.offset, *layout.strides, node.inner, node.columns, period)))
        members, width = size(self.loop.members), size(self._sums(node, period).width)
        kept = Pointer("kept", size(place))
        return Do("load_rows", (Array(weights), *where, members, width, *self.features(period), kept))

    def clear(self, node: StepProduct, period: int) -> Do:
        """Zeros where a block's numbers of a left side will lie."""
        rows = padded(self.loop.sharing(self.rows).rows_of(node))
        return Do("clear_own", (self._shared(self.loop.staged), self.size(rows * self._pitch(node, period))))

    def own_row(self, number: int, row: Expr) -> dict[str, Argument]:
        """Where a row of what region `number` multiplies lies, and which features it has, by names in programs."""
        node, period = self._region(number)
        first, last = self.features(period)
        place = Pointer("shared", self.size(self.loop.staged) + row * self.size(self._pitch(node, period)))
        return {"own_row": place, "own_first": first, "own_count": last - first}

    def partial(self, number: int, left: str, first: Expr, rows: Expr, place: int, there: bool) -> Do:
        """Partial sums of region `number` of the loop.

        Args:
            left: the array in which the left side lies, from `first` on.
            place: of the weights in shared memory.
            there: whether a block's numbers of the left side are in shared memory.
        """
        node, period = self._region(number)
        size = self.size
        a = Array(left), first + size(node.offset), size(node.row_stride), rows, size(node.inner)
        kept, staged, sums = Pointer("kept", size(place)), self._shared(self.loop.staged), self._shared(self.loop.sums)
        chip = kept, staged, size(self._pitch(node, period)), Literal(there, dtype="bool"), sums
        shape, own = self._shape(node, period), self.features(period)
        return Do("partial_product", (*a, *chip, *self._partials(number), *shape, size(period), *own))

    def total(self, number: int, target: tuple[Array, Expr], rows: Expr, bias: tuple[Array, Expr]) -> Do:
        """The total of the partial sums of a product, in region `number`."""
        node, period = self._region(number)
        size, sums = self.size, self._shared(self.loop.sums)
        array, start = self._partials(number)
        partials: tuple[Argument, ...] = (array, start, rows, *self._shape(node, period))
        c = *target, size(node.columns), size(period), *self.features(period)
        return Do("add_partials", (*partials, sums, *c, Literal(node.accumulate, dtype="bool"), *bias))

    def _pitch(self, node: StepProduct, period: int) -> int:
        pitch: int = staged_width(node.inner, period, self.loop.members) + TILE
        return pitch

    def _shared(self, place: int) -> Pointer:
        return Pointer("shared", self.size(place))

    def _region(self, number: int) -> tuple[StepProduct, int]:
        region = self.loop.regions[number]
        assert region.product is not None
        return region.product, region.period

    def _sums(self, node: StepProduct, period: int) -> PartialSums:
        return self.loop.sharing(self.rows).sums_of(node, period)

    def _shape(self, node: StepProduct, period: int) -> tuple[Expr, ...]:
        sums = self._sums(node, period)
        return self.size(sums.height), self.size(sums.width), MEMBER, self.size(self.loop.members)

    def _partials(self, number: int) -> tuple[Array, Expr]:
        """Where a group's partial sums begin at a step: copies take turns."""
        node, period = self._region(number)
        splits = [region.nodes for region in self.loop.regions if region.part == PARTIAL]
        start = self.loop.scratch + self.loop.partials[splits.index(self.loop.regions[number].nodes)]
        part: Expr = GROUP
        if self.loop.copies > 1:
            turn = remainder(STEP, self.size(self.loop.copies))
            part = turn * self.size(self.loop.groups) + GROUP
        return Array(self.scratch), self.size(start) + part * self.size(self._sums(node, period).of_group)


@dataclass
class DriverProducts:
    """Products of a driver.

    Args:
        has_rows: whether blobs of a step have an axis of the batch.
    """

    layouts: Layouts
    sizes: SizeArguments
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

    def bias(self, node: StepProduct) -> tuple[str, Expr]:
        """The array of a product's bias, and where it begins there; the target's and -1 where it has none."""
        if not node.bias:
            return self._place(node.target).array, Literal(-1)
        return self.layouts.arrays[node.bias.owner], self.sizes.of(node.bias.layout.offset)

    def _of_step(self, node: StepProduct | Contraction) -> MatrixProduct:
        assert isinstance(node, StepProduct)
        left, target = (self._addresses.of_row(self._place(owner), ZERO) for owner in (node.left, node.target))
        return self._product(node, left, target, self.sizes.of(node.rows))

    def _of_tile(self, node: StepProduct | Contraction) -> MatrixProduct:
        if isinstance(node, Contraction):
            return self._contraction(node)
        left, target = (self._base(self._place(owner)) for owner in (node.left, node.target))
        return self._product(node, left, target, STEPS * self.sizes.of(node.rows))

    def _product(self, node: StepProduct, left: Expr, target: Expr, rows: Expr) -> MatrixProduct:
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
        c = StridedMatrix(target.array, size(node.target_offset), size(node.target_stride), ONE)
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
