"""Products of one step by tensor cores, with a block's columns of the weights as fragments in its shared memory.

A warp computes 16 or 32 rows of its group and some tiles of 8 columns. Rows of the batch are the instruction's 16 rows,
and columns of weights its 8 columns, not the other way round. The reason is that weights lie on chip: 6 features of a
GRU's three gates fill 18 of 24 columns, not of 32. Missing rows cost only multiply-adds, which are plentiful. Lanes
beyond the last row read that row again, and their results are not stored. Shared memory takes the time: each weight is
read once for 32 rows, and the left side once for 64 columns.

If warps are left over, several warps share the k of the same tiles, by chunks of 16. Their sums are added up in a fixed
order, so two runs have the same bits. The left side is copied to shared memory as float32, asynchronously. A slice of k
is copied while the slice before it is multiplied. A lane rounds the numbers after it has read them. Rows of a slice
have `BESIDE` numbers between them, and slices are multiples of 32 numbers. So a warp's reads of 16 bytes have no bank
conflicts.

Columns are owned as in `step_product.py`. Functions are text (`source`) for generated modules, which must also hold the
functions of that file. Limits: blocks are whole warps; all lanes of a block call the functions together, and wait for
each other at the beginning and the end. The count of a warp's tiles is fixed when a kernel is compiled, so that sums
stay in registers: sums in memory would be slow.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import at, cuda, device_functions
from rnnops.kernels.cuda.lane_functions import COPIED, copies_done, copy_soon, starts_a_copy
from rnnops.kernels.cuda.step_product import SharedNumbers, quotient
from rnnops.kernels.cuda.tensor_cores import (
    CHUNK,
    OF_LANE,
    OF_TILE,
    ROWS,
    SUMS,
    TILE_COLUMNS,
    WARP,
    bits_tfloat32 as rounded_bits,
    keep_fragments,
    left_tfloat32 as left_fragment,
    multiply_tfloat32 as multiply_tiles,
)

SLICE = 32  # slices of k are multiples of it
BESIDE = 16  # numbers between two staged rows of a slice
# The most tiles, and the most groups of 16 rows, of a warp. A lane then has 64 sums in registers.
MOST_TILES, MOST_TIMES = 8, 2
SUMS_OF_WARPS = tuple(product(range(1, MOST_TILES + 1), range(1, MOST_TIMES + 1)))
EDGE = COPIED // 4


def tiles_of(width: int) -> tuple[int, int]:
    """For a block of `width` columns: the count of tiles that a warp has, and the count of such groups of tiles."""
    tiles = -(-width // TILE_COLUMNS)
    groups = -(-tiles // MOST_TILES)
    return -(-tiles // groups), groups


def times_of(rows: int) -> int:
    """The count of groups of 16 rows that a warp has, for a block with `rows` rows."""
    return min(MOST_TIMES, -(-rows // ROWS))


def shared_fragments(rows: int, inner: int, width: int, lanes: int) -> SharedNumbers:
    """The counts of numbers in shared memory for a product of `[rows, inner]` with a block's `width` columns."""
    tiles, groups = tiles_of(width)
    sums = lanes * tiles * SUMS * times_of(rows)
    return SharedNumbers(-(-inner // CHUNK) * tiles * groups * OF_TILE, rows, sums)


def sums_name(tiles: int, times: int) -> str:
    """The name that generated modules give to a warp's sums before the first product."""
    return f"NO_SUMS_{tiles}_{times}"


def load_fragments(
    B: Any, start: int, along: int, across: int, inner: int, columns: int, period: int, u0: int, u1: int,
    tiles: int, kept: Any,
) -> None:  # fmt: skip
    """Put a block's columns of a matrix into shared memory, rounded, with zeros up to whole tiles and chunks.

    Args:
        start: index in `B` of the matrix's first number.
        along, across: distance of neighbouring k, and of neighbouring columns, in numbers.
        u0, u1: the block's features, `[u0, u1)`.
        tiles: the count of all tiles of columns.
    """
    own = u1 - u0
    width, full = quotient(columns, period) * own, tiles * TILE_COLUMNS
    place = cuda.threadIdx.x
    while place < (inner + CHUNK - 1) // CHUNK * CHUNK * full:
        k = quotient(place, full)
        j = place - k * full
        fragment = (k // CHUNK * tiles + j // TILE_COLUMNS) * OF_TILE + j % TILE_COLUMNS * CHUNK + k % CHUNK
        if k < inner and j < width:
            gate = quotient(j, own)
            kept[fragment] = rounded_bits(B[start + k * along + (gate * period + u0 + j - gate * own) * across])
        else:
            kept[fragment] = 0
        place += cuda.blockDim.x


def stage_rows(A: Any, start: int, stride: int, rows: int, size: int, staged: Any, pitch: int) -> None:
    """Put `size` columns of A into shared memory, with zeros up to a whole chunk.

    Lanes may read them after `copies_done` and a barrier of the block. If rows begin at multiples of 16 bytes, a lane
    starts all its copies before it waits for one.
    """
    across = WARP
    y, down = cuda.threadIdx.x // across, cuda.blockDim.x // across
    full = (size + CHUNK - 1) // CHUNK * CHUNK
    copied = 0
    if starts_a_copy(A, start) and starts_a_copy(A, start + stride):
        copied = size // EDGE * EDGE
    row = y
    while row < rows:
        k = cuda.threadIdx.x % across * EDGE
        while k < copied:
            copy_soon(staged, row * pitch + k, A, start + row * stride + k)
            k += across * EDGE
        k = copied + cuda.threadIdx.x % across
        while k < full:
            if k < size:
                staged[row * pitch + k] = A[start + row * stride + k]
            else:
                staged[row * pitch + k] = np.float32(0)
            k += across
        row += down


def add_fragments(
    sums: Any, nothing: Any, item: int, together: int, split: int, splits: int, first_row: int, first_column: int,
    C: Any, c_start: int, rows: int, columns: int, period: int, u0: int, u1: int, accumulate: bool, bias: Any,
    bias_start: int,
) -> None:  # fmt: skip
    """Store a warp's part of C: add up the sums of all warps that share its tiles, in the order of the warps.

    Args:
        item: number of this warp's tiles among the `together` groups of tiles. `splits` warps share each group.
        first_row, first_column: the first row and column of the tiles in the block's part of C.
    """
    lane, count = cuda.threadIdx.x % WARP, len(nothing[0])
    all_sums, own, n = len(nothing) * count, u1 - u0, split
    while n < all_sums:
        block = quotient(n, count)
        row = first_row + block * ROWS + lane // 4 + n % 4 // 2 * 8
        j = first_column + (n - block * count) // 4 * TILE_COLUMNS + lane % 4 * 2 + n % 2
        if row < rows and j < quotient(columns, period) * own:
            gate = quotient(j, own)
            column = gate * period + u0 + j - gate * own
            found = np.float32(0)
            for part in range(splits):
                found += sums[((part * together + item) * all_sums + n) * WARP + lane]
            if accumulate:
                found += C[c_start + row * columns + column]
            elif bias_start >= 0:
                found += bias[bias_start + column]
            C[c_start + row * columns + column] = found
        n += splits


def tensor_product(
    A: Any, a_start: int, a_row: int, rows: int, inner: int, kept: Any, staged: Any, depth: int, sums: Any,
    C: Any, c_start: int, columns: int, period: int, u0: int, u1: int, accumulate: bool, bias: Any, bias_start: int,
    groups: int, nothing: Any,
) -> None:  # fmt: skip
    """`C[rows, own columns]` becomes `A @ kept`, plus its old value, or plus a bias (`bias_start` < 0: none).

    Args:
        staged: shared memory for a slice of A, or for two slices if `inner` is more than `depth`.
        depth: numbers of k in a slice, a multiple of `SLICE`.
        groups: the count of groups of tiles in `kept`.
        nothing: a lane's sums before the first product: for each group of 16 rows, `SUMS` zeros for each tile.
        sums: shared memory for the sums of all lanes. It may be the same memory as `staged`.
    """
    lane, warp, warps = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP, cuda.blockDim.x // WARP
    own, times, count, pitch = u1 - u0, len(nothing), len(nothing[0]), depth + BESIDE
    tiles, all_sums, own_rows = count // SUMS, times * count, times * ROWS
    width = quotient(columns, period) * own
    down = quotient(rows + own_rows - 1, own_rows)
    over = quotient(width + tiles * TILE_COLUMNS - 1, tiles * TILE_COLUMNS)
    first = 0
    while first < down * over:  # as many groups of tiles at once as there are warps
        together = min(warps, down * over - first)
        splits = quotient(warps, together)
        split = quotient(warp, together)
        item = warp - split * together
        y = quotient(first + item, over)
        x = first + item - y * over
        own_row, own_k = y * own_rows + lane // OF_LANE, lane % OF_LANE * OF_LANE
        total = nothing
        stage_rows(A, a_start, a_row, rows, min(depth, inner), staged, pitch)
        begin, here = 0, 0  # `here` in shared memory begins this slice; the next slice is copied to the other half
        while begin < inner:
            chunks = (min(depth, inner - begin) + CHUNK - 1) // CHUNK
            other = rows * pitch - here
            copies_done()
            cuda.syncthreads()
            if begin + depth < inner:  # 1. the next slice of A
                rest = min(depth, inner - begin - depth)
                stage_rows(A, a_start + begin + depth, a_row, rows, rest, at(staged, other), pitch)
            chunk = split
            place, more = ((begin // CHUNK + chunk) * groups + x) * tiles * OF_TILE, splits * groups * tiles * OF_TILE
            place += lane * OF_LANE
            while chunk + splits < (chunks if split < splits else 0):  # 2. its products, two chunks at once
                k = here + own_k + chunk * CHUNK
                left = left_fragment(staged, own_row, rows - 1, pitch, k, nothing)
                following = left_fragment(staged, own_row, rows - 1, pitch, k + splits * CHUNK, nothing)
                total = multiply_tiles(total, left, kept, place)
                total = multiply_tiles(total, following, kept, place + more)
                chunk += 2 * splits
                place += 2 * more
            if chunk < (chunks if split < splits else 0):
                k = here + own_k + chunk * CHUNK
                left = left_fragment(staged, own_row, rows - 1, pitch, k, nothing)
                total = multiply_tiles(total, left, kept, place)
            begin += depth
            here = other
        cuda.syncthreads()
        if split < splits:  # 3. sums of the warps that share tiles, added up
            keep_fragments(total, sums, (split * together + item) * all_sums * WARP + lane)
        cuda.syncthreads()
        if split < splits:
            add_fragments(
                sums, nothing, item, together, split, splits, own_row - lane // OF_LANE, x * tiles * TILE_COLUMNS,
                C, c_start, rows, columns, period, u0, u1, accumulate, bias, bias_start,
            )  # fmt: skip
        first += warps
        cuda.syncthreads()


FUNCTIONS = (load_fragments, stage_rows, add_fragments, tensor_product)


def source(precision: str) -> str:
    """The text of the functions, for modules that hold those of `step_product.py`.

    Args:
        precision: the format of operands, a key of `INSTRUCTIONS`.
    """
    names = "bits", "left", "multiply"
    parts = ", ".join(f"{name}_{precision}" for name in names)
    rounding = f"round_{precision}"  # pointwise loops call it for products that they compute
    imports = f"from rnnops.kernels.cuda.tensor_cores import {parts}, {rounding}, keep_fragments, no_sums"
    constants = [
        f"rounded_bits, left_fragment, multiply_tiles = {parts}",
        f"CHUNK, TILE_COLUMNS, OF_TILE, OF_LANE = {CHUNK}, {TILE_COLUMNS}, {OF_TILE}, {OF_LANE}",
        f"ROWS, SUMS, BESIDE, EDGE = {ROWS}, {SUMS}, {BESIDE}, {EDGE}",
        *(f"{sums_name(*sizes)} = no_sums{sizes}" for sizes in SUMS_OF_WARPS),
    ]
    functions = device_functions(FUNCTIONS)
    return "\n\n\n".join([imports + "\n\n" + "\n".join(constants), *functions])
