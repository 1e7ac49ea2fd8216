"""Products whose k blocks share out, in the simulator: edges of tiles, unequal shares, blocks without a feature."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda
from gemm_cases import assert_product
from whole_grid import whole_grid

from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade, step_product
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.step_product import TILE, kept_rows, padded, partial_sums, staged_width

pytestmark = on_cuda
KERNELS = """\
from typing import Any

import numpy as np
from numba import cuda, types

from rnnops.kernels.cuda.lane_functions import copies_done, copy_soon, fetch_early, starts_a_copy
from rnnops.kernels.cuda.facade import at
from rnnops.kernels.cuda.lane_functions import add_apart, add_batch, clear_four, keep_four, write_four, write_tile
from rnnops.kernels.cuda.lane_functions import add_products, clear_tile, keep_tile

device_function = cuda.jit(device=True)


{functions}


@cuda.jit
def partial(A, B, P, a_row, rows, inner, columns, period, along, across, height, width, staged, pitch, sums):
    member, members = cuda.blockIdx.x, cuda.gridDim.x
    u0, u1 = period * member // members, period * (member + 1) // members
    shared = cuda.shared.array(0, types.{dtype}{aligned})
    kept = cuda.shared.array(0, types.{weights}{aligned})
    load_rows(B, 1, along, across, inner, columns, period, members, width, u0, u1, at(kept, 0))
    partial_product(
        A, 2, a_row, rows, inner, at(kept, 0), at(shared, staged), pitch, False, at(shared, sums),
        P, 4, height, width, member, members, period, u0, u1,
    )


@cuda.jit
def whole(P, C, bias, rows, columns, period, height, width, accumulate, bias_start):
    member, members = cuda.blockIdx.x, cuda.gridDim.x
    u0, u1 = period * member // members, period * (member + 1) // members
    shared = cuda.shared.array(0, types.{dtype}{aligned})
    add_partials(
        P, 4, rows, height, width, member, members, at(shared, 0),
        C, 3, columns, period, u0, u1, accumulate, bias, bias_start,
    )
"""


def run(
    A: Any, B: Any, C: Any, bias: Any, period: int, blocks: int, lanes: int, weights: str = "", way: str = ""
) -> Any:
    """`C` after both kernels; everything lies behind some numbers that nobody should read."""
    (rows, inner), columns, dtype = A.shape, B.shape[1], str(A.dtype)
    functions = f"{step_product.source(dtype, weights or dtype)}\n\n\n{step_product.split_source()}"
    aligned = facade.choose(", alignment=16", "")
    module = load_module(KERNELS.format(functions=functions, dtype=dtype, weights=weights or dtype, aligned=aligned))
    sums = partial_sums(rows, columns, period, blocks)
    staged = padded(kept_rows(inner, period, sums))
    pitch = staged_width(inner, period, blocks) + TILE
    end = staged + padded(rows) * pitch
    turned = np.ascontiguousarray(B.T) if way == "transposed" else B
    flat = [np.concatenate([np.full(gap, np.nan, dtype), x.reshape(-1)]) for gap, x in ((2, A), (1, turned), (3, C))]
    a, b, c = map(on_device, flat)
    partials = on_device(np.full(4 + sums.of_group, np.nan, dtype))
    given = on_device(np.concatenate([[np.nan], np.zeros(columns) if bias is None else bias]).astype(dtype))
    along, across = (1, inner) if way == "transposed" else (columns, 1)
    size = np.dtype(dtype).itemsize
    with whole_grid(check=True):
        numbers = (inner, rows, inner, columns, period, along, across, sums.height, sums.width, staged, pitch, end)
        facade.launch(module.partial, blocks, lanes, (end + lanes * TILE**2) * size, 0, a, b, partials, *numbers)
        numbers = (rows, columns, period, sums.height, sums.width, way == "accumulate", -1 if bias is None else 1)
        facade.launch(module.whole, blocks, lanes, lanes * TILE * size, 0, partials, c, given, *numbers)
    return c.to_host()[3:].reshape(C.shape)


def operands(rows: int, inner: int, columns: int, dtype: str = "float64") -> tuple[Any, Any, Any, Any]:
    random = np.random.default_rng(rows * 100 + inner * 10 + columns)
    sizes = ((rows, inner), (inner, columns), (rows, columns), (columns,))
    a, b, c, bias = (random.normal(size=size).astype(dtype) for size in sizes)
    return a, b, c, bias


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_edges_of_tiles_and_shares(rows: int) -> None:
    """As many lanes as tiles, fewer, and more; members with unequal shares, and with none."""
    ways = ("plain", "bias", "accumulate", "transposed")
    sizes = product(((1, 4, 1), (5, 3, 1), (6, 2, 2)), ((1, 5), (2, 1), (3, 16)))
    for number, ((period, gates, sides), (blocks, lanes)) in enumerate(sizes):
        way = ways[(number + rows) % 4]
        A, B, C, bias = operands(rows, period * gates, period * sides)
        start = C if way == "accumulate" else np.full_like(C, np.nan)
        came = run(A, B, start, bias if way == "bias" else None, period, blocks, lanes, way=way)
        assert_product(came, A, B, {"accumulate": C, "bias": bias}.get(way, np.zeros_like(C)))


def test_more_members_than_are_read_at_once() -> None:
    A, B, C, _ = operands(1, 18, 9)
    came = run(A, B, np.full_like(C, np.nan), None, 9, 9, 1)
    assert_product(came, A, B, np.zeros_like(C))


def test_float16_weights() -> None:
    A, B, C, _ = operands(5, 18, 6, "float32")
    came = run(A, B, np.full_like(C, np.nan), None, 6, 2, 3, "float16")
    assert_product(came, A, B.astype("float16").astype("float32"), np.zeros_like(C))
    assert np.abs(came - A @ B).max() > 1e-5


def test_sums_of_members_have_one_order() -> None:
    """Numbers whose sum says in which order they were added: by k within a member, then by member."""
    A, B, C, _ = operands(2, 16, 4, "float32")
    A *= (10.0 ** np.random.default_rng(0).integers(-6, 6, 16)).astype("float32")
    wanted = np.zeros_like(C)
    for member in range(4):
        partial = np.zeros_like(C)
        for k in range(member, 16, 4):
            partial += A[:, k : k + 1] * B[k]
        wanted += partial
    assert run(A, B, np.full_like(C, np.nan), None, 4, 4, 1).tobytes() == wanted.tobytes()
    assert wanted.tobytes() != np.add.reduce(A[:, :, None] * B, axis=1, dtype="float32").tobytes()
