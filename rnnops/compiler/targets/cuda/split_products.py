"""Which products of a loop have their inner axis shared out by the members of a group, and what that costs.

A block reads all of a left side, `rows * inner` numbers, where members own columns of the weights. Where they own rows
of them instead, each multiplies the numbers of its own features; it writes and reads `rows * columns` partial sums, up
to zeros that fill tiles. So gate gradients times weights take half of what LSTM's would, as there are four gates to a
feature; a product with one number to a feature, as a forward pass has, would take more. A wait more or less counts as
what could be read meanwhile.

Limits: the left side and the result have whole numbers of features in a row, with the period of the loop; one decision
is made for all products of a loop that would read and write less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rnnops.compiler.ir.nodes import Product
from rnnops.compiler.schedule.step_plan import rows_of_sum
from rnnops.compiler.targets.cuda.cyclic_distribution import BY_ROWS, PARTIAL, TOTAL, Region
from rnnops.kernels.cuda.split_product import PartialSums, partial_sums

L2_BYTES = 40 << 20  # of an A100; partial sums should not leave it


@dataclass(frozen=True)
class Sharing:
    """Blocks that share out a loop.

    Args:
        rows: of the batch.
    """

    rows: int
    groups: int
    members: int

    def rows_of(self, product: Product) -> int:
        """Of a product's left side that a group has at most: rows that add to one sum stay together."""
        together = rows_of_sum(self.rows)
        parts = -(-self.rows // together)
        own = together * -(-parts // self.groups)
        return own * product.rows // max(self.rows, 1)

    def sums_of(self, product: Product, period: int) -> PartialSums:
        """What a group keeps of partial sums."""
        return partial_sums(self.rows_of(product), product.columns, period, self.members)

    def numbers(self, region: Region) -> int:
        """That a block reads and writes for a region, if that is a product."""
        product = region.product
        if product is None:
            return 0
        rows = self.rows_of(product)
        if not region.part:
            return rows * product.inner
        own = product.inner // region.period * -(-region.period // self.members)
        sums: int = self.members * self.sums_of(product, region.period).width
        return rows * (sums + own if region.part == PARTIAL else sums)


def can_split(region: Region, sharing: Sharing, whatever_it_costs: bool) -> bool:
    """Whether a region is a product whose inner axis may be shared out, with less to read and write then."""
    product = region.product
    if product is None or region.period == BY_ROWS:
        return False
    if any(size % region.period for size in (product.inner, product.columns, product.offset, product.row_stride)):
        return False
    halves = (Region(region.nodes, region.period, part) for part in (PARTIAL, TOTAL))
    return whatever_it_costs or sum(map(sharing.numbers, halves)) < sharing.numbers(region)


def with_split_products(
    regions: Sequence[Region], sharing: Sharing, whatever_it_costs: bool = False
) -> tuple[Region, ...]:
    """Regions with partial sums and totals in the place of products; all are partial before any is a total."""
    found: list[Region] = []
    for splits, group in groupby(regions, key=lambda region: can_split(region, sharing, whatever_it_costs)):
        found += (half for some in apart(list(group)) for half in halves(some)) if splits else group
    return tuple(found)


def halves(regions: Sequence[Region]) -> Iterator[Region]:
    """Partial sums of all products, then totals."""
    for part in (PARTIAL, TOTAL):
        yield from (Region(region.nodes, region.period, part) for region in regions)


def apart(regions: Sequence[Region]) -> Iterator[list[Region]]:
    """Products in order, those together that read no result of each other on their left."""
    group: list[Region] = []
    for region in regions:
        left = region.product.left if region.product else ""
        if any(left in other.written for other in group):
            yield group
            group = []
        group.append(region)
    yield group


def copies_of_sums(regions: Sequence[Region], sharing: Sharing, itemsize: int) -> int:
    """How many copies of partial sums L2 holds, at most two: then no step waits for readers of the one before."""
    nbytes = places_of_sums(regions, sharing, 1)[-1] * itemsize
    return 2 if 2 * nbytes <= L2_BYTES else 1 if nbytes <= L2_BYTES else 0


def places_of_sums(regions: Sequence[Region], sharing: Sharing, copies: int) -> tuple[int, ...]:
    """Where partial sums of each product begin, counted in numbers from the first one on; and their end."""
    places = [0]
    for region in regions:
        if region.product and region.part == PARTIAL:
            places.append(
                places[-1] + copies * sharing.groups * sharing.sums_of(region.product, region.period).of_group
            )
    return tuple(places)
