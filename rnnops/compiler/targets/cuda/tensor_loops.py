"""Loops over steps whose products round their operands, and run on tensor cores: who has what, and where it lies.

Blocks share out such a loop as any other (`share_blocks.py`), but for what a block reads: weights for tensor cores lie
as fragments, 16 bits each where they are rounded to bfloat16 or float16, and rows are multiplied 16 at once, so that
groups have eight at least. Products of such a loop that round nothing keep their weights as they are.
Limits: members share out columns alone, each reads the whole left side of its group's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rnnops.compiler.ir.kernel import Parameter
from rnnops.compiler.ir.nodes import Node, Product
from rnnops.compiler.schedule.step_plan import StepPlan, rows_of_sum
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.errors import DeviceError
from rnnops.kernels.cuda.matrix_fragments import INSTRUCTIONS, WARP
from rnnops.kernels.cuda.step_product import SharedNumbers, padded, shared_numbers
from rnnops.kernels.cuda.step_product_tensor import (
    AT_ONCE,
    BESIDE,
    MOST_TILES,
    SLICE,
    shared_fragments,
    sums_name,
    tiles_of,
)

if TYPE_CHECKING:  # it is called from there
    from rnnops.compiler.targets.cuda.share_blocks import Blocks

STAGED = 16384  # numbers of a left side that are staged at once, at most
WORDS_OF_FRAGMENTS = "fragments"  # what kernels call them
ITEMSIZE = np.dtype("float32").itemsize


class Need(NamedTuple):
    """What a product keeps in shared memory.

    Args:
        itemsize: bytes of a weight.
    """

    numbers: SharedNumbers
    itemsize: int


def rounding_of(nodes: Sequence[Node]) -> str:
    """What operands of products are rounded to; empty where none are."""
    return next((node.rounding for node in nodes if node.rounding), "")


def rounding_of_plan(plan: StepPlan) -> str:
    """The same for all products of a plan, those that are loops over elements as well."""
    return rounding_of([node for stage in (*plan.stages, *plan.past_end) for node in stage.nodes])


def check_lanes(plan: StepPlan, lanes: int, net: str) -> None:
    """Raise DeviceError where blocks are no whole warps, and products are on tensor cores."""
    products = [node for stage in plan.stages if stage.loop for node in stage.nodes if isinstance(node, Product)]
    if rounding_of(products) and lanes % WARP:
        raise DeviceError(
            "products of rounded operands take whole warps", net=net, wanted=f"lanes by {WARP}", came=str(lanes)
        )


def share_tensor_loop(loop: Loop, rows: int, blocks: Blocks) -> Loop:
    """Groups and members for a loop; step by step where all blocks together cannot hold the weights.

    Args:
        loop: its regions and waits.
        rows: of the batch, 1 where no axis is one.
    """
    parts = -(-rows // rows_of_sum(rows))
    widest = max((region.period for region in loop.regions), default=1) or 1
    for members in range(1, min(blocks.count, widest) + 1):
        groups = max(1, min(blocks.count // members, parts, -(-rows // AT_ONCE)))
        found = with_fragments(replace(loop, persistent=True, groups=groups, members=members), rows, blocks)
        if found.numbers * ITEMSIZE <= blocks.shared_bytes:
            wide = min(widest, blocks.count // groups)
            wide = -(-widest // -(-widest // wide))  # as many as leave none with fewer features by more than one
            return with_fragments(replace(found, members=wide), rows, blocks)
    groups = max(1, min(parts, blocks.count))
    return replace(loop, persistent=False, groups=groups, members=max(1, min(widest, blocks.count // groups)))


def with_fragments(loop: Loop, rows: int, blocks: Blocks) -> Loop:
    """The loop with its shared memory laid out: weights, rows of a left side, sums of lanes."""
    needs = _needs(loop, rows, blocks.lanes)
    places, end = [], 0
    for need in needs:
        places.append(end * ITEMSIZE // need.itemsize)
        end += padded(-(-need.numbers.weights * need.itemsize // ITEMSIZE))
    row, sums = max(need.numbers.row for need in needs), max(need.numbers.sums for need in needs)
    inner = max(product.inner for product in loop.products)
    room = max(0, blocks.shared_bytes // ITEMSIZE - end - sums)
    depth, slices = _slices(-(-inner // SLICE) * SLICE, row, room)
    staged = slices * row * (depth + BESIDE)
    return replace(loop, weights=tuple(places), staged=end, depth=depth, sums=end + staged, numbers=end + staged + sums)


def width_of(loop: Loop, product: Product, period: int) -> int:
    """Columns of the member that has most."""
    return product.columns // period * -(-period // loop.members)


def tiles_of_product(loop: Loop, product: Product, period: int) -> tuple[int, int]:
    """Tiles of a warp, and how many groups of them lie in shared memory."""
    tiles, groups = tiles_of(width_of(loop, product, period))
    return tiles, groups


def fragments_of(products: Iterable[Product | None]) -> tuple[Parameter, ...]:
    """What kernels with such products have beside other memory: words of fragments, sums to begin with."""
    rounding = rounding_of([product for product in products if product])
    if not rounding:
        return ()
    words = Parameter(WORDS_OF_FRAGMENTS, f"uint{8 * INSTRUCTIONS[rounding].itemsize}[]")
    return words, *(Parameter(sums_name(tiles), "float32[]") for tiles in range(1, MOST_TILES + 1))


def instruction_lines(loop: Loop) -> Iterator[str]:
    """What a plan says of the products of a loop."""
    rounding = rounding_of(loop.products)
    if rounding:
        yield f"products of a step: {INSTRUCTIONS[rounding].short}, sums in float32"


def _needs(loop: Loop, rows: int, lanes: int) -> list[Need]:
    together = rows_of_sum(rows)
    parts = -(-rows // together)
    each = min(rows, -(-parts // loop.groups) * together)
    needs = []
    for region in loop.regions:
        product = region.product
        if product:
            size = each * product.rows // max(rows, 1), product.inner, width_of(loop, product, region.period), lanes
            if product.rounding:
                itemsize = INSTRUCTIONS[product.rounding].itemsize
                needs.append(Need(shared_fragments(*size), itemsize))
            else:
                needs.append(Need(shared_numbers(*size), ITEMSIZE))
    return needs


def _slices(inner: int, row: int, room: int) -> tuple[int, int]:
    """How many numbers of each row are staged at a time, and how many such slices lie in shared memory."""
    for slices in (1, 2):
        depth = min(inner, (room // row // slices - BESIDE) // SLICE * SLICE, STAGED // row // SLICE * SLICE)
        if depth == inner:
            return depth, slices
    return max(SLICE, depth), 2
