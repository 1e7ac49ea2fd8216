"""Products of one step with columns on chip, in the simulator: all edges of tiles and slices, any blocks and lanes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda
from gemm_cases import assert_product
from whole_grid import whole_grid

from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.step_product import TILE, padded, shared_numbers, source

pytestmark = on_cuda
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
    A, B, C, bias, a_row, rows, inner, columns, period, along, across, accumulate, bias_start, depth, staged, sums
):
    u0 = period * cuda.blockIdx.x // cuda.gridDim.x
    u1 = period * (cuda.blockIdx.x + 1) // cuda.gridDim.x
    shared = cuda.shared.array(0, types.{dtype}{aligned})
    kept = cuda.shared.array(0, types.{weights}{aligned})
    load_columns(B, 1, along, across, inner, columns, period, u0, u1, at(kept, 0))
    step_product(
        A, 2, a_row, rows, inner, at(kept, 0), at(shared, staged), depth, at(shared, sums),
        C, 3, columns, period, u0, u1, accumulate, bias, bias_start,
    )
"""


def run(
    A: Any, B: Any, C: Any, bias: Any, period: int, blocks: int, lanes: int, depth: int, weights: str, way: str
) -> Any:
    """`C` after the kernel; everything lies behind some numbers that nobody should read."""
    (rows, inner), columns, dtype = A.shape, B.shape[1], str(A.dtype)
    aligned = facade.choose(", alignment=16", "")
    names = {"functions": source(dtype, weights), "dtype": dtype, "weights": weights, "aligned": aligned}
    module = load_module(KERNEL.format(**names))
    need = shared_numbers(rows, inner, columns // period * -(-period // blocks), lanes)
    staged = padded(need.weights)
    sums = staged + need.row * (depth + TILE) * (2 if depth < inner else 1)
    before = [np.full(count, np.nan, dtype) for count in (2, 1, 3)]
    turned = np.ascontiguousarray(B.T) if way == "transposed" else B
    flat = [np.concatenate([gap, x.reshape(-1)]) for gap, x in zip(before, (A, turned, C), strict=True)]
    a, b, c = map(on_device, flat)
    along, across = (1, inner) if way == "transposed" else (columns, 1)
    given = on_device(np.concatenate([[np.nan], np.zeros(columns) if bias is None else bias]).astype(dtype))
    numbers = (inner, rows, inner, columns, period, along, across, way == "accumulate", -1 if bias is None else 1)
    shared_bytes = (sums + need.sums) * np.dtype(dtype).itemsize
    with whole_grid(check=True):
        facade.launch(module.kernel, blocks, lanes, shared_bytes, 0, a, b, c, given, *numbers, depth, staged, sums)
    return c.to_host()[3:].reshape(C.shape)


def operands(rows: int, inner: int, columns: int, dtype: str = "float64") -> tuple[Any, Any, Any, Any]:
    random = np.random.default_rng(rows * 100 + inner * 10 + columns)
    sizes = ((rows, inner), (inner, columns), (rows, columns), (columns,))
    a, b, c, bias = (random.normal(size=size).astype(dtype) for size in sizes)
    return a, b, c, bias


@pytest.mark.covering(1)
@pytest.mark.parametrize("inner", [1, 4, 7])
@pytest.mark.parametrize("rows", [1, 4, 5])
def test_edges_of_tiles(rows: int, inner: int) -> None:
    ways = ("plain", "bias", "accumulate", "transposed")
    for number, ((period, gates), lanes) in enumerate(product(((1, 1), (3, 2), (5, 1), (8, 3)), (1, 5))):
        A, B, C, bias = operands(rows, inner, period * gates)
        for way in (ways[number % 4], ways[(number + rows + inner) % 4]):
            start = C if way == "accumulate" else np.full_like(C, np.nan)
            given = bias if way == "bias" else None
            came = run(A, B, start, given, period, 1, lanes, padded(inner), "float64", way)
            addend = {"accumulate": C, "bias": bias}.get(way, np.zeros_like(C))
            assert_product(came, A, B, addend)


@pytest.mark.parametrize(("blocks", "lanes", "depth"), [(2, 3, 4), (3, 16, 8), (6, 2, 4), (7, 1, 12)])
def test_blocks_share_out_features_and_slices_of_k(blocks: int, lanes: int, depth: int) -> None:
    """Blocks of several widths, some without a feature; slices that end early; more lanes than tiles, and fewer."""
    A, B, C, _ = operands(6, 10, 12)
    came = run(A, B, np.full_like(C, np.nan), None, 6, blocks, lanes, depth, "float64", "plain")
    assert_product(came, A, B, np.zeros_like(C))


def test_float16_weights() -> None:
    A, B, C, _ = operands(5, 9, 6, "float32")
    came = run(A, B, np.full_like(C, np.nan), None, 3, 2, 3, 4, "float16", "plain")
    assert_product(came, A, B.astype("float16").astype("float32"), np.zeros_like(C))
    assert np.abs(came - A @ B).max() > 1e-5


def test_quotients_of_32_bits() -> None:
    from rnnops.kernels.cuda.step_product import quotient

    for a, b in ((0, 1), (7, 2), (2**31, 3), (2**32 - 1, 2**16 + 1)):
        assert quotient(a, b) == a // b
