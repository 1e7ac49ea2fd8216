"""Products with whole numbers of a byte each: the bits of the float32 kernel, for all edges, widths and cuts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gemm_cases import edge_columns, framed, no_bias, operands, parts

from rnnops.kernels.cpu import native as plain
from rnnops.kernels.cpu.gemm import K_BLOCK
from rnnops.kernels.cpu.native import Products, products_of
from rnnops.kernels.cpu.processor import INT8, WIDTHS, vector_width


@pytest.fixture(params=WIDTHS)
def kernels(request: pytest.FixtureRequest) -> Products:
    return Products("float32", request.param, INT8)


def cases(M: int, K: int, N: int) -> tuple[Any, Any, Any, Any]:
    """Operands, of which B is whole numbers from -127 to 127; both ends are there."""
    A, B, C, bias = operands(M, K, N, "float32")
    B = np.clip(np.rint(60 * B), -127, 127)
    B.reshape(-1)[:2] = np.array([-127, 127], np.float32)[: B.size]
    return A, B, C, bias


def product(kernels: Products, A: Any, B: Any, C: Any, accumulate: bool = False, bias: Any = None) -> Any:
    bias = no_bias("float32") if bias is None else bias
    kernels.gemm_packed(A, kernels.pack(B), C, accumulate, bias, 0, C.shape[0], 0, C.shape[1])
    return C


def check(kernels: Products, M: int, K: int, N: int) -> None:
    """With and without a bias or a sum to add to."""
    (A, B, C, bias), floats = cases(M, K, N), products_of("float32", kernels.width)
    for options in ({}, {"bias": bias}, {"accumulate": True}):
        came, wanted = (product(one, A, B, C.copy(), **options) for one in (kernels, floats))
        assert came.tobytes() == wanted.tobytes(), (M, K, N, [*options])


def test_rows_and_columns_around_tiles(kernels: Products) -> None:
    for M in (0, 1, 2, 3, 9):
        for N in edge_columns(kernels):
            check(kernels, M, 5, N)


def test_depths_around_blocks_and_many_rows(kernels: Products) -> None:
    for K in (0, 1, 2, K_BLOCK - 1, K_BLOCK, K_BLOCK + 1, 2 * K_BLOCK + 1):
        check(kernels, 3, K, 50)
    check(kernels, 261, 6, 20)  # more than a block of rows


def test_packing(kernels: Products) -> None:
    """From rows, columns and views; what lies in the panels is what float32 panels hold."""
    floats = products_of("float32", kernels.width)
    for N in edge_columns(kernels):
        for K in (0, 1, 33):
            B = cases(1, K, N)[1]
            packed = kernels.pack(B)
            assert (packed.dtype, packed.nbytes) == (np.int8, kernels.packed_size(K, N))
            np.testing.assert_array_equal(packed, floats.pack(B))
            for turned in (B.T.copy(), framed(B.T, np.nan)[0]):
                again = np.full_like(packed, 77)
                kernels.pack_transposed_into(turned, again)
                assert packed.tobytes() == again.tobytes()
            assert packed.tobytes() == kernels.pack(framed(B, np.nan)[0]).tobytes()


def test_any_cut_gives_the_same_bits(kernels: Products) -> None:
    random = np.random.default_rng(1)
    for M in (1, 2, 21):
        A, B, C, bias = cases(M, K_BLOCK + 91, 250)
        packed, whole = kernels.pack(B), product(kernels, A, B, C.copy(), bias=bias)
        cut, rows, columns = np.full_like(C, np.nan), list(parts(M, 3, random)), list(parts(250, 5, random))
        for begin, end in random.permutation(rows):
            for first, last in random.permutation(columns):
                kernels.gemm_packed(A, packed, cut, False, bias, begin, end, first, last)
        assert cut.tobytes() == whole.tobytes()


def test_plain_python() -> None:
    for M, K, N in [(0, 3, 4), (1, 0, 5), (1, 7, 130), (17, K_BLOCK + 1, 26)]:
        A, B, C, bias = cases(M, K, N)
        for pack, given in ((plain.pack_into_int8, B), (plain.pack_transposed_into_int8, B.T)):
            packed, came = np.zeros(K * N + 3, np.int8), C.copy()
            pack(given, packed)
            plain.gemm_packed_int8(A, packed, came, False, bias, 0, M, 0, N)
            np.testing.assert_allclose(came, A @ B + bias, rtol=1e-5, atol=1e-3)


def test_wrong_operands_are_errors() -> None:
    kernels, (A, B, C, _) = Products("float32", vector_width(), INT8), cases(2, 3, 4)
    with pytest.raises(TypeError, match="packed: wanted an array of int8, came float32"):
        kernels.gemm_packed(A, products_of("float32").pack(B), C, False, no_bias("float32"), 0, 2, 0, 4)
    with pytest.raises(TypeError, match="wanted arrays of float32, came int8"):
        kernels.pack(B.astype(np.int8))
