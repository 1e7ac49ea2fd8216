"""Products of bytes with bytes: exact sums, for all edges, depths and cuts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gemm_cases import edge_columns, framed, no_bias, parts

from rnnops.kernels.cpu import native as plain
from rnnops.kernels.cpu.gemm import K_BLOCK
from rnnops.kernels.cpu.native import Products
from rnnops.kernels.cpu.processor import QUADS, has_quads


@pytest.fixture(params=[512, 256])
def kernels(request: pytest.FixtureRequest) -> Products:
    if not has_quads(request.param):
        pytest.skip("the processor has no VNNI for vectors of this width")
    return Products("float32", request.param, QUADS)


def cases(M: int, K: int, N: int) -> tuple[Any, Any, Any]:
    """Operands over the whole range as floats, and their product: few of B are large, so that sums stay below 2^24."""
    draw = np.random.default_rng([M, K, N])
    A, B = draw.integers(0, 256, (M, K)), draw.integers(-128, 128, (K, N))
    B[400:] //= 16
    return A.astype("f"), B.astype("f"), (A @ B).astype("f")


def product(kernels: Any, A: Any, packed: Any, C: Any, accumulate: bool = False, bias: Any = None) -> Any:
    bias = no_bias("float32") if bias is None else bias
    kernels.gemm_packed(A, packed, C, accumulate, bias, 0, C.shape[0], 0, C.shape[1])
    return C


def check(kernels: Products, M: int, K: int, N: int) -> None:
    """From rows and columns, with a bias and a sum to add to; nothing around C is written."""
    A, B, wanted = cases(M, K, N)
    packed, turned = kernels.pack(B), np.full(kernels.packed_size(K, N), 77, np.int8)
    kernels.pack_transposed_into(framed(B.T, np.nan)[0], turned)
    assert packed.tobytes() == turned.tobytes(), (M, K, N)
    bias = np.arange(N, dtype="f")
    for options, more in (({}, 0), ({"bias": bias}, bias), ({"accumulate": True}, 3)):
        C, around = framed(np.full((M, N), 3, "f"), -1.0)
        np.testing.assert_array_equal(product(kernels, A, packed, C, **options), wanted + more, f"{(M, K, N)}")
        C[...] = -1.0
        assert (around == -1.0).all()
    own = np.empty(B.size, np.int8)
    plain.pack_into_bytes(B, own)
    np.testing.assert_array_equal(product(plain, A, own, np.empty((M, N), "f")), wanted)


def test_rows_and_columns_around_tiles(kernels: Products) -> None:
    for M in (0, 1, 2, 3, 9):
        for N in edge_columns(kernels):
            check(kernels, M, 5, N)


def test_depths_around_words_and_blocks_and_many_rows(kernels: Products) -> None:
    for K in (0, 1, 2, 3, 4, 15, 17, K_BLOCK - 1, K_BLOCK, K_BLOCK + 1, 2 * K_BLOCK + 3):
        check(kernels, 3, K, 50)
    check(kernels, 259, 6, 20)  # more than a block of rows


def test_any_cut_gives_the_same_bits(kernels: Products) -> None:
    A, B, wanted = cases(21, K_BLOCK + 91, 250)
    packed, cut, draw = kernels.pack(B), np.full(wanted.shape, np.nan, "f"), np.random.default_rng(0)
    for begin, end in parts(21, 3, draw):
        for first, last in parts(250, 5, draw):
            kernels.gemm_packed(A, packed, cut, False, no_bias("float32"), begin, end, first, last)
    assert cut.tobytes() == wanted.tobytes()
