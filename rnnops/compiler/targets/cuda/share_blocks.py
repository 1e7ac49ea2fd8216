"""How blocks of a CUDA device share out a loop over steps, and what each keeps in its shared memory.

Blocks form groups; a group owns rows of the batch, and its members share out the features of what these rows need. A
member keeps its columns of all recurrent weights in shared memory for all steps of a tile. As few members as hold the
weights are best, since each reads the whole state of its group's rows at every step; what blocks are left form further
groups, of four rows at least, as many as a lane multiplies at once. Where all blocks together cannot hold the weights,
the loop goes step by step from the host, a product and the elementwise work after it each a launch. Members are no
more than share features as evenly as that many would. Where steps should take less time so (`step_cost.py`), members
share out the inner axis of products (`split_products.py`).

The period of features is that with the fewest waits a step (`place_barriers.py`), then with the least work done by
rows, then the largest. Limits: one loop at a time is planned, from its sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from rnnops.compiler.ir.nodes import Stage
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.schedule.step_plan import StepPlan, rows_of_sum
from rnnops.compiler.targets.cuda.cyclic_distribution import (
    BY_ROWS,
    Region,
    periods,
    regions_of,
    shared_by_rows,
)
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.on_chip import on_chip
from rnnops.compiler.targets.cuda.place_barriers import place_barriers, steps_stand_apart
from rnnops.compiler.targets.cuda.split_products import (
    copies_of_sums,
    places_of_sums,
    with_split_products,
)
from rnnops.compiler.targets.cuda.step_cost import cheapest
from rnnops.compiler.targets.cuda.tensor_loops import rounding_of, share_tensor_loop
from rnnops.kernels.cuda.facade import choose
from rnnops.kernels.cuda.step_product import TILE

WAVES = choose(8, 1)  # blocks for each that runs at a time, where none waits: reads and writes of memory overlap
NARROW = 8  # a period this many times smaller than the widest leaves blocks without work


@dataclass(frozen=True)
class Blocks:
    """What a device offers to one launch.

    Args:
        count: blocks that run at the same time.
        lanes: threads of a block.
        shared_bytes: of shared memory that a block may ask for.
        split: whether members share out the inner axis of products wherever they can; None where it is cheaper.
    """

    count: int
    lanes: int
    shared_bytes: int
    split: bool | None = None


def share_loop(scan: Scan, plan: StepPlan, stage: Stage, blocks: Blocks, dtype: str, weights: str) -> Loop:
    """Share out a loop.

    Args:
        dtype: of products.
        weights: the dtype in which shared memory keeps them.
    """
    itemsize, per_number = np.dtype(dtype).itemsize, np.dtype(dtype).itemsize // np.dtype(weights).itemsize
    regions, waits = _with_fewest_waits(scan, plan, stage)
    rows = scan.batch if plan.batch_axes else 1
    parts = -(-rows // rows_of_sum(rows))
    if any(shared_by_rows(region.written, plan) for region in regions):  # a block without rows would have no copy of it
        blocks = replace(blocks, count=min(blocks.count, parts))
    products = [region for region in regions if region.product]
    widest = max((region.period for region in regions), default=1) or 1
    if not products:
        apart = not stage.cyclic and not _rows_meet(plan, regions, rows) and steps_stand_apart(scan, plan, regions)
        count = blocks.count * (WAVES if apart else 1)
        groups = max(1, min(parts, count))
        return Loop(regions, waits, True, groups, max(1, min(widest, count // groups)), apart)
    if rounding_of([region.product for region in products if region.product]):
        return share_tensor_loop(Loop(regions, waits, True, 1, 1), rows, blocks)
    whole = _shared(regions, waits, rows, blocks, itemsize, per_number)
    if not whole.persistent or blocks.split is False:
        return whole
    split = _split(scan, plan, whole, rows, blocks, itemsize, per_number)
    if split is None or blocks.split:
        return split or whole
    return cheapest([whole, split], rows)


def _shared(
    regions: tuple[Region, ...], waits: frozenset[int], rows: int, blocks: Blocks, itemsize: int, per_number: int
) -> Loop:
    """Groups and members for a loop with products; step by step where all blocks together cannot hold the weights."""
    parts = -(-rows // rows_of_sum(rows))
    widest = max((region.period for region in regions), default=1) or 1
    for members in range(1, min(blocks.count, widest) + 1):
        groups = max(1, min(blocks.count // members, -(-parts // TILE)))
        loop = Loop(regions, waits, True, groups, members)
        if _with_memory(loop, rows, blocks, itemsize, per_number).numbers * itemsize <= blocks.shared_bytes:
            wide = min(widest, blocks.count // groups)
            loop = replace(loop, members=-(-widest // -(-widest // wide)))
            return _with_memory(loop, rows, blocks, itemsize, per_number)
    groups = max(1, min(parts, blocks.count))
    return Loop(regions, waits, False, groups, max(1, min(widest, blocks.count // groups)))


def _with_memory(loop: Loop, rows: int, blocks: Blocks, itemsize: int, per_number: int) -> Loop:
    """The loop with its shared memory laid out.

    Args:
        itemsize: bytes of a number.
        per_number: weights that take the place of one.
    """
    room = blocks.shared_bytes // itemsize
    return replace(loop, **vars(on_chip(loop.regions, loop.sharing(rows), blocks.lanes, room, per_number)))


def _split(
    scan: Scan, plan: StepPlan, whole: Loop, rows: int, blocks: Blocks, itemsize: int, per_number: int
) -> Loop | None:
    """The loop with the inner axis of products shared out, None where none is, or memory does not suffice."""
    sharing = whole.sharing(rows)
    regions = with_split_products(whole.regions, sharing, whatever_it_costs=bool(blocks.split))
    copies = copies_of_sums(regions, sharing, itemsize)
    if len(regions) == len(whole.regions) or not copies:
        return None
    loop = _shared(regions, place_barriers(scan, plan, regions, copies), rows, blocks, itemsize, per_number)
    if not loop.persistent:
        return None
    return replace(loop, copies=copies, partials=places_of_sums(regions, loop.sharing(rows), copies))


def _rows_meet(plan: StepPlan, regions: Sequence[Region], rows: int) -> bool:
    """Whether several rows add to one sum."""
    by_row = {owner for region in regions for owner in region.written if plan.accumulators.get(owner)}
    return bool(by_row) and rows_of_sum(rows) > 1


def _with_fewest_waits(scan: Scan, plan: StepPlan, stage: Stage) -> tuple[tuple[Region, ...], frozenset[int]]:
    found = periods(stage)
    wide = [period for period in found if period * NARROW >= found[0]]
    best: tuple[tuple[int, int, int], tuple[Region, ...], frozenset[int]] | None = None
    for period in wide or [BY_ROWS]:
        regions = tuple(regions_of(stage, plan, period))
        waits = place_barriers(scan, plan, regions)
        rank = (len(waits), _work_by_rows(regions), -period)
        if best is None or rank < best[0]:
            best = rank, regions, waits
    assert best is not None
    return best[1], best[2]


def _work_by_rows(regions: Sequence[Region]) -> int:
    statements = [s for region in regions if region.period == BY_ROWS for s in region.statements]
    return sum(prod(statement.extents) for statement in statements)
