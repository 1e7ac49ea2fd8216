"""What a step of a loop should cost whose products run on tensor cores: beside `step_cost.py`, with its constants.

A product takes the longest of three: what is read of shared memory, multiply-adds, and how long a warp takes from one
chunk of k to the next. Limits: those of `step_cost.py`.
"""

from __future__ import annotations

from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.step_cost import BANK_BYTES, CLOCK, NOW, multiply_cycles, product_cycles
from rnnops.kernels.cuda.matrix_fragments import INSTRUCTIONS, ROWS, WARP
from rnnops.kernels.cuda.step_product import padded
from rnnops.kernels.cuda.step_product_tensor import tiles_of, times_of
from rnnops.kernels.cuda.tensor_cores import CHUNK, OF_TILE

WARPS = 8  # of our blocks (share_lanes.py)
FMAS = {
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
        fetch, multiply = all_chunks * chunk_bytes / BANK_BYTES, all_chunks * chunk_products / FMAS[itemsize]
        sums = 2 * together * splits * times * tiles * 4 * WARP * 4 / BANK_BYTES
        cycles += max(fetch, multiply, chunks * CHUNK_CYCLES) + sums
        left -= together
    return cycles
