"""What a step of a loop on a CUDA device should cost, in microseconds: a model, for devices that are not at hand.

A step is a sum of parts that follow each other: each product reads its left side from L2 into shared memory, a slice
while the one before is multiplied; or, where blocks share out its inner axis, reads its own numbers of it, writes
partial sums to L2 and reads those of others; blocks wait for each other, and some time goes to all the rest. Every
constant has its source beside it. It is for an H100 and float32, and an optimist's. Limits: no other part hides behind
another, blocks are as busy as the busiest, L2 gives its latency and its bytes, and takes as many, whatever the traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.compiler.targets.cuda.cyclic_distribution import PARTIAL
from rnnops.compiler.targets.cuda.share_blocks import Loop
from rnnops.kernels.cuda.fours import BATCH
from rnnops.kernels.cuda.split_product import PartialSums, partial_sums
from rnnops.kernels.cuda.step_product import TILE, padded

CLOCK = 1.755e3  # cycles a microsecond: boost clock of an H100 SXM
MULTIPROCESSORS = 132  # of an H100 SXM
SHARED_BYTES = 232448  # of shared memory a block may have, compute capability 9.0 (CUDA C++ Programming Guide)
LANES = 256  # of our blocks (share_lanes.py)
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
    rows = padded(-(-batch // loop.groups))
    time = len(loop.waits) * habits.wait + habits.rest
    for region in loop.regions:
        product = region.product
        if product and region.part:
            sums = partial_sums(rows, product.columns, region.period, loop.members)
            inner = product.inner // region.period * -(-region.period // loop.members)
            time += (partial_cycles(inner, sums) if region.part == PARTIAL else total_cycles(sums)) / CLOCK
        elif product:
            width = product.columns // region.period * -(-region.period // loop.members)
            multiply = multiply_cycles(rows, product.inner, width)
            time += product_cycles(rows, product.inner, loop.depth, multiply, habits) / CLOCK
    return time


def partial_cycles(inner: int, sums: PartialSums) -> float:
    """Cycles in which a block reads its own numbers of a left side, multiplies them and writes partial sums.

    Args:
        inner: numbers of a row that it has.
    """
    read = ROUND_TRIP + sums.height * inner * 4 / L2_BYTES
    written = sums.members * sums.of_member * 4 / L2_BYTES
    return read + multiply_cycles(sums.height, inner, sums.members * sums.width) + written


def total_cycles(sums: PartialSums) -> float:
    """Cycles in which a block reads partial sums of all members for its features; lanes share out fours and members."""
    time, left = 0.0, sums.of_member // TILE
    while left > 0:
        together = min(LANES, left)
        batches = -(-sums.members // (LANES // together) // BATCH)
        time += batches * ROUND_TRIP
        left -= together
    return time + sums.members * sums.of_member * 4 / L2_BYTES


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
