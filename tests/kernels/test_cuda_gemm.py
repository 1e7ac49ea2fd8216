"""Matrix products on a CUDA device, here its simulator: all edges of tiles, strides, windows; and as PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from covering import covered
from cuda_marks import in_simulator, on_cuda, own_products
from gemm_cases import assert_product, operands
from whole_grid import whole_grid
from without_simulator import SIGNATURE, run_compiler, run_without_simulator

from rnnops.errors import DeviceError
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.gemm import TILING, TOGETHER, Matrix, Product, multiply

pytestmark = on_cuda
DTYPES = ("float32", "float64")


def matrix(array: Any) -> Matrix:
    return Matrix(on_device(array.reshape(-1)), 0, array.shape[1])


def product(A: Any, B: Any, C: Any, accumulate: bool = False, bias: Any = None) -> Any:
    target = on_device(C.reshape(-1))
    given = None if bias is None else (on_device(np.concatenate([[np.nan, np.nan], bias]).astype(C.dtype)), 2)
    multiply(Product(matrix(A), matrix(B), Matrix(target, 0, C.shape[1]), *C.shape, A.shape[1], accumulate, given))
    return target.to_host().reshape(C.shape)


@pytest.mark.parametrize("strength", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_edges_of_tiles(dtype: str, strength: int) -> None:
    tile_rows, tile_columns = TILING.tile
    rows, columns = (1, tile_rows - 1, tile_rows, tile_rows + 1), (1, tile_columns, 2 * tile_columns - 1)
    for M, N, K in covered(strength, rows, columns, (0, 1, TILING.depth, 2 * TILING.depth + 1)):
        A, B, C, bias = operands(M, K, N, dtype)
        empty = np.full_like(C, np.nan)
        assert_product(product(A, B, empty), A, B, np.zeros_like(C))
        assert_product(product(A, B, empty, bias=bias), A, B, bias)
        assert_product(product(A, B, C, accumulate=True), A, B, C)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_operands_and_windows(dtype: str) -> None:
    A, B, C, _ = operands(5, 7, 6, dtype)
    for left, right in ((A.T.copy(), B), (A, B.T.copy())):
        target = on_device(np.full(C.size, np.nan, dtype))
        a = matrix(left) if left is A else matrix(left).transposed
        b = matrix(right) if right is B else matrix(right).transposed
        multiply(Product(a, b, Matrix(target, 0, 6), 5, 6, 7))
        assert_product(target.to_host().reshape(5, 6), A, B, np.zeros_like(C))
    frame = np.full((9, 10), 3, dtype)
    target = on_device(frame.reshape(-1))
    wide = on_device(np.concatenate([np.full((5, 2), np.nan, dtype), A], axis=1).reshape(-1))
    multiply(Product(Matrix(wide, 2, 9), matrix(B), Matrix(target, 23, 10), 5, 6, 7))
    came = target.to_host().reshape(9, 10)
    assert_product(came[2:7, 3:9].copy(), A, B, np.zeros_like(C))
    came[2:7, 3:9] = 3
    np.testing.assert_array_equal(came, frame)


def test_nan_and_infinity_reach_their_rows_alone() -> None:
    A, B, C, _ = operands(5, 7, 6, "float32")
    clean = product(A, B, C)
    A[2, 3], A[4, 0] = np.nan, np.inf
    came = product(A, B, C)
    assert np.isnan(came[2]).all()
    assert np.isinf(came[4]).all()
    np.testing.assert_array_equal(came[[0, 1, 3]], clean[[0, 1, 3]])


@own_products
@pytest.mark.parametrize("count", [1, 2, 8])
def test_products_of_different_sizes_share_launches(count: int) -> None:
    random = np.random.default_rng(0)
    sizes = [(1 + 3 * i, 2 + i, 9 - i) for i in range(count)]
    given = [(random.normal(size=(M, K)), random.normal(size=(K, N)), np.full((M, N), np.nan)) for M, K, N in sizes]
    targets = [on_device(C.reshape(-1)) for _, _, C in given]
    products = [
        Product(matrix(A), matrix(B), Matrix(target, 0, C.shape[1]), *C.shape, A.shape[1])
        for (A, B, C), target in zip(given, targets, strict=True)
    ]
    nothing = products[0]._replace(rows=0)
    assert multiply(nothing, *products) == -(-count // TOGETHER)
    for (A, B, C), target in zip(given, targets, strict=True):
        assert_product(target.to_host().reshape(C.shape), A, B, np.zeros_like(C))


@own_products
@pytest.mark.parametrize("terms", [2, 3, 9])
def test_products_that_go_on_with_the_one_before_share_launches(terms: int) -> None:
    """`C = A0 @ B0 + bias; C += A1 @ B1; ...; D = A0 @ B0`, sums of any length."""
    random = np.random.default_rng(0)
    given = [(random.normal(size=(7, 2 + i)), random.normal(size=(2 + i, 8))) for i in range(terms)]
    bias = random.normal(size=8)
    C, D = (on_device(np.full(56, np.nan)) for _ in "CD")
    into, other = (Matrix(target, 0, 8) for target in (C, D))
    products = [
        Product(matrix(A), matrix(B), into, 7, 8, A.shape[1], i > 0, None if i else (on_device(bias), 0))
        for i, (A, B) in enumerate(given)
    ]
    with whole_grid(check=True, seed=0):
        count = multiply(*products, products[0]._replace(c=other))
    assert count == -(-(terms + 1) // TOGETHER)
    np.testing.assert_allclose(C.to_host().reshape(7, 8), sum(A @ B for A, B in given) + bias, rtol=1e-12)
    np.testing.assert_allclose(D.to_host().reshape(7, 8), given[0][0] @ given[0][1] + bias, rtol=1e-12)


def test_nothing_to_do() -> None:
    empty = np.zeros((0, 3), "float32")
    assert product(empty, np.zeros((3, 4), "float32"), np.zeros((0, 4), "float32")).shape == (0, 4)


@in_simulator
def test_what_the_simulator_is_and_is_not() -> None:
    assert str(facade.card()).startswith("simulator")
    with pytest.raises(DeviceError, match="compiles nothing"):
        facade.ptx(lambda: None, (), (9, 0))


def test_without_a_device_the_error_says_what_is_missing() -> None:
    code = """
from rnnops.errors import DeviceError
from rnnops.kernels.cuda.facade import card
try:
    card()
except DeviceError as error:
    print(error)
"""
    said = run_without_simulator(code)
    assert said.startswith("no CUDA device")
    assert "driver" in said
    assert "extra 'cuda'" in said


COMPILE = """
from rnnops.kernels.cuda.gemm import Tiling, product_function
for dtype in ("float32", "float64"):
    text = facade.ptx(product_function(dtype, Tiling()), product_signature(dtype, 3), (9, 0))
    print(".target sm_90" in text, "fma.rn" in text, ".local" in text)
"""


def test_ptx_keeps_sums_in_registers() -> None:
    assert run_compiler(SIGNATURE + COMPILE) == ["True True False"] * 2
