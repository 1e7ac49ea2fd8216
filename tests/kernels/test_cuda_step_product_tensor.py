"""Products of one step by tensor cores, in the simulator: edges of tiles, chunks and slices, any blocks and warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda
from whole_grid import whole_grid

from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade, step_product
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.step_product_tensor import (
    BESIDE,
    SLICE,
    shared_fragments,
    source,
    sums_name,
    tiles_of,
    times_of,
)
from rnnops.kernels.cuda.tensor_cores import INSTRUCTIONS, bits, values

pytestmark = on_cuda
PRECISIONS = tuple(INSTRUCTIONS)
KERNEL = """\
from typing import Any

import numpy as np
from numba import cuda, types

from rnnops.kernels.cuda.lane_functions import copies_done, copy_soon, fetch_early, starts_a_copy
from rnnops.kernels.cuda.facade import at
from rnnops.kernels.cuda.lane_functions import add_products, clear_tile, keep_tile

device_function = cuda.jit(device=True)


{functions}


@cuda.jit
def kernel(
    A, B, C, bias, a_row, rows, inner, columns, period, along, across, accumulate, bias_start, depth, staged, sums,
    groups
):
    u0 = period * cuda.blockIdx.x // cuda.gridDim.x
    u1 = period * (cuda.blockIdx.x + 1) // cuda.gridDim.x
    shared = cuda.shared.array(0, types.float32{aligned})
    fragments = cuda.shared.array(0, types.{words}{aligned})
    load_fragments(B, 1, along, across, inner, columns, period, u0, u1, groups * {tiles}, at(fragments, 0))
    tensor_product(
        A, 4, a_row, rows, inner, at(fragments, 0), at(shared, staged), depth, at(shared, sums),
        C, 3, columns, period, u0, u1, accumulate, bias, bias_start, groups, {nothing},
    )
"""


def run(
    A: Any, B: Any, C: Any, bias: Any, precision: str, period: int, blocks: int = 1, warps: int = 1,
    depth: int = SLICE, way: str = "plain", seed: int | None = None,
) -> Any:  # fmt: skip
    """`C` after the kernel, sums where the left side was; what it is given lies behind some numbers."""
    (rows, inner), columns = A.shape, B.shape[1]
    width = columns // period * -(-period // blocks)
    (tiles, groups), need = tiles_of(width), shared_fragments(rows, inner, width, 32 * warps)
    instruction = INSTRUCTIONS[precision]
    words, aligned = f"uint{8 * instruction.itemsize}", facade.choose(", alignment=16", "")
    functions = step_product.source("float32", "float32") + "\n\n\n" + source(precision)
    names = {
        "functions": functions,
        "words": words,
        "aligned": aligned,
        "tiles": tiles,
        "nothing": sums_name(tiles, times_of(rows)),
    }
    module = load_module(KERNEL.format(**names))
    staged = -(-need.weights * instruction.itemsize // 16) * 4
    left = need.row * (depth + BESIDE) * (2 if depth < inner else 1)
    shared_bytes = 4 * (staged + max(left, need.sums))
    before = [np.full(count, np.nan, "float32") for count in (4, 1, 3)]
    turned = np.ascontiguousarray(B.T) if way == "transposed" else B
    flat = [np.concatenate([gap, x.reshape(-1)]) for gap, x in zip(before, (A, turned, C), strict=True)]
    a, b, c = map(on_device, flat)
    along, across = (1, inner) if way == "transposed" else (columns, 1)
    given = on_device(np.concatenate([[np.nan], np.zeros(columns) if bias is None else bias]).astype("float32"))
    numbers = (inner, rows, inner, columns, period, along, across, way == "accumulate", -1 if bias is None else 1)
    with whole_grid(check=True, seed=seed):
        facade.launch(
            module.kernel, blocks, 32 * warps, shared_bytes, 0, a, b, c, given, *numbers, depth, staged,
            staged, groups,
        )  # fmt: skip
    return c.to_host()[3:].reshape(C.shape)


def rounded(precision: str, x: Any) -> Any:
    instruction = INSTRUCTIONS[precision]
    return values(instruction, bits(instruction, x)).astype("float64")


def operands(rows: int, inner: int, columns: int) -> tuple[Any, Any, Any, Any]:
    random = np.random.default_rng(rows * 100 + inner * 10 + columns)
    sizes = ((rows, inner), (inner, columns), (rows, columns), (columns,))
    a, b, c, bias = (random.normal(size=size).astype("float32") for size in sizes)
    return a, b, c, bias


def assert_product(came: Any, A: Any, B: Any, addend: Any, precision: str) -> None:
    """Exact but for sums in float32."""
    a, b = rounded(precision, A), rounded(precision, B)
    bound = (A.shape[1] + 3) * 2.0**-23 * (np.abs(a) @ np.abs(b) + np.abs(addend))
    assert (np.abs(came - (a @ b + addend)) <= bound).all(), np.abs(came - (a @ b + addend)).max()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_edges_of_tiles_and_chunks(precision: str) -> None:
    ways = ("plain", "bias", "accumulate", "transposed")
    sizes = ((1, 1, 1, 1), (3, 16, 3, 2), (17, 20, 5, 1), (8, 33, 8, 3))
    for way, (rows, inner, period, gates) in zip(ways, sizes, strict=True):
        A, B, C, bias = operands(rows, inner, period * gates)
        start = C if way == "accumulate" else np.full_like(C, np.nan)
        given = bias if way == "bias" else None
        came = run(A, B, start, given, precision, period, way=way, depth=2 * SLICE)
        addend = {"accumulate": C, "bias": bias}.get(way, np.zeros_like(C))
        assert_product(came, A, B, addend, precision)


@pytest.mark.parametrize(
    ("blocks", "warps", "rows", "inner", "columns"), [(2, 2, 2, 40, 42), (1, 1, 33, 40, 15), (1, 1, 2, 18, 72)]
)
def test_warps_share_out_tiles_and_k_in_one_order(blocks: int, warps: int, rows: int, inner: int, columns: int) -> None:
    """Slices that end early, groups of tiles, warps with k of their own and warps with tiles of their own."""
    A, B, C, _ = operands(rows, inner, columns)
    came = [
        run(A, B, np.full_like(C, np.nan), None, "bfloat16", columns // 3, blocks, warps, seed=seed) for seed in (0, 1)
    ]
    assert_product(came[0], A, B, np.zeros_like(C), "bfloat16")
    np.testing.assert_array_equal(came[0], came[1])


def test_what_is_not_finite_stays_in_its_row() -> None:
    A, B, C, _ = operands(5, 18, 6)
    A[2, 3], A[4, 17] = np.nan, np.inf
    came = run(A, B, np.full_like(C, np.nan), None, "tfloat32", 3)
    assert np.isnan(came[2]).all()
    assert np.isinf(came[4]).all()
    assert np.isfinite(came[[0, 1, 3]]).all()
