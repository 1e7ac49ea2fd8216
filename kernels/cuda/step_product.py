"""Products of one step on a CUDA device, with a block's columns of the weights in its shared memory.

A block computes all rows of its group for the columns that it owns. A lane keeps `TILE` x `TILE` sums in registers and
goes through k four at a time: 8 reads of four numbers make 64 products. If there are more lanes than tiles, several
lanes share the k of a tile, and their sums are added up in a fixed order. The left side was written by other blocks.
Each block reads it once, through shared memory, a slice of k at a time. The next slice is copied while one is
multiplied. Rows of a slice have four numbers between them, so that lanes which read rows at once use different banks.

Columns of a product are owned by features: with period P, feature u owns columns u, u + P, u + 2P, ... Of a block's
features `[u0, u1)` column j is number `j // (u1 - u0) * P + u0 + j % (u1 - u0)` of the matrix.

Functions are text (`source`, `split_source`) for generated modules, because the simulator puts its own `cuda` only into
the module that holds the kernel. Limits: all lanes of a block call them together, and wait for each other at the
beginning and the end. Indices are below 2^32.

**Products whose inner axis, k, is divided among the blocks of a group**: partial sums, and their totals. This is
cheaper for a product whose left side has several numbers for each feature of its result, such as gate gradients. A
block multiplies the numbers of its own features, which it has written itself, with its own rows of the weights. It
leaves partial sums of the whole result in memory. Then the group waits, and each block adds up the sums of its own
features, one member's after the other's. For `rows` and H features a block writes and reads `rows * H` numbers.
Otherwise it would read `rows * inner` numbers of a left side that others have written.

Partial sums are stored in the order in which they are read: by owner of the features, then by member that computed
them, `height` rows of `width` numbers. Shared memory holds the columns of the weights in the same way: `width` for each
owner, padded with zeros. A lane writes each row of a tile as 16 bytes. If there are fewer tiles than lanes, several
lanes share the k of a tile, and their sums are added up in shared memory. The order of each sum does not depend on
timing. Limit: shared memory holds all numbers of the left side that a block owns at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import at, cuda, device_functions
from rnnops.kernels.cuda.lane_functions import (
    BATCH,
    COPIED,
    SQUARE,
    TILE,
    add_apart,
    add_batch,
    add_products,
    clear_four,
    clear_tile,
    copies_done,
    copy_soon,
    fetch_early,
    keep_four,
    keep_tile,
    starts_a_copy,
    write_four,
    write_tile,
)

WARP = 32  # lanes that read neighbouring numbers
TOGETHER = COPIED // 4  # numbers of one copy; generated modules define it for their dtype
number = np.float32  # dtype of sums; generated modules define their own
kept_number = np.float32  # dtype of weights in shared memory; generated modules define their own


@dataclass(frozen=True)
class SharedNumbers:
    """Counts of numbers in shared memory that a product takes.

    Args:
        weights: numbers of the weights, for a block's columns.
        row: numbers of the left side for one k, all rows together. A slice takes `depth` times as many, and those
            between its rows.
        sums: numbers of the sums of all lanes.
    """

    weights: int
    row: int
    sums: int


def shared_numbers(rows: int, inner: int, width: int, lanes: int) -> SharedNumbers:
    """The counts of numbers in shared memory for a product of `[rows, inner]` with a block's `width` columns."""
    return SharedNumbers(padded(inner) * padded(width), padded(rows), lanes * SQUARE)


def padded(count: int) -> int:
    """The count, rounded up to a multiple of `TILE`."""
    return -(-count // TILE) * TILE


def quotient(a: int, b: int) -> int:
    """`a // b` in 32 bits: a device needs about a hundred instructions to divide 64 bits."""
    return np.int64(np.uint32(a) // np.uint32(b))


def remainder(a: int, b: int) -> int:
    """`a % b` in 32 bits."""
    return np.int64(np.uint32(a) % np.uint32(b))


def load_columns(
    B: Any, start: int, along: int, across: int, inner: int, columns: int, period: int, u0: int, u1: int, kept: Any
) -> None:
    """Put a block's columns of a matrix into shared memory, row by row, with zeros up to multiples of `TILE`.

    Args:
        start: index in `B` of the matrix's first number.
        along, across: distance of neighbouring k, and of neighbouring columns, in numbers.
        u0, u1: the block's features, `[u0, u1)`.
    """
    own = u1 - u0
    width = columns // period * own
    pitch = (width + TILE - 1) // TILE * TILE
    for place in range(cuda.threadIdx.x, (inner + TILE - 1) // TILE * TILE * pitch, cuda.blockDim.x):
        k = quotient(place, pitch)
        j = place - k * pitch
        if k < inner and j < width:
            gate = quotient(j, own)
            kept[place] = kept_number(B[start + k * along + (gate * period + u0 + j - gate * own) * across])
        else:
            kept[place] = kept_number(0)


def load_slice(A: Any, start: int, stride: int, rows: int, size: int, staged: Any, pitch: int) -> None:
    """Put `size` columns of A into shared memory, and add zeros up to multiples of `TILE` columns and rows.

    Lanes may read them after `copies_done` and a barrier of the block. If rows begin at multiples of 16 bytes, a lane
    starts all its copies before it waits for one.
    """
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    across = min(lanes, WARP)
    y, down = quotient(lane, across), quotient(lanes, across)
    full = (size + TILE - 1) // TILE * TILE
    together = 1
    if size == full and starts_a_copy(A, start) and starts_a_copy(A, start + stride):
        together = TOGETHER
    row = y
    while row < (rows if together > 1 and y < down else 0):
        k = (lane - y * across) * TOGETHER
        while k < full:
            copy_soon(staged, row * pitch + k, A, start + row * stride + k)
            k += across * TOGETHER
        row += down
    while row < ((rows + TILE - 1) // TILE * TILE if y < down else 0):
        k = lane - y * across
        while k < full:
            if row < rows and k < size:
                staged[row * pitch + k] = A[start + row * stride + k]
            else:
                staged[row * pitch + k] = number(0)
            k += across
        row += down


def fetch_columns(C: Any, start: int, rows: int, columns: int, period: int, u0: int, u1: int) -> None:
    """Fetch a block's columns of a matrix early, so that later reads are faster. A lane fetches 32 neighbours."""
    own = u1 - u0
    pieces = (own + WARP - 1) // WARP + 1 if own > 0 else 0  # the last number may lie in one more line of the cache
    gates = quotient(columns, period)
    place = cuda.threadIdx.x
    while place < rows * gates * pieces:
        line = quotient(place, pieces)
        row = quotient(line, gates)
        column = (line - row * gates) * period + u0 + min((place - line * pieces) * WARP, own - 1)
        fetch_early(C, start + row * columns + column)
        place += cuda.blockDim.x


def step_product(
    A: Any, a_start: int, a_row: int, rows: int, inner: int, kept: Any, staged: Any, depth: int, sums: Any,
    C: Any, c_start: int, columns: int, period: int, u0: int, u1: int, accumulate: bool, bias: Any, bias_start: int,
) -> None:  # fmt: skip
    """`C[rows, own columns]` becomes `A @ kept`, plus its old value, or plus a bias (`bias_start` < 0: none).

    Args:
        staged: shared memory for a slice of A, or for two slices if `inner` is more than `depth`.
        depth: numbers of k in a slice, a multiple of `TILE`.
    """
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    own = u1 - u0
    width = quotient(columns, period) * own
    down, over = (rows + TILE - 1) // TILE, (width + TILE - 1) // TILE
    total = cuda.local.array(SQUARE, number)
    first = 0
    while first < down * over:  # as many tiles at once as there are lanes; `range` would need a division of 64 bits
        tiles = min(lanes, down * over - first)
        splits = quotient(lanes, tiles)
        split = quotient(lane, tiles)
        tile = lane - split * tiles
        y = quotient(first + tile, over)
        x = first + tile - y * over
        clear_tile(total)
        load_slice(A, a_start, a_row, rows, min(depth, inner), staged, depth + TILE)
        begin, half = 0, 0  # `half` of the shared memory holds this slice; the next slice is copied to the other half
        while begin < inner:
            full = (min(depth, inner - begin) + TILE - 1) // TILE * TILE
            copies_done()
            cuda.syncthreads()
            left, right = at(staged, half + y * TILE * (depth + TILE)), at(kept, begin * over * TILE + x * TILE)
            half = down * TILE * (depth + TILE) - half
            if begin + depth < inner:  # 1. the next slice of A
                rest = min(depth, inner - begin - depth)
                load_slice(A, a_start + begin + depth, a_row, rows, rest, at(staged, half), depth + TILE)
            if split < splits:  # 2. products of this one
                k = split * TILE
                while k < full:
                    add_products(left, depth + TILE, right, over * TILE, k, total)
                    k += splits * TILE
            begin += depth
        if split < splits:  # 3. sums of the lanes that share a tile, added up
            keep_tile(total, sums, split * tiles + tile, splits * tiles)
        cuda.syncthreads()
        element = split
        while element < (SQUARE if split < splits else 0):
            row, j = y * TILE + element // TILE, x * TILE + element % TILE
            if row < rows and j < width:
                gate = quotient(j, own)
                place = row * columns + gate * period + u0 + j - gate * own
                found = number(0)
                for other in range(splits):
                    found += sums[(element * splits + other) * tiles + tile]
                if accumulate:
                    found += C[c_start + place]
                elif bias_start >= 0:
                    found += bias[bias_start + gate * period + u0 + j - gate * own]
                C[c_start + place] = found
            element += splits
        first += lanes
    cuda.syncthreads()


FUNCTIONS = (quotient, remainder, load_columns, load_slice, fetch_columns, step_product)


def source(dtype: str, weights: str) -> str:
    """The text of the functions, for modules that define `cuda` and `device_function`.

    Args:
        dtype: the dtype of products and sums.
        weights: the dtype of the weights in shared memory.
    """
    constants = f"number, kept_number = np.{dtype}, np.{weights}\nTILE, SQUARE, WARP = {TILE}, {SQUARE}, {WARP}"
    constants += f"\nTOGETHER = {COPIED // np.dtype(dtype).itemsize}"
    functions = device_functions(FUNCTIONS)
    return "\n\n\n".join([constants, *functions])


@dataclass(frozen=True)
class PartialSums:
    """The memory that partial sums of one product take, in numbers.

    Args:
        height: rows of a group, rounded up to a multiple of `TILE`.
        width: numbers of a row that a member owns, rounded up to a multiple of `TILE`.
        members: blocks of a group.
    """

    height: int
    width: int
    members: int

    @property
    def of_member(self) -> int:
        """Partial sums that one member computes for the features of one owner."""
        return self.height * self.width

    @property
    def of_group(self) -> int:
        """Partial sums that all members of a group compute."""
        return self.members * self.members * self.of_member


def partial_sums(rows: int, columns: int, period: int, members: int) -> PartialSums:
    """The partial sums of a group for a product of `[rows, columns]` whose columns are owned by features."""
    return PartialSums(padded(rows), padded(columns // period * -(-period // members)), members)


def kept_rows(inner: int, period: int, sums: PartialSums) -> int:
    """Count of weights in shared memory for a block's rows of a matrix."""
    return staged_width(inner, period, sums.members) * sums.members * sums.width


def staged_width(inner: int, period: int, members: int) -> int:
    """Numbers of a row of the left side that a block owns, rounded up to a multiple of `TILE`."""
    return padded(inner // period * -(-period // members))


def load_rows(
    B: Any, start: int, along: int, across: int, inner: int, columns: int, period: int, members: int, width: int,
    u0: int, u1: int, kept: Any,
) -> None:  # fmt: skip
    """Put a block's rows of a matrix into shared memory. Columns are ordered by owner, and padded with zeros.

    Args:
        start: index in `B` of the matrix's first number.
        along, across: distance of neighbouring k, and of neighbouring columns, in numbers.
        width: columns of an owner, with the zeros.
        u0, u1: the block's features, `[u0, u1)`.
    """
    own = u1 - u0
    count = inner // period * own
    for place in range(cuda.threadIdx.x, (count + TILE - 1) // TILE * TILE * members * width, cuda.blockDim.x):
        k = quotient(place, members * width)
        owner = quotient(place - k * members * width, width)
        j = place - (k * members + owner) * width
        first = quotient(owner * period, members)
        theirs = quotient((owner + 1) * period, members) - first
        if k < count and j < columns // period * theirs:
            gate, side = quotient(k, own), quotient(j, theirs)
            row, column = gate * period + u0 + k - gate * own, side * period + first + j - side * theirs
            kept[place] = kept_number(B[start + row * along + column * across])
        else:
            kept[place] = kept_number(0)


def own_number(element: int, period: int, u0: int, own: int) -> int:
    """The place of an element of a row among the elements of a block, which owns `own` features from `u0` on."""
    gate = quotient(element, period)
    return gate * own + element - gate * period - u0


def clear_own(staged: Any, count: int) -> None:
    """Set `count` numbers of shared memory to 0: a block's own numbers and their padding."""
    place = cuda.threadIdx.x
    while place < count:
        staged[place] = number(0)
        place += cuda.blockDim.x


def load_own(
    A: Any, start: int, stride: int, rows: int, inner: int, period: int, u0: int, u1: int, staged: Any, pitch: int
) -> None:
    """Put a block's own numbers of a left side into shared memory, with zeros up to multiples of `TILE`."""
    own = u1 - u0
    count = quotient(inner, period) * own
    full = (count + TILE - 1) // TILE * TILE
    place = cuda.threadIdx.x
    while place < (rows + TILE - 1) // TILE * TILE * full:
        row = quotient(place, full)
        k = place - row * full
        if row < rows and k < count:
            gate = quotient(k, own)
            staged[row * pitch + k] = A[start + row * stride + gate * period + u0 + k - gate * own]
        else:
            staged[row * pitch + k] = number(0)
        place += cuda.blockDim.x


def partial_product(
    A: Any, a_start: int, a_row: int, rows: int, inner: int, kept: Any, staged: Any, pitch: int, there: bool, sums: Any,
    partials: Any, start: int, height: int, width: int, member: int, members: int, period: int, u0: int, u1: int,
) -> None:  # fmt: skip
    """Write the partial sums of `A[rows, own k] @ kept` to memory.

    Args:
        staged: shared memory for a block's numbers of A, rows `pitch` numbers apart.
        there: True if `staged` already holds them, padded with zeros.
        start: index of the group's first partial sum.
        height, width: see `PartialSums`.
    """
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    full = (quotient(inner, period) * (u1 - u0) + TILE - 1) // TILE * TILE
    each = width // TILE
    over = members * each
    count = (rows + TILE - 1) // TILE * over
    if not there:
        load_own(A, a_start, a_row, rows, inner, period, u0, u1, staged, pitch)
        cuda.syncthreads()
    total, four = cuda.local.array(SQUARE, number), cuda.local.array(TILE, number)
    first = 0
    while first < count:
        tiles = min(lanes, count - first)
        splits = quotient(lanes, tiles)
        split = quotient(lane, tiles)
        tile = lane - split * tiles
        y = quotient(first + tile, over)
        x = first + tile - y * over
        owner = quotient(x, each)
        place = start + ((owner * members + member) * height + y * TILE) * width + (x - owner * each) * TILE
        if split < splits:
            clear_tile(total)
            left, right = at(staged, y * TILE * pitch), at(kept, x * TILE)
            k = split * TILE
            while k < full:
                add_products(left, pitch, right, over * TILE, k, total)
                k += splits * TILE
            if splits > 1:
                keep_tile(total, sums, split * tiles + tile, splits * tiles)
            else:
                write_tile(total, partials, place, width)
        if splits > 1:  # sums of the lanes that share a tile, added up row by row
            cuda.syncthreads()
            row = split
            while row < (TILE if split < splits else 0):
                clear_four(four)
                for other in range(splits):
                    add_apart(four, sums, (row * TILE * splits + other) * tiles + tile, splits * tiles)
                write_four(four, partials, place + row * width)
                row += splits
            cuda.syncthreads()
        first += lanes


def add_partials(
    partials: Any, start: int, rows: int, height: int, width: int, member: int, members: int, sums: Any,
    C: Any, c_start: int, columns: int, period: int, u0: int, u1: int, accumulate: bool, bias: Any, bias_start: int,
) -> None:  # fmt: skip
    """`C[rows, own columns]` becomes the sum of all members' partial sums, plus its old value or a bias, if any.

    `bias_start` < 0: no bias. Each lane adds four neighbouring numbers. If lanes are left over, several lanes share the
    members of the same four.
    """
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    own = u1 - u0
    across = width // TILE
    size = height * width
    four = cuda.local.array(TILE, number)
    first = 0
    while first < rows * across:
        fours = min(lanes, rows * across - first)
        parts = quotient(lanes, fours)
        part = quotient(lane, fours)
        place = lane - part * fours
        if part < parts:
            each = quotient(members + parts - 1, parts)
            begin, end = part * each, min(members, (part + 1) * each)
            clear_four(four)
            while begin < end:
                found = start + (member * members + begin) * size + (first + place) * TILE
                add_batch(four, partials, found, size, end - begin)
                begin += BATCH
            keep_four(four, sums, part * fours + place, parts * fours)
        cuda.syncthreads()
        y = quotient(first + place, across)
        element = part
        while element < (TILE if part < parts else 0):
            j = (first + place - y * across) * TILE + element
            if j < quotient(columns, period) * own:
                gate = quotient(j, own)
                column = gate * period + u0 + j - gate * own
                total = number(0)
                for other in range(parts):
                    total += sums[(element * parts + other) * fours + place]
                if accumulate:
                    total += C[c_start + y * columns + column]
                elif bias_start >= 0:
                    total += bias[bias_start + column]
                C[c_start + y * columns + column] = total
            element += parts
        cuda.syncthreads()
        first += lanes


SPLIT_FUNCTIONS = (load_rows, own_number, clear_own, load_own, partial_product, add_partials)


def split_source() -> str:
    """The text of the functions, for modules that define `cuda`, `device_function` and the functions of `source`."""
    functions = device_functions(SPLIT_FUNCTIONS)
    return "\n\n\n".join([f"BATCH = {BATCH}", *functions])
