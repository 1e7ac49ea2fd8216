"""The predicted time of a step on a CUDA device, without and with tensor cores.

**What a step of a loop on a CUDA device should cost, in microseconds**: a model, for devices that are not at hand. A
step is a sum of parts that follow each other: each product reads its left side from L2 into shared memory, a slice
while the one before is multiplied; or, where blocks share out its inner axis, reads its own numbers of it, writes
partial sums to L2 and reads those of others; blocks wait for each other, and some time goes to all the rest. Every
constant has its source beside it. It is for an H100 and float32, and an optimist's. Limits: no other part hides behind
another but what a block writes, blocks are as busy as the busiest, L2 gives its latency and its bytes, and takes as
many, whatever the traffic.

**What a step of a loop should cost whose products run on tensor cores**: beside `step_cost.py`, with its constants. A
product takes the longest of three: what is read of shared memory, multiply-adds, and how long a warp takes from one
chunk of k to the next. Limits: those of `step_cost.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rnnops.compiler.targets.cuda.lane_nests import LANES
from rnnops.compiler.targets.cuda.loop import BY_ROWS, PARTIAL, TOTAL, Loop, LoopRegion
from rnnops.kernels.cuda.split_product import PartialSums, partial_sums
from rnnops.kernels.cuda.step_product import TILE, padded
from rnnops.kernels.cuda.step_product_tensor import tiles_of, times_of
from rnnops.kernels.cuda.tensor_cores import CHUNK, INSTRUCTIONS, OF_TILE, ROWS, WARP
from rnnops.kernels.cuda.tiles import BATCH
from rnnops.symbolic.sizes import guarded

CLOCK = 1.755e3  # cycles a microsecond: boost clock of an H100 SXM
MULTIPROCESSORS = 132  # of an H100 SXM
SHARED_BYTES = 232448  # of shared memory a block may have, compute capability 9.0 (CUDA C++ Programming Guide)
NUMBERS = 7  # that the cycles of a product depend on
ROUND_TRIP = 270  # cycles to L2 and back on an H100, by published microbenchmarks
L2_BYTES = 5120 / MULTIPROCESSORS  # a cycle and multiprocessor: what NVIDIA's A100 whitepaper says of its L2
FMAS = 128  # a cycle and multiprocessor, compute capability 9.0 (CUDA C++ Programming Guide, arithmetic instructions)
BANK_BYTES = 128  # of shared memory a cycle: 32 banks of 4 bytes (the same guide)
SMALL_WORK = 0.55  # sums of lanes added up, elementwise work, stores: counted in the loop's machine code
GROUP_WAIT = 3 * ROUND_TRIP / CLOCK  # the block's writes have reached L2, its addition does, a read comes back
PREACTIVATION = ROUND_TRIP / CLOCK  # from L2, where it was fetched to; some 600 cycles from memory behind it


@dataclass(frozen=True)
class Habits:
    """How the kernels do it.

    Args:
        load_bytes: that a lane reads at once of a left side.
        in_flight: such reads before the first one is waited for; 0 for all of a slice.
        wait: microseconds in which blocks wait for each other.
        rest: microseconds of all that is not read, multiplied or waited for.
    """

    load_bytes: int
    in_flight: int
    wait: float
    rest: float


NOW = Habits(load_bytes=16, in_flight=0, wait=GROUP_WAIT, rest=SMALL_WORK + PREACTIVATION)


def step_time(loop: Loop, batch: int, habits: Habits = NOW) -> float:
    """Microseconds of a step.

    Args:
        loop: as blocks share it out.
        batch: rows of all groups.
    """
    cycles = sum(region_cycles(region.part, numbers, habits) for region, numbers in _products(loop, batch))
    return len(loop.waits) * habits.wait + habits.rest + cycles / CLOCK


def cheapest(loops: Sequence[Loop], batch: int) -> Loop:
    """The loop whose steps take least time."""
    products = [[(region.part, numbers) for region, numbers in _products(loop, batch)] for loop in loops]
    parts = [[part for part, _ in some] for some in products]
    waits = [len(loop.waits) for loop in loops]
    numbers = [number for some in products for _, numbers in some for number in numbers]
    found: int = guarded(partial(_cheapest, parts, waits), numbers)
    return loops[found]


def _cheapest(parts: Sequence[Sequence[str]], waits: Sequence[int], numbers: Sequence[int]) -> tuple[int, bool]:
    """The number of the loop, and that costs are not linear in sizes."""
    given, times = iter(numbers), []
    for some, count in zip(parts, waits, strict=True):
        cycles = sum(region_cycles(part, [next(given) for _ in range(NUMBERS)], NOW) for part in some)
        times.append(cycles / CLOCK + count * NOW.wait)
    return times.index(min(times)), False


def _products(loop: Loop, batch: int) -> Iterator[tuple[LoopRegion, tuple[int, ...]]]:
    """Regions with a product, and what that costs depends on."""
    sharing = loop.sharing(batch)
    for number, region in enumerate(loop.regions):
        product = region.product
        if product:
            sizes = product.inner, product.columns, region.period, loop.members, loop.depth
            stays = len(loop.products) == 1 and loop.regions[number - 1].period != BY_ROWS  # see row_kernels.py
            yield region, (padded(sharing.rows_of(product)), *sizes, int(stays))


def region_cycles(part: str, numbers: Sequence[int], habits: Habits) -> float:
    """Cycles of a product, or of a half of it.

    Args:
        numbers: rows, inner, columns, period of features, members, numbers of a slice of k, and 1 where a block's
            numbers of the left side are in shared memory.
    """
    rows, inner, columns, period, members, depth, stays = numbers
    own = -(-period // members)
    if part == PARTIAL:
        return partial_cycles(inner // period * own, partial_sums(rows, columns, period, members), bool(stays))
    if part == TOTAL:
        return total_cycles(partial_sums(rows, columns, period, members))
    return product_cycles(rows, inner, depth, multiply_cycles(rows, inner, columns // period * own), habits)


def partial_cycles(inner: int, sums: PartialSums, stays: bool) -> float:
    """Cycles in which a block reads its own numbers of a left side, multiplies them and writes partial sums.

    Those of some tiles are on their way while others are multiplied.

    Args:
        inner: numbers of a row that it has.
        stays: whether they are in shared memory.
    """
    read = 0.0 if stays else ROUND_TRIP + sums.height * inner * 4 / L2_BYTES
    passes = -(-sums.members * sums.of_member // TILE**2 // LANES)
    multiply = multiply_cycles(sums.height, inner, sums.members * sums.width) / passes
    write = sums.members * sums.of_member * 4 / L2_BYTES / passes
    time: float = read + multiply + (passes - 1) * max(multiply, write) + write
    return time


def total_cycles(sums: PartialSums) -> float:
    """Cycles in which a block reads partial sums of all members for its features; lanes share out fours and members."""
    batches, left = 0, sums.of_member // TILE
    while left > 0:
        together = min(LANES, left)
        batches += -(-sums.members // (LANES // together) // BATCH)
        left -= together
    read: float = batches * ROUND_TRIP + sums.members * sums.of_member * 4 / L2_BYTES
    return read


def product_cycles(rows: int, inner: int, depth: int, multiply: float, habits: Habits) -> float:
    """Cycles of a block's product and of what it reads, slice by slice of k: the next comes while one is multiplied.

    Args:
        multiply: cycles that all slices are multiplied in.
    """
    slices = -(-inner // depth)
    read = read_cycles(rows, inner, depth, habits) / slices
    if habits.in_flight:
        return read * slices + multiply
    return read + (slices - 1) * max(read, multiply / slices) + multiply / slices


def read_cycles(rows: int, inner: int, depth: int, habits: Habits) -> float:
    """Cycles in which a block reads a left side, a slice of k after the other.

    Reads in flight come back together, and others after them, but never faster than L2 gives.
    """
    reads = -(-rows * inner * 4 // (LANES * habits.load_bytes))
    slices, given = -(-inner // depth), rows * inner * 4 / L2_BYTES
    if habits.in_flight:
        return max(-(-reads // habits.in_flight) * ROUND_TRIP, given)
    return slices * ROUND_TRIP + given


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
CHUNK_CYCLES = 65  # two at a time: a read of shared memory, rounding, instructions that wait for each other: a guess


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
            cycles += product_cycles(rows, inner, loop.depth, multiply, NOW)
    return len(loop.waits) * NOW.wait + NOW.rest + cycles / CLOCK


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
