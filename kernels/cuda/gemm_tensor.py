"""Matrix products of rounded operands on tensor cores: what `gemm.py` launches where a product asks for it.

A block of warps computes a tile of C, going through k in slices; of each slice A lies in shared memory as float32 rows,
B as rounded fragments. A warp has 16 rows and a few tiles of 8 columns (`tensor_cores.py`), its sums in registers.
An element of C is `addend + sum`, the sum over k in order, a chunk of 16 at a time: tiles change no bit.

Limits: operands in float32; sums too. A slice is read when the one before is done: it reaches a part of the peak only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rnnops.kernels.cuda import tensor_cores
from rnnops.kernels.cuda.facade import choose, cuda, kernel
from rnnops.kernels.cuda.matrix_fragments import INSTRUCTIONS, ROWS, SUMS, WARP
from rnnops.kernels.cuda.tensor_cores import CHUNK, OF_LANE, OF_TILE, TILE_COLUMNS, keep_fragments, no_sums

BESIDE = 16  # numbers more than a slice from row to row: slices of 32 meet in no bank


@dataclass(frozen=True)
class TensorTiling:
    """Sizes of tiles.

    Args:
        down, across: warps of a block, along rows and columns.
        times: 16 rows of a warp.
        tiles: of 8 columns, of a warp.
        depth: of a slice of k.
    """

    down: int = 4
    across: int = 2
    times: int = 2
    tiles: int = 4
    depth: int = 32

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of C that a block computes."""
        return self.down * self.times * ROWS, self.across * self.tiles * TILE_COLUMNS

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.down * self.across * WARP


TENSOR_TILING = choose(TensorTiling(), TensorTiling(1, 1, 1, 2, 16))


@cache
def tensor_kernel(rounding: str, numbers: int) -> Any:
    """The kernel for one format; its arguments are those of `gemm.product_kernel`.

    Args:
        numbers: that it reads of each product.
    """
    return kernel(tensor_function(rounding, TENSOR_TILING, numbers), fastmath=False)


def tensor_function(rounding: str, tiling: TensorTiling, numbers: int) -> Any:
    """The kernel's Python function."""
    bits, left_fragment, multiply = (
        getattr(tensor_cores, f"{name}_{rounding}") for name in ("bits", "left", "multiply")
    )
    (tile_rows, tile_columns), threads, depth, across = tiling.tile, tiling.threads, tiling.depth, tiling.across
    tiles, count, pitch = tile_columns // TILE_COLUMNS, SUMS * tiling.tiles, depth + BESIDE
    times, own_tiles, own_rows, all_sums = tiling.times, tiling.tiles, tiling.times * ROWS, tiling.times * count
    right_size, left_size = tile_columns * depth, max(tile_rows * pitch, threads * all_sums)
    nothing, words = no_sums(own_tiles, times), np.uint32 if INSTRUCTIONS[rounding].itemsize == 4 else np.uint16

    def product(ends: Any, sizes: Any, lefts: Any, rights: Any, biases: Any, targets: Any) -> None:
        staged = cuda.shared.array(left_size, np.float32, alignment=16)
        kept = cuda.shared.array(right_size, words, alignment=16)
        thread = cuda.threadIdx.x
        lane, y, x = thread % WARP, thread // WARP // across, thread // WARP % across
        first_row, first_column = cuda.blockIdx.y * tile_rows, cuda.blockIdx.x * tile_columns
        own_row, own_k = y * own_rows + lane // OF_LANE, lane % OF_LANE * OF_LANE
        for z in range(ends[cuda.blockIdx.z], ends[cuda.blockIdx.z + 1]):
            s, a, b, addends, c = z * numbers, lefts[z], rights[z], biases[z], targets[z]
            a_start, a_row, a_step = sizes[s], sizes[s + 1], sizes[s + 2]
            b_start, b_step, b_column = sizes[s + 3], sizes[s + 4], sizes[s + 5]
            c_start, c_row, bias_start = sizes[s + 6], sizes[s + 7], sizes[s + 8]
            all_rows, all_columns, inner = sizes[s + 9], sizes[s + 10], sizes[s + 11]
            accumulate, biased = sizes[s + 12], sizes[s + 13]
            if first_row >= all_rows or first_column >= all_columns:
                return  # a larger product of the same launch has a tile there
            total = nothing
            for k in range(0, inner, depth):
                for i in range(thread, tile_rows * depth, threads):  # 1. a slice of A and one of B
                    row, step = (i // depth, i % depth) if a_step == 1 else (i % tile_rows, i // tile_rows)
                    inside = k + step < inner and first_row + row < all_rows
                    staged[row * pitch + step] = (
                        a[a_start + (first_row + row) * a_row + (k + step) * a_step] if inside else np.float32(0)
                    )
                for i in range(thread, tile_columns * depth, threads):
                    column, step = (i // depth, i % depth) if b_step == 1 else (i % tile_columns, i // tile_columns)
                    inside = k + step < inner and first_column + column < all_columns
                    number = (
                        b[b_start + (k + step) * b_step + (first_column + column) * b_column]
                        if inside
                        else np.float32(0)
                    )
                    tile = step // CHUNK * tiles + column // TILE_COLUMNS
                    kept[tile * OF_TILE + column % TILE_COLUMNS * CHUNK + step % CHUNK] = bits(number)
                cuda.syncthreads()
                for chunk in range(depth // CHUNK):  # 2. its products
                    left = left_fragment(staged, own_row, tile_rows - 1, pitch, own_k + chunk * CHUNK, nothing)
                    own = (chunk * tiles + x * own_tiles) * OF_TILE + lane * OF_LANE
                    total = multiply(total, left, kept, own)
                cuda.syncthreads()
            place = thread // WARP * WARP * all_sums + lane
            keep_fragments(total, staged, place)
            for n in range(all_sums):  # 3. what belongs to C
                row = first_row + y * own_rows + n // count * ROWS + lane // 4 + n % 4 // 2 * 8
                column = first_column + (x * own_tiles + n % count // 4) * TILE_COLUMNS + lane % 4 * 2 + n % 2
                if row < all_rows and column < all_columns:
                    found = staged[place + n * WARP]
                    if accumulate != 0:
                        found += c[c_start + row * c_row + column]
                    elif biased != 0:
                        found += addends[bias_start + column]
                    c[c_start + row * c_row + column] = found
            cuda.syncthreads()

    return product
