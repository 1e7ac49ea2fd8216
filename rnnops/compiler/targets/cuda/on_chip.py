"""What shared memory of a block holds for a loop's products: weights, a left side or a slice of it, sums of lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rnnops.compiler.ir.nodes import Product
from rnnops.compiler.targets.cuda.cyclic_distribution import PARTIAL, TOTAL, Region
from rnnops.compiler.targets.cuda.split_products import Sharing
from rnnops.kernels.cuda.split_product import kept_rows, staged_width
from rnnops.kernels.cuda.step_product import TILE, padded, shared_numbers

STAGED = 16384  # numbers of a left side that are staged at once, at most


@dataclass(frozen=True)
class OnChip:
    """Places in shared memory, counted in numbers; the fields of `Loop` that have these names."""

    weights: tuple[int, ...]
    staged: int
    depth: int
    sums: int
    numbers: int


def on_chip(regions: Sequence[Region], sharing: Sharing, lanes: int, room: int, per_number: int) -> OnChip:
    """Lay out the memory of a block.

    Args:
        room: numbers that there are.
        per_number: weights that take the place of one.
    """
    products = [(region, region.product) for region in regions if region.product and region.part != TOTAL]
    places, end = [], 0
    for region, product in products:
        places.append(end * per_number)
        end += padded(-(-_weights(region, product, sharing) // per_number))
    rows = max(padded(sharing.rows_of(product)) for _, product in products)
    whole = [product for region, product in products if region.part != PARTIAL]
    owned = (staged_width(one.inner, region.period, sharing.members) for region, one in products if region.part)
    left = max((rows * (width + TILE) for width in owned), default=0)
    sums = shared_numbers(rows, 0, 0, lanes).sums
    depth, slices = TILE, 0
    if whole:
        depth, slices = _slices(padded(max(product.inner for product in whole)), rows, max(0, room - end - sums))
    after = end + max(left, slices * rows * (depth + TILE))
    return OnChip(tuple(places), end, depth, after, after + sums)


def _weights(region: Region, product: Product, sharing: Sharing) -> int:
    """Of a member."""
    width = product.columns // region.period * -(-region.period // sharing.members)
    count: int = shared_numbers(0, product.inner, width, 0).weights
    if region.part:
        count = kept_rows(product.inner, region.period, sharing.sums_of(product, region.period))
    return count


def _slices(inner: int, row: int, room: int) -> tuple[int, int]:
    """How many numbers of each row are staged at a time, and how many such slices lie in shared memory.

    Two where they are not all of the row: one comes while the other is multiplied.
    """
    for slices in (1, 2):
        depth = min(inner, room // row // slices // TILE * TILE - TILE, STAGED // row // TILE * TILE)
        if depth == inner:
            return depth, slices
    return max(TILE, depth), 2
