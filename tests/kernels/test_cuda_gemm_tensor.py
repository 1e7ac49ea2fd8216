"""Products of rounded operands on tensor cores, here the simulator's twins: edges of tiles, strides; and as PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda, own_products
from gemm_cases import operands
from test_cuda_step_product_tensor import PRECISIONS, assert_product
from whole_grid import whole_grid
from without_simulator import SIGNATURE, run_compiler

from rnnops.kernels.cuda import gemm
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.gemm import Matrix, Product, multiply

pytestmark = on_cuda
HALF_STEPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "tfloat32": 2.0**-11}  # by which rounding is off at most


def matrix(array: Any) -> Matrix:
    return Matrix(on_device(array.reshape(-1)), 0, array.shape[1])


def product(A: Any, B: Any, C: Any, rounding: str, accumulate: bool = False, bias: Any = None) -> Any:
    target = on_device(C.reshape(-1))
    given = None if bias is None else (on_device(np.concatenate([[np.nan, np.nan], bias]).astype(C.dtype)), 2)
    into = Matrix(target, 0, C.shape[1])
    with whole_grid(check=True):
        multiply(Product(matrix(A), matrix(B), into, *C.shape, A.shape[1], accumulate, given, rounding))
    return target.to_host().reshape(C.shape)


def expect_product(came: Any, A: Any, B: Any, addend: Any, rounding: str) -> None:
    """Exact but for sums in float32; cuBLAS may round operands to a finer format, or not at all."""
    if gemm.cublas() is None:
        return assert_product(came, A, B, addend, rounding)
    bound = 2 * HALF_STEPS[rounding] * (np.abs(A) @ np.abs(B)) + 1e-6 * (1 + np.abs(addend))
    assert (np.abs(came - (A.astype("float64") @ B + addend)) <= bound).all()


@pytest.mark.parametrize("rounding", PRECISIONS)
def test_edges_of_tiles(rounding: str) -> None:
    for M, N, K in ((1, 1, 1), (15, 17, 16), (17, 15, 17), (3, 2, 0)):
        A, B, C, bias = operands(M, K, N, "float32")
        expect_product(product(A, B, np.full_like(C, np.nan), rounding), A, B, np.zeros_like(C), rounding)
        expect_product(product(A, B, np.full_like(C, np.nan), rounding, bias=bias), A, B, bias, rounding)
        expect_product(product(A, B, C, rounding, accumulate=True), A, B, C, rounding)


def test_transposed_operands() -> None:
    A, B, C, _ = operands(5, 18, 6, "float32")
    target = on_device(np.full(C.size, np.nan, "float32"))
    left, right = matrix(A.T.copy()).transposed, matrix(B.T.copy()).transposed
    multiply(Product(left, right, Matrix(target, 0, 6), 5, 6, 18, rounding="bfloat16"))
    expect_product(target.to_host().reshape(C.shape), A, B, np.zeros_like(C), "bfloat16")


@own_products
def test_products_that_round_alike_share_launches() -> None:
    """`C = A @ B; C += A @ B` of one format is one launch, of several formats as many."""
    A, B, C, _ = operands(3, 4, 5, "float32")
    for roundings, launches in ((("bfloat16", "bfloat16"), 1), (("bfloat16", ""), 2), (("float16", "tfloat32"), 2)):
        target = on_device(C.reshape(-1))
        one = Product(matrix(A), matrix(B), Matrix(target, 0, 5), 3, 5, 4)
        first, second = (one._replace(rounding=rounding) for rounding in roundings)
        assert multiply(first, second._replace(accumulate=True)) == launches
        np.testing.assert_allclose(target.to_host().reshape(C.shape), 2 * A @ B, atol=0.1)


COMPILE = """
from rnnops.kernels.cuda.gemm import TensorTiling, tensor_function
for rounding, least in (("tfloat32", 16), ("bfloat16", 8), ("float16", 8)):  # CUDA 13 unrolls more
    text = facade.ptx(tensor_function(rounding, TensorTiling()), product_signature("float32", 3), (8, 0))
    print(len(re.findall("mma[.]sync", text)) >= least, ".local" in text, "ld.shared.v4" in text, "align 16" in text)
"""


def test_ptx_keeps_sums_in_registers() -> None:
    assert run_compiler(SIGNATURE + COMPILE) == 3 * ["True False True True"]
