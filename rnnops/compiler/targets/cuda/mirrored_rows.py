"""Elementwise work that leaves a block's numbers of a product's left side in its shared memory too.

Where blocks share out the inner axis of a loop's only product, what a block multiplies is what its lanes have just
written: the product then reads it there, and not from L2, 270 cycles away, where products of the tile will find it.
"""

from __future__ import annotations

from rnnops.compiler.ir.expressions import INDEX, Call
from rnnops.compiler.ir.kernel import Store
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.compiler.targets.cuda.cyclic_distribution import BY_ROWS, PARTIAL
from rnnops.compiler.targets.cuda.feature_rows import FeaturePointwiseWriter
from rnnops.compiler.targets.cuda.loop import Loop


class MirroredPointwiseWriter(FeaturePointwiseWriter):
    """Writes a pointwise kernel for single features, and one owner to shared memory as well."""

    mirrored: str  # the owner

    def _write(self, depth: int, line: Store) -> None:
        super()._write(depth, line)
        if line.blob == self.mirrored:
            buffer, first, count = (self._scalar(name) for name in ("own_row", "own_first", "own_count"))
            place = Call("own_number", (line.index, self._size(self.period), first, count), dtype=INDEX)
            self.lines.append(Store(buffer.name, place, line.value))


def mirrored(loop: Loop, plan: StepPlan, batch: int) -> dict[int, str]:
    """The region whose result goes to shared memory too, and that; empty where the product reads it from memory."""
    numbers = [number for number, region in enumerate(loop.regions) if region.part == PARTIAL]
    if len(loop.products) != 1 or numbers in ([], [0]):
        return {}
    (product,), before = loop.products, loop.regions[numbers[0] - 1]
    writers = [region for region in loop.regions if product.left in region.written]
    lies_so = product.rows == batch and product.offset == 0 and product.row_stride == product.inner
    if before.product or before.period == BY_ROWS or writers != [before] or not lies_so:
        return {}
    return {numbers[0] - 1: product.left} if plan.batch_axes.get(product.left) == 0 else {}
