"""Products of operands rounded to bfloat16: both ways, all edges, against float64 and each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gemm_cases import assert_product, edge_columns, framed, no_bias, operands, parts

from rnnops.kernels.cpu import native as plain
from rnnops.kernels.cpu.gemm import K_BLOCK, ROWS, TN_ROWS
from rnnops.kernels.cpu.native import Products, rounded_products_of, way_of
from rnnops.kernels.cpu.pointwise import round_bfloat16
from rnnops.kernels.cpu.processor import PAIRS, SINGLES, WIDTHS, TargetProcessor, has_pairs, host
from rnnops.ops.linear_algebra import rounded

LEAST = float(np.finfo(np.float32).tiny)  # the smallest normal number
KERNELS = [(width, SINGLES) for width in WIDTHS] + [(512, PAIRS)]
with_pairs = pytest.mark.skipif(not has_pairs(512), reason="the processor multiplies no pairs")


@pytest.fixture(params=KERNELS, ids=lambda p: f"{p[1]}-{p[0]}")
def kernels(request: pytest.FixtureRequest) -> Products:
    width, way = request.param
    if way == PAIRS and not has_pairs(width):
        pytest.skip("the processor multiplies no pairs")
    return rounded_products_of(width, way)


def packed_product(kernels: Products, A: Any, B: Any, C: Any, accumulate: bool = False, bias: Any = None) -> Any:
    bias = no_bias("float32") if bias is None else bias
    kernels.gemm_packed(A, kernels.pack(B), C, accumulate, bias, 0, C.shape[0], 0, C.shape[1])
    return C


def tn_product(kernels: Products, A: Any, B: Any, C: Any, accumulate: bool = False) -> Any:
    kernels.gemm_tn(A, B, C, accumulate, 0, C.shape[0], 0, C.shape[1])
    return C


def check(kernels: Products, M: int, K: int, N: int) -> None:
    """Products with and without a bias or a sum to add to, by packed matrices and by columns."""
    A, B, C, bias = operands(M, K, N, "float32")
    near, new = (rounded(A), rounded(B)), np.full_like(C, np.nan)
    assert_product(packed_product(kernels, A, B, new.copy(), bias=bias), *near, bias)
    assert_product(packed_product(kernels, A, B, C.copy(), accumulate=True), *near, C)
    transposed = np.ascontiguousarray(A.T)
    assert_product(tn_product(kernels, transposed, B, new.copy()), *near, np.zeros_like(C))
    assert_product(tn_product(kernels, transposed, B, C.copy(), accumulate=True), *near, C)


def test_rows_and_columns_around_tiles(kernels: Products) -> None:
    for M in (0, 1, 2, 3, 7, 8, 9, 17):
        for N in edge_columns(kernels):
            check(kernels, M, 5, N)


@pytest.mark.parametrize("K", [0, 1, 2, 7, K_BLOCK - 1, K_BLOCK, K_BLOCK + 1, 2 * K_BLOCK - 1, 3 * K_BLOCK + 5])
def test_depths_around_blocks(kernels: Products, K: int) -> None:
    check(kernels, 9, K, 50)


def test_more_rows_than_a_block(kernels: Products) -> None:
    for rows in (2 * ROWS[kernels.way] + 3, TN_ROWS[kernels.way] + 1):
        check(kernels, rows, 6, 20)


def test_operands_are_rounded(kernels: Products) -> None:
    """Halves between two bfloat16 numbers go to the even one; exact operands would give something else."""
    x = np.array([[1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -1 - 2.0**-8, 3e38, -3.4e38]], np.float32)
    wanted = [1, 1 + 2.0**-6, 1 + 2.0**-7, -1, float(rounded(np.float32(3e38))), -np.inf]
    one = np.ones((1, 1), np.float32)
    assert packed_product(kernels, one, x, np.zeros_like(x))[0].tolist() == wanted
    assert packed_product(kernels, x.T.copy(), one, np.zeros_like(x.T))[:, 0].tolist() == wanted
    assert tn_product(kernels, one, x, np.zeros_like(x))[0].tolist() == wanted
    assert tn_product(kernels, x, one, np.zeros_like(x.T))[:, 0].tolist() == wanted


def test_infinities_and_nan(kernels: Products) -> None:
    A, B, C, _ = operands(19, 70, 37, "float32")
    A[3, 7], A[5, 8], B[60, 3], B[9, 36], A[18, 69], A[4, 0] = np.nan, np.inf, -np.inf, np.nan, 3.4e38, -np.inf
    A[7, 3] = np.array(0x7F800001, np.uint32).view(np.float32)  # NaN whose upper half is infinity
    with np.errstate(all="ignore"):
        wanted = rounded(A).astype(np.float64) @ rounded(B)
    for came in (packed_product(kernels, A, B, C.copy()), tn_product(kernels, A.T.copy(), B, C.copy())):
        np.testing.assert_array_equal(np.isnan(came), np.isnan(wanted))
        np.testing.assert_array_equal(came[np.isinf(wanted)], wanted[np.isinf(wanted)])


def test_views_and_what_lies_around_them(kernels: Products) -> None:
    A, B, C, bias = operands(11, 13, 37, "float32")
    near = rounded(A), rounded(B)
    for value in (np.nan, 7.0):
        (a, _), (b, _), (c, frame) = framed(A, value), framed(B, value), framed(C, 3.0)
        before = frame.copy()
        assert_product(packed_product(kernels, a, b, c, bias=bias), *near, bias)
        assert_product(tn_product(kernels, framed(A.T, value)[0], b, c), *near, np.zeros_like(C))
        frame[1:-1, 2:-3] = before[1:-1, 2:-3]
        np.testing.assert_array_equal(frame, before)


def test_packing(kernels: Products) -> None:
    for N in edge_columns(kernels):
        for K in (0, 1, 5, 33, K_BLOCK + 2):
            B = operands(1, K, N, "float32")[1]
            packed = kernels.pack(B)
            assert packed.size == kernels.packed_size(K, N)
            for turned in (B.T.copy(), framed(B.T, np.nan)[0]):
                again = np.full_like(packed, np.nan)
                kernels.pack_transposed_into(turned, again)
                assert packed.tobytes() == again.tobytes()
            assert packed.tobytes() == kernels.pack(framed(B, np.nan)[0]).tobytes()


def test_any_cut_gives_the_same_bits(kernels: Products) -> None:
    random = np.random.default_rng(1)
    A, B, C, bias = operands(43, K_BLOCK + 91, 150, "float32")
    packed, transposed = kernels.pack(B), np.ascontiguousarray(A.T)
    whole = packed_product(kernels, A, B, C.copy(), bias=bias)
    whole_tn = tn_product(kernels, transposed, B, C.copy(), True)
    for cuts in (1, 3, 8):
        cut, cut_tn = np.full_like(C, np.nan), C.copy()
        rows, columns = list(parts(43, cuts, random)), list(parts(150, cuts, random))
        for begin, end in random.permutation(rows):
            for first, last in random.permutation(columns):
                kernels.gemm_packed(A, packed, cut, False, bias, begin, end, first, last)
                kernels.gemm_tn(transposed, B, cut_tn, True, begin, end, first, last)
        np.testing.assert_array_equal(cut, whole)
        np.testing.assert_array_equal(cut_tn, whole_tn)


def test_every_width_and_way_gives_the_same_bits() -> None:
    found = [rounded_products_of(width, way) for width, way in KERNELS if way == SINGLES or has_pairs(width)]
    for rows in (1, 2, 13):
        A, B, C, _ = operands(rows, K_BLOCK + 7, 100, "float32")
        first, *others = (packed_product(kernels, A, B, C.copy(), True) for kernels in found)
        assert all(other.tobytes() == first.tobytes() for other in others)
        first, *others = (tn_product(kernels, A.T.copy(), B, C.copy(), True) for kernels in found)
        assert all(other.tobytes() == first.tobytes() for other in others)


@with_pairs
def test_what_pairs_do_to_tiny_numbers() -> None:
    """Operands, and sums, below the smallest normal number count for nothing: no more than that is lost."""
    kernels, scale = rounded_products_of(512, PAIRS), 4 * LEAST**0.5
    A, B, C, _ = operands(9, 40, 50, "float32")
    A[:3], B[:, :7], C[3:] = A[:3] * LEAST, B[:, :7] * LEAST, 0
    A[3:], B[:, 7:] = A[3:] * scale, B[:, 7:] * scale
    C[:3] = 0
    near = rounded(A).astype(np.float64), rounded(B).astype(np.float64)
    flushed = LEAST * (np.abs(near[0]).sum(1)[:, None] + np.abs(near[1]).sum(0) + 2 * A.shape[1])
    rounding = 42 * 2.0**-24 * (np.abs(near[0]) @ np.abs(near[1]))
    for came in (packed_product(kernels, A, B, C.copy()), tn_product(kernels, A.T.copy(), B, C.copy())):
        assert (np.abs(came - near[0] @ near[1]) <= flushed + rounding).all()
    zero = packed_product(kernels, A[:3], np.ones_like(B), np.zeros((3, 50), np.float32))
    assert (np.abs(zero) < 40 * 4 * LEAST).all()


def test_plain_python() -> None:
    for M, K, N in [(0, 3, 4), (1, 0, 5), (1, 7, 130), (2, 31, 61), (17, K_BLOCK + 1, 26)]:
        A, B, C, bias = operands(M, K, N, "float32")
        near, part = (rounded(A), rounded(B)), (0, M, 0, N)
        for pack, given in ((plain.pack_into_bfloat16, B), (plain.pack_transposed_into_bfloat16, B.T)):
            packed = np.full(rounded_products_of().packed_size(K, N), np.nan, np.float32)
            pack(given, packed)
            came = C.copy()
            plain.gemm_packed_bfloat16(A, packed, came, True, no_bias("float32"), *part)
            assert_product(came, *near, C)
            plain.gemm_packed_bfloat16(A, packed, came, False, bias, *part)
            assert_product(came, *near, bias)
        came = C.copy()
        plain.gemm_tn_bfloat16(A.T, B, came, True, *part)
        assert_product(came, *near, C)


def test_numbers_one_by_one() -> None:
    """What pointwise kernels round, beside the reference: all upper halves with halves below them that matter."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    x = (upper[:, None] | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).view(np.float32)
    np.testing.assert_array_equal(round_bfloat16(x), rounded(x))
    assert not (round_bfloat16(x).view(np.uint32) & 0xFFFF).any()
    assert round_bfloat16(np.float32(1.01)).dtype == np.float32


def test_way_of_a_processor() -> None:
    """Pairs need vectors of 512 bits and the instructions for them."""
    assert way_of(256) == way_of(64) == SINGLES
    assert way_of(512) == (PAIRS if "avx512bf16" in host().features else SINGLES)
    assert isinstance(host(), TargetProcessor)
