"""One chunk of products on tensor cores beside the simulator's twin: what to look at first on a new device.

Whole numbers are multiplied and added without rounding, so that each element must be the same, and a place in a wrong
lane or register shows; with fractions the device's sums may differ by what it cuts off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rnnops.kernels.cuda import tensor_cores
from rnnops.kernels.cuda.facade import cuda, kernel, launch
from rnnops.kernels.cuda.tensor_cores import (
    CHUNK,
    COLUMNS,
    INSTRUCTIONS,
    OF_LANE,
    OF_TILE,
    ROWS,
    SUMS,
    WARP,
    MmaInstruction,
    bits,
    keep_fragments,
    no_sums,
    values,
)

TILES = 2
LEFT, RIGHT = ROWS * CHUNK, TILES * OF_TILE  # elements of the operands
CUT_OFF = 2.0**-20  # of a sum of absolute values: products are added in groups, cut off below the largest one's bits


@dataclass(frozen=True)
class Compared:
    """What came of one instruction.

    Args:
        whole: elements of products of whole numbers that are wrong.
        error: of products of fractions, relative to the sum of absolute values.
    """

    instruction: MmaInstruction
    whole: int
    error: float

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return self.whole == 0 and self.error <= CUT_OFF

    def __str__(self) -> str:
        name, verdict = self.instruction.short, "right" if self.is_right else "WRONG"
        return f"{name}: {verdict}; {self.whole} wrong elements of whole numbers, error of fractions {self.error:.1e}"


def compare_tensor_cores(seed: int = 0) -> list[Compared]:
    """Each instruction on the device, beside what it should compute."""
    return [_compared(instruction, np.random.default_rng(seed)) for instruction in INSTRUCTIONS.values()]


def _compared(instruction: MmaInstruction, random: Any) -> Compared:
    rows, columns = (ROWS, CHUNK), (CHUNK, TILES * COLUMNS)
    whole = [random.integers(-8, 9, size).astype(np.float32) for size in (rows, columns)]
    wrong = int((_product(instruction, *whole) != whole[0] @ whole[1]).sum())
    a, b = (values(instruction, bits(instruction, random.normal(size=size))) for size in (rows, columns))
    exact, size = a.astype(float) @ b.astype(float), np.abs(a) @ np.abs(b)
    return Compared(instruction, wrong, float((np.abs(_product(instruction, a, b) - exact) / size).max()))


def _product(instruction: MmaInstruction, a: Any, b: Any) -> Any:
    """`A [16, 16] @ B [16, columns]` as the device computes it."""
    weights = bits(instruction, b.T.reshape(TILES, COLUMNS, CHUNK)).reshape(-1)
    sums = np.zeros((SUMS * TILES, WARP), np.float32)
    launch(
        _kernel(instruction.precision), 1, WARP, 0, 0, np.ascontiguousarray(a).reshape(-1), weights, sums.reshape(-1)
    )
    group, member = np.divmod(np.arange(WARP), OF_LANE)
    found = np.empty((ROWS, TILES * COLUMNS), np.float32)
    for n in range(SUMS * TILES):
        found[group + n % SUMS // 2 * 8, n // SUMS * COLUMNS + 2 * member + n % 2] = sums[n]
    return found


@cache
def _kernel(precision: str) -> Any:
    left_fragment, multiply_tiles = (getattr(tensor_cores, f"{name}_{precision}") for name in ("left", "multiply"))
    nothing = no_sums(TILES)

    def one_chunk(A: Any, weights: Any, sums: Any) -> None:
        left = cuda.shared.array(LEFT, np.float32, alignment=16)
        kept = cuda.shared.array(RIGHT, weights.dtype, alignment=16)
        lane = cuda.threadIdx.x
        for place in range(lane, LEFT, WARP):
            left[place] = A[place]
        for place in range(lane, RIGHT, WARP):
            kept[place] = weights[place]
        cuda.syncthreads()
        words = left_fragment(left, lane // OF_LANE, ROWS - 1, CHUNK, lane % OF_LANE * OF_LANE, nothing)
        found = multiply_tiles(nothing, words, kept, lane * OF_LANE)
        keep_fragments(found, sums, lane)

    return kernel(one_chunk)
