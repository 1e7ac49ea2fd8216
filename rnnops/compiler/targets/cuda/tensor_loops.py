"""Loops over steps whose products round their operands, and run on tensor cores: who has what, and where it lies.

Blocks share out such a loop as any other (`share_blocks.py`), but for what a block reads: weights for tensor cores lie
as fragments, 16 bits each where they are rounded to bfloat16 or float16, and rows are multiplied 16 at once. How many
groups there are a model of what a step costs says (`tensor_cost.py`): with more of them a block reads fewer rows, and
has more columns. Products of such a loop that round nothing keep their weights as they are.
Limits: members share out columns alone, each reads the whole left side of its group's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rnnops.compiler.ir.kernel import Parameter
from rnnops.compiler.ir.nodes import Node, Product
from rnnops.compiler.schedule.step_plan import StepPlan, rows_of_sum
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.tensor_cost import tensor_step_time
from rnnops.errors import DeviceError
from rnnops.kernels.cuda.matrix_fragments import INSTRUCTIONS, WARP
from rnnops.kernels.cuda.step_product import SharedNumbers, padded, shared_numbers
from rnnops.kernels.cuda.step_product_tensor import (
    BESIDE,
    SLICE,
    SUMS_OF_WARPS,
    shared_fragments,
    sums_name,
    tiles_of,
    times_of,
)

if TYPE_CHECKING:  # it is called from there
    from rnnops.compiler.targets.cuda.share_blocks import Blocks

STAGED = 16384  # numbers of a left side that are staged at once, at most
LEAST_ROWS = 4  # of a group: where it has fewer, rows that are missing are most of what is multiplied
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
    """The groups whose steps should take least time; step by step where all blocks cannot hold the weights.

    Args:
        loop: its regions and waits.
        rows: of the batch, 1 where no axis is one.
    """
    rows = index(rows)  # kernels are made for sizes
    parts = -(-rows // rows_of_sum(rows))
    widest = max((region.period for region in loop.regions), default=1) or 1
    possible = []
    for groups in range(1, max(1, min(blocks.count, parts, -(-rows // LEAST_ROWS))) + 1):
        wide = min(widest, blocks.count // groups)
        members = -(-widest // -(-widest // wide))  # as many as share features as evenly as all would
        found = with_fragments(replace(loop, groups=groups, members=members), rows, blocks)
        if found.numbers * ITEMSIZE <= blocks.shared_bytes:
            possible.append(found)
    if possible:
        return min(possible, key=lambda one: tensor_step_time(one, rows))
    groups = max(1, min(parts, blocks.count))
    return replace(loop, persistent=False, groups=groups, members=max(1, min(widest, blocks.count // groups)))


def with_fragments(loop: Loop, rows: int, blocks: Blocks) -> Loop:
    """The loop with its shared memory laid out: weights, rows of a left side, sums of lanes.

    Sums lie where the left side was, unless a product that rounds nothing is among the others.
    """
    needs = _needs(loop, rows, blocks.lanes)
    places, end = [], 0
    for need in needs:
        places.append(end * ITEMSIZE // need.itemsize)
        end += padded(-(-need.numbers.weights * need.itemsize // ITEMSIZE))
    row, sums = max(need.numbers.row for need in needs), max(need.numbers.sums for need in needs)
    apart = any(not product.rounding for product in loop.products)
    room = max(0, blocks.shared_bytes // ITEMSIZE - end - (sums if apart else 0))
    inner = max(product.inner for product in loop.products)
    depth, slices = _slices(-(-inner // SLICE) * SLICE, row, room)
    staged = slices * row * (depth + BESIDE)
    first = end + staged if apart else end
    numbers = max(end + staged, first + sums)
    return replace(loop, weights=tuple(places), staged=end, depth=depth, sums=first, numbers=numbers)


def width_of(loop: Loop, product: Product, period: int) -> int:
    """Columns of the member that has most."""
    return product.columns // period * -(-period // loop.members)


def warps_of(loop: Loop, product: Product, period: int, rows: int) -> tuple[int, int, int]:
    """Tiles of a warp, how many times 16 rows it has, and how many groups of tiles lie in shared memory.

    Args:
        rows: of the batch.
    """
    tiles, groups = tiles_of(width_of(loop, product, period))
    return tiles, times_of(rows_of(loop, product, rows)), groups


def fragments_of(products: Iterable[Product | None]) -> tuple[Parameter, ...]:
    """What kernels with such products have beside other memory: words of fragments, sums to begin with."""
    rounding = rounding_of([product for product in products if product])
    if not rounding:
        return ()
    words = Parameter(WORDS_OF_FRAGMENTS, f"uint{8 * INSTRUCTIONS[rounding].itemsize}[]")
    return words, *(Parameter(sums_name(*sizes), "float32[]") for sizes in SUMS_OF_WARPS)


def instruction_lines(loop: Loop) -> Iterator[str]:
    """What a plan says of the products of a loop."""
    rounding = rounding_of(loop.products)
    if rounding:
        yield f"products of a step: {INSTRUCTIONS[rounding].short}, sums in float32"


def rows_of(loop: Loop, product: Product, rows: int) -> int:
    """Rows of a product's left side in the group that has most."""
    together = rows_of_sum(rows)
    parts = -(-rows // together)
    each = min(rows, -(-parts // loop.groups) * together)
    return each * product.rows // max(rows, 1)


def _needs(loop: Loop, rows: int, lanes: int) -> list[Need]:
    needs = []
    for region in loop.regions:
        product = region.product
        if product:
            width = width_of(loop, product, region.period)
            size = rows_of(loop, product, rows), product.inner, width, lanes
            if product.rounding:
                needs.append(Need(shared_fragments(*size), INSTRUCTIONS[product.rounding].itemsize))
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
