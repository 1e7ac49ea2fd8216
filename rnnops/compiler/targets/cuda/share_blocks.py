"""How blocks share out a loop over steps, by the predicted cost of a step, and the contents of their shared memory.

**Blocks** form groups. A group owns rows of the batch, and its members share out the features that these rows need. A
member keeps its columns of all recurrent weights in shared memory for all steps of a tile. As few members as hold the
weights are best, since each reads the whole state of its group's rows at every step. The remaining blocks form further
groups, of four rows at least, as many as a lane multiplies at once. If all blocks together cannot hold the weights, the
loop goes step by step from the host, with a launch for each product and for the elementwise work after it. The number
of members is the smallest that shares features as evenly as the largest possible number. If the predicted time of a
step is shorter so, members share out the inner axis of products (`loop.py`).

The period of features is that with the fewest waits a step (`loop.py`), then with the least work done by rows, then the
largest. Limits: one loop at a time is planned, from its sizes only.

**Loops with products on tensor cores**, which round their operands, are shared out like others, except for the numbers
that a block reads. Weights for tensor cores lie as fragments, 16 bits each if they are rounded to bfloat16 or float16,
and 16 rows are multiplied at once. The predicted cost of a step decides the number of groups. With more groups a block
reads fewer rows, and has more columns. Products of such a loop that round nothing keep their weights as they are.
Limits: members share out only columns, and each reads the whole left side of its group's rows.

**The predicted cost of a step, in microseconds**: a model, for devices that are not at hand. A step is a sum of parts
that follow each other. Each product reads its left side from L2 into shared memory, a slice while the one before is
multiplied. If blocks share out its inner axis, a product reads a block's own numbers instead, writes partial sums to L2
and reads those of others. Blocks wait for each other, and the rest takes some time. On tensor cores a product takes the
longest of three times: reads of shared memory, multiply-adds, and a warp's latency from one chunk of k to the next.
The source of every constant stands next to it. The model is for an H100 and float32, and it is optimistic. Limits: of
all parts, only the writes of a block hide behind another part. Blocks are as busy as the busiest. L2 has its latency
and its bandwidth, for reads and for writes, whatever the traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from operator import index
from typing import NamedTuple

import numpy as np

from rnnops.compiler.lower.kernel import Parameter
from rnnops.compiler.lower.scan import Scan, StepPlan, rows_of_sum
from rnnops.compiler.lower.statements import Node, Stage, StepProduct
from rnnops.compiler.targets.cuda.lane_nests import LANES
from rnnops.compiler.targets.cuda.loop import (
    BY_ROWS,
    PARTIAL,
    TOTAL,
    Loop,
    LoopRegion,
    Sharing,
    copies_of_sums,
    periods,
    place_barriers,
    places_of_sums,
    regions_of,
    shared_by_rows,
    steps_stand_apart,
    with_split_products,
)
from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import choose
from rnnops.kernels.cuda.lane_functions import BATCH
from rnnops.kernels.cuda.step_product import (
    TILE,
    PartialSums,
    SharedNumbers,
    kept_rows,
    padded,
    partial_sums,
    shared_numbers,
    staged_width,
)
from rnnops.kernels.cuda.step_product_tensor import (
    BESIDE,
    SLICE,
    SUMS_OF_WARPS,
    shared_fragments,
    sums_name,
    tiles_of,
    times_of,
)
from rnnops.kernels.cuda.tensor_cores import CHUNK, INSTRUCTIONS, OF_TILE, ROWS, WARP
from rnnops.sizes import guarded

CLOCK = 1.755e3  # cycles a microsecond: boost clock of an H100 SXM
MULTIPROCESSORS = 132  # of an H100 SXM
SHARED_BYTES = 232448  # of shared memory that a block may have, compute capability 9.0 (CUDA C++ Programming Guide)
NUMBERS = 7  # numbers that the cycles of a product depend on
ROUND_TRIP = 270  # cycles to L2 and back on an H100, by published microbenchmarks
L2_BYTES = 5120 / MULTIPROCESSORS  # a cycle and multiprocessor: NVIDIA's A100 whitepaper about its L2
FMAS = 128  # a cycle and multiprocessor, compute capability 9.0 (CUDA C++ Programming Guide, arithmetic instructions)
BANK_BYTES = 128  # of shared memory a cycle: 32 banks of 4 bytes (the same guide)
SMALL_WORK = 0.55  # sums of lanes added up, elementwise work, stores: counted in the loop's machine code
GROUP_WAIT = 3 * ROUND_TRIP / CLOCK  # the block's writes reach L2, then its addition does, then a read comes back
PREACTIVATION = ROUND_TRIP / CLOCK  # a read from L2, into which it was fetched; from memory it takes some 600 cycles


REST = SMALL_WORK + PREACTIVATION


def step_time(loop: Loop, batch: int) -> float:
    """Microseconds of a step.

    Args:
        loop: with the shares of blocks.
        batch: rows of all groups.
    """
    cycles = sum(region_cycles(region.part, numbers) for region, numbers in _products(loop, batch))
    return len(loop.waits) * GROUP_WAIT + REST + cycles / CLOCK


def cheapest(loops: Sequence[Loop], batch: int) -> Loop:
    """The loop whose steps take the least predicted time."""
    products = [[(region.part, numbers) for region, numbers in _products(loop, batch)] for loop in loops]
    parts = [[part for part, _ in some] for some in products]
    waits = [len(loop.waits) for loop in loops]
    numbers = [number for some in products for _, numbers in some for number in numbers]
    found: int = guarded(partial(_cheapest, parts, waits), numbers)
    return loops[found]


def _cheapest(parts: Sequence[Sequence[str]], waits: Sequence[int], numbers: Sequence[int]) -> tuple[int, bool]:
    """The number of the cheapest loop, and False because costs are not linear in sizes."""
    given, times = iter(numbers), []
    for some, count in zip(parts, waits, strict=True):
        cycles = sum(region_cycles(part, [next(given) for _ in range(NUMBERS)]) for part in some)
        times.append(cycles / CLOCK + count * GROUP_WAIT)
    return times.index(min(times)), False


def _products(loop: Loop, batch: int) -> Iterator[tuple[LoopRegion, tuple[int, ...]]]:
    """Regions with a product, and the numbers that its cost depends on."""
    sharing = loop.sharing(batch)
    for number, region in enumerate(loop.regions):
        product = region.product
        if product:
            sizes = product.inner, product.columns, region.period, loop.members, loop.depth
            stays = len(loop.products) == 1 and loop.regions[number - 1].period != BY_ROWS  # see `mirrored`
            yield region, (padded(sharing.rows_of(product)), *sizes, int(stays))


def region_cycles(part: str, numbers: Sequence[int]) -> float:
    """Cycles of a product, or of a half of it.

    Args:
        numbers: rows, inner, columns, period of features, members, numbers of a slice of k, and 1 if a block's
            numbers of the left side are in shared memory already.
    """
    rows, inner, columns, period, members, depth, stays = numbers
    own = -(-period // members)
    if part == PARTIAL:
        return partial_cycles(inner // period * own, partial_sums(rows, columns, period, members), bool(stays))
    if part == TOTAL:
        return total_cycles(partial_sums(rows, columns, period, members))
    return product_cycles(rows, inner, depth, multiply_cycles(rows, inner, columns // period * own))


def partial_cycles(inner: int, sums: PartialSums, stays: bool) -> float:
    """Cycles in which a block reads its own numbers of a left side, multiplies them and writes partial sums.

    Partial sums of some tiles are being written while others are multiplied.

    Args:
        inner: numbers of a row that the block has.
        stays: whether these are in shared memory already.
    """
    read = 0.0 if stays else ROUND_TRIP + sums.height * inner * 4 / L2_BYTES
    passes = -(-sums.members * sums.of_member // TILE**2 // LANES)
    multiply = multiply_cycles(sums.height, inner, sums.members * sums.width) / passes
    write = sums.members * sums.of_member * 4 / L2_BYTES / passes
    time: float = read + multiply + (passes - 1) * max(multiply, write) + write
    return time


def total_cycles(sums: PartialSums) -> float:
    """Cycles in which a block reads partial sums of all members for its features. Lanes share out members, and numbers
    in groups of four."""
    batches, left = 0, sums.of_member // TILE
    while left > 0:
        together = min(LANES, left)
        batches += -(-sums.members // (LANES // together) // BATCH)
        left -= together
    read: float = batches * ROUND_TRIP + sums.members * sums.of_member * 4 / L2_BYTES
    return read


def product_cycles(rows: int, inner: int, depth: int, multiply: float) -> float:
    """Cycles of a block's product and its reads, in slices of k: the next slice is read while one is multiplied.

    Args:
        multiply: cycles in which all slices are multiplied.
    """
    slices = -(-inner // depth)
    read = read_cycles(rows, inner, depth) / slices
    return read + (slices - 1) * max(read, multiply / slices) + multiply / slices


def read_cycles(rows: int, inner: int, depth: int) -> float:
    """Cycles in which a block reads a left side, slice after slice of k. All reads of a slice are in flight at once."""
    return -(-inner // depth) * ROUND_TRIP + rows * inner * 4 / L2_BYTES


def multiply_cycles(rows: int, inner: int, width: int) -> float:
    """Cycles of a block's product: multiply-adds, or reads of shared memory, of lanes of `TILE` x `TILE` sums each."""
    tiles = rows // TILE * (padded(width) // TILE)
    cycles, left = 0.0, tiles
    while left > 0:
        together = min(LANES, left)
        rounds = -(-padded(inner) // TILE // (LANES // together))  # of four numbers of k
        warps = LANES // 32
        multiply = warps * 32 * TILE**3 / FMAS
        fetch = warps * TILE * (1 + 32 * TILE * 4 / BANK_BYTES)  # rows are broadcast, columns lie side by side
        cycles += rounds * max(multiply, fetch)
        left -= together
    return cycles


WARPS = 8  # of our blocks (lane_nests.py)
TENSOR_FMAS = {
    4: 512,
    2: 1024,
}  # a cycle and multiprocessor by bytes of an operand: NVIDIA's A100 whitepaper, without sparsity
CHUNK_CYCLES = 65  # of two chunks: a read of shared memory, rounding, instructions that wait for each other (a guess)


def tensor_step_time(loop: Loop, batch: int) -> float:
    """Microseconds of a step.

    Args:
        batch: rows of all groups.
    """
    cycles = 0.0
    for region in loop.regions:
        product = region.product
        if product:
            rows, inner = loop.sharing(batch).rows_of(product), product.inner
            width = product.columns // region.period * -(-region.period // loop.members)
            multiply = multiply_cycles(padded(rows), inner, width)
            if product.rounding:
                multiply = tensor_cycles(rows, inner, width, INSTRUCTIONS[product.rounding].itemsize)
            cycles += product_cycles(rows, inner, loop.depth, multiply)
    return len(loop.waits) * GROUP_WAIT + REST + cycles / CLOCK


def tensor_cycles(rows: int, inner: int, width: int, itemsize: int) -> float:
    """Cycles of a block's product.

    Args:
        itemsize: bytes of a weight.
    """
    (tiles, groups), times = tiles_of(width), times_of(rows)
    each = min(rows, ROWS * times)
    chunk_bytes = each * CHUNK * 4 + tiles * OF_TILE * itemsize
    chunk_products = times * ROWS * tiles * OF_TILE
    cycles, left = 0.0, -(-rows // (ROWS * times)) * groups
    while left > 0:
        together = min(WARPS, left)
        splits = WARPS // together
        chunks = -(-inner // CHUNK // splits)
        all_chunks = chunks * splits * together
        fetch, multiply = all_chunks * chunk_bytes / BANK_BYTES, all_chunks * chunk_products / TENSOR_FMAS[itemsize]
        sums = 2 * together * splits * times * tiles * 4 * WARP * 4 / BANK_BYTES
        cycles += max(fetch, multiply, chunks * CHUNK_CYCLES) + sums
        left -= together
    return cycles


@dataclass(frozen=True)
class OnChip:
    """Places in shared memory, counted in numbers. They become the fields of `Loop` with these names."""

    weights: tuple[int, ...]
    staged: int
    depth: int
    sums: int
    numbers: int


def on_chip(regions: Sequence[LoopRegion], sharing: Sharing, lanes: int, room: int, per_number: int) -> OnChip:
    """Lay out the memory of a block.

    Args:
        room: numbers for which there is memory.
        per_number: weights that take the place of one number.
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
        inner = padded(max(product.inner for product in whole))
        depth, slices = _slices(inner, rows, max(0, room - end - sums), TILE, TILE)
    after = end + max(left, slices * rows * (depth + TILE))
    return OnChip(tuple(places), end, depth, after, after + sums)


def _weights(region: LoopRegion, product: StepProduct, sharing: Sharing) -> int:
    """The count of weights that a member keeps."""
    width = product.columns // region.period * -(-region.period // sharing.members)
    count: int = shared_numbers(0, product.inner, width, 0).weights
    if region.part:
        count = kept_rows(product.inner, region.period, sharing.sums_of(product, region.period))
    return count


STAGED = 16384  # the most numbers of a left side that are staged at once
LEAST_ROWS = 4  # the least rows of a group: with fewer, most multiplied rows would be missing ones
WORDS_OF_FRAGMENTS = "fragments"  # their name in kernels
ITEMSIZE = np.dtype("float32").itemsize


class Need(NamedTuple):
    """The shared memory of a product.

    Args:
        itemsize: bytes of a weight.
    """

    numbers: SharedNumbers
    itemsize: int


def rounding_of(nodes: Sequence[Node]) -> str:
    """The format to which operands of products are rounded; empty if none are."""
    return next((node.rounding for node in nodes if node.rounding), "")


def rounding_of_plan(plan: StepPlan) -> str:
    """The same for all products of a plan, including those that are loops over elements."""
    return rounding_of([node for stage in (*plan.stages, *plan.past_end) for node in stage.nodes])


def check_lanes(plan: StepPlan, lanes: int, net: str) -> None:
    """Raise DeviceError if products run on tensor cores, but blocks are not whole warps."""
    products = [node for stage in plan.stages if stage.loop for node in stage.nodes if isinstance(node, StepProduct)]
    if rounding_of(products) and lanes % WARP:
        raise DeviceError(
            "products of rounded operands take whole warps", net=net, wanted=f"a multiple of {WARP}", came=str(lanes)
        )


def share_tensor_loop(loop: Loop, rows: int, blocks: Blocks) -> Loop:
    """The loop with the groups whose steps take the least predicted time. It goes step by step if all blocks together
    cannot hold the weights.

    Args:
        loop: its regions and waits.
        rows: of the batch; 1 if there is no axis of the batch.
    """
    rows = index(rows)  # kernels are made for sizes
    parts = -(-rows // rows_of_sum(rows))
    widest = max((region.period for region in loop.regions), default=1) or 1
    possible = []
    for groups in range(1, max(1, min(blocks.count, parts, -(-rows // LEAST_ROWS))) + 1):
        wide = min(widest, blocks.count // groups)
        members = -(-widest // -(-widest // wide))  # the fewest that share features as evenly as `wide` members
        found = with_fragments(replace(loop, groups=groups, members=members), rows, blocks)
        if found.numbers * ITEMSIZE <= blocks.shared_bytes:
            possible.append(found)
    if possible:
        return min(possible, key=lambda one: tensor_step_time(one, rows))
    groups = max(1, min(parts, blocks.count))
    return replace(loop, persistent=False, groups=groups, members=max(1, min(widest, blocks.count // groups)))


def with_fragments(loop: Loop, rows: int, blocks: Blocks) -> Loop:
    """The loop with its shared memory laid out: weights, rows of a left side, sums of lanes.

    Sums lie in the place of the left side, unless one of the products rounds nothing.
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
    depth, slices = _slices(-(-inner // SLICE) * SLICE, row, room, SLICE, BESIDE)
    staged = slices * row * (depth + BESIDE)
    first = end + staged if apart else end
    numbers = max(end + staged, first + sums)
    return replace(loop, weights=tuple(places), staged=end, depth=depth, sums=first, numbers=numbers)


def width_of(loop: Loop, product: StepProduct, period: int) -> int:
    """The most columns that a member has."""
    return product.columns // period * -(-period // loop.members)


def warps_of(loop: Loop, product: StepProduct, period: int, rows: int) -> tuple[int, int, int]:
    """Tiles of a warp, its rows divided by 16, and the groups of tiles in shared memory.

    Args:
        rows: of the batch.
    """
    tiles, groups = tiles_of(width_of(loop, product, period))
    return tiles, times_of(rows_of(loop, product, rows)), groups


def fragments_of(products: Iterable[StepProduct | None]) -> tuple[Parameter, ...]:
    """The memory of kernels with products on tensor cores: fragments of weights, and sums that begin with zeros."""
    rounding = rounding_of([product for product in products if product])
    if not rounding:
        return ()
    words = Parameter(WORDS_OF_FRAGMENTS, f"uint{8 * INSTRUCTIONS[rounding].itemsize}[]")
    return words, *(Parameter(sums_name(*sizes), "float32[]") for sizes in SUMS_OF_WARPS)


def instruction_lines(loop: Loop) -> Iterator[str]:
    """The lines about a loop's products in a printed plan."""
    rounding = rounding_of(loop.products)
    if rounding:
        yield f"products of a step: {INSTRUCTIONS[rounding].short}, sums in float32"


def rows_of(loop: Loop, product: StepProduct, rows: int) -> int:
    """The most rows of a product's left side that a group has."""
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


def _slices(inner: int, row: int, room: int, unit: int, gap: int) -> tuple[int, int]:
    """The numbers of each row in a slice, and the count of slices in shared memory.

    If a slice is not the whole row, there are two: one is read while the other is multiplied.

    Args:
        row: numbers that one more k adds to a slice.
        unit, gap: a slice is a multiple of `unit`, and its rows lie `gap` more numbers apart.
    """
    for slices in (1, 2):
        depth = min(inner, (room // row // slices - gap) // unit * unit, STAGED // row // unit * unit)
        if depth == inner:
            return depth, slices
    return max(unit, depth), 2


WAVES = choose(8, 1)  # blocks for each one that runs at a time, if none waits: reads and writes of memory overlap
NARROW = 8  # a period that is this many times smaller than the widest leaves blocks without work


@dataclass(frozen=True)
class Blocks:
    """The resources of a device for one launch.

    Args:
        count: blocks that run at the same time.
        lanes: threads of a block.
        shared_bytes: of shared memory that a block may ask for.
        split: whether members share out the inner axis of products wherever they can; None to do so if it is cheaper.
    """

    count: int
    lanes: int
    shared_bytes: int
    split: bool | None = None


def share_loop(scan: Scan, plan: StepPlan, stage: Stage, blocks: Blocks, dtype: str, weights: str) -> Loop:
    """The loop of a stage, with the shares of its blocks.

    Args:
        dtype: of products.
        weights: the dtype in which shared memory keeps weights.
    """
    itemsize, per_number = np.dtype(dtype).itemsize, np.dtype(dtype).itemsize // np.dtype(weights).itemsize
    regions, waits = _with_fewest_waits(scan, plan, stage)
    rows = scan.batch if plan.batch_axes else 1
    parts = -(-rows // rows_of_sum(rows))
    if any(shared_by_rows(region.written, plan) for region in regions):  # a block without rows would have no copy
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
    regions: tuple[LoopRegion, ...], waits: frozenset[int], rows: int, blocks: Blocks, itemsize: int, per_number: int
) -> Loop:
    """A loop with products, its groups and members. It goes step by step if all blocks cannot hold the weights."""
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
        per_number: weights that take the place of one number.
    """
    room = blocks.shared_bytes // itemsize
    return replace(loop, **vars(on_chip(loop.regions, loop.sharing(rows), blocks.lanes, room, per_number)))


def _split(
    scan: Scan, plan: StepPlan, whole: Loop, rows: int, blocks: Blocks, itemsize: int, per_number: int
) -> Loop | None:
    """The loop with the inner axis of products shared out. None if no product is split, or memory is too small."""
    sharing = whole.sharing(rows)
    regions = with_split_products(whole.regions, sharing, whatever_it_costs=bool(blocks.split))
    copies = copies_of_sums(regions, sharing, itemsize)
    if len(regions) == len(whole.regions) or not copies:
        return None
    loop = _shared(regions, place_barriers(scan, plan, regions, copies), rows, blocks, itemsize, per_number)
    if not loop.persistent:
        return None
    return replace(loop, copies=copies, partials=places_of_sums(regions, loop.sharing(rows), copies))


def _rows_meet(plan: StepPlan, regions: Sequence[LoopRegion], rows: int) -> bool:
    """True if several rows add to one sum."""
    by_row = {owner for region in regions for owner in region.written if plan.accumulators.get(owner)}
    return bool(by_row) and rows_of_sum(rows) > 1


def _with_fewest_waits(scan: Scan, plan: StepPlan, stage: Stage) -> tuple[tuple[LoopRegion, ...], frozenset[int]]:
    found = periods(stage)
    wide = [period for period in found if period * NARROW >= found[0]]
    best: tuple[tuple[int, int, int], tuple[LoopRegion, ...], frozenset[int]] | None = None
    for period in wide or [BY_ROWS]:
        regions = tuple(regions_of(stage, plan, period))
        waits = place_barriers(scan, plan, regions)
        rank = (len(waits), _work_by_rows(regions), -period)
        if best is None or rank < best[0]:
            best = rank, regions, waits
    assert best is not None
    return best[1], best[2]


def _work_by_rows(regions: Sequence[LoopRegion]) -> int:
    statements = [s for region in regions if region.period == BY_ROWS for s in region.statements]
    return sum(prod(statement.extents) for statement in statements)
