"""Matrix products: every vector width, both dtypes, all edges, against wider arithmetic and against themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from gemm_cases import assert_product, edge_columns, framed, no_bias, operands, parts

from rnnops.kernels.cpu import native as plain
from rnnops.kernels.cpu.gemm import K_BLOCK, PACKED_BLOCK_BYTES
from rnnops.kernels.cpu.native import Products, products_of
from rnnops.kernels.cpu.processor import WIDTHS, lanes, vector_width

DTYPES = ("float32", "float64")


# They have as many lanes as float32 in half the width. The processor's own width always runs.
ALIKE = {(128, "float64"), (512, "float64")} - {(vector_width(), "float64")}


@pytest.fixture(
    params=[
        pytest.param((width, dtype), marks=pytest.mark.slow if (width, dtype) in ALIKE else (), id=f"{dtype}-{width}")
        for width in WIDTHS
        for dtype in DTYPES
    ]
)
def kernels(request: pytest.FixtureRequest) -> Products:
    width, dtype = request.param
    return products_of(dtype, width)


@pytest.fixture(params=DTYPES)
def host(request: pytest.FixtureRequest) -> Products:
    return products_of(request.param)


def packed_product(kernels: Products, A: Any, B: Any, C: Any, accumulate: bool = False, bias: Any = None) -> Any:
    bias = no_bias(kernels.dtype) if bias is None else bias
    kernels.gemm_packed(A, kernels.pack(B), C, accumulate, bias, 0, C.shape[0], 0, C.shape[1])
    return C


def tn_product(kernels: Products, A: Any, B: Any, C: Any, accumulate: bool = False) -> Any:
    kernels.gemm_tn(A, B, C, accumulate, 0, C.shape[0], 0, C.shape[1])
    return C


FORMS = {  # of operands as they lie
    "gemm_nn": lambda A, B: (A, B),
    "gemm_nt": lambda A, B: (A, np.ascontiguousarray(B.T)),
    "gemm_tn": lambda A, B: (np.ascontiguousarray(A.T), B),
}


def as_it_lies(kernels: Products, form: str, A: Any, B: Any, C: Any, accumulate: bool = False) -> Any:
    getattr(kernels, form)(*FORMS[form](A, B), C, accumulate, 0, C.shape[0], 0, C.shape[1])
    return C


@pytest.mark.parametrize("form", FORMS)
def test_operands_as_they_lie(kernels: Products, form: str) -> None:
    """Around tiles, panels and blocks; all forms have the same bits."""
    shapes = [(M, 5, N) for M in (0, 1, 7, 9, 17) for N in edge_columns(kernels)]
    for M, K, N in (*shapes, *((9, K, 50) for K in (0, 1, 17, K_BLOCK, 3 * K_BLOCK + 5))):
        A, B, C, _ = operands(M, K, N, kernels.dtype)
        assert_product(as_it_lies(kernels, form, A, B, np.full_like(C, np.nan)), A, B, np.zeros_like(C))
        came = as_it_lies(kernels, form, A, B, C.copy(), accumulate=True)
        assert_product(came, A, B, C)
        np.testing.assert_array_equal(came, as_it_lies(kernels, "gemm_tn", A, B, C.copy(), accumulate=True))


@pytest.mark.parametrize("form", FORMS)
def test_plain_operands_as_they_lie(form: str) -> None:
    A, B, C, _ = operands(9, 7, 13, "float64")
    came = C.copy()
    getattr(plain, form)(*FORMS[form](A, B), came, True, 0, 9, 0, 13)
    assert_product(came, A, B, C)


def test_rows_and_columns_around_tiles(kernels: Products) -> None:
    for M in range(18):
        for N in edge_columns(kernels):
            A, B, C, bias = operands(M, 5, N, kernels.dtype)
            assert_product(packed_product(kernels, A, B, np.full_like(C, np.nan)), A, B, np.zeros_like(C))
            assert_product(packed_product(kernels, A, B, np.full_like(C, np.nan), bias=bias), A, B, bias)
            assert_product(packed_product(kernels, A, B, C.copy(), accumulate=True), A, B, C)
            transposed = np.ascontiguousarray(A.T)
            assert_product(tn_product(kernels, transposed, B, np.full_like(C, np.nan)), A, B, np.zeros_like(C))
            assert_product(tn_product(kernels, transposed, B, C.copy(), accumulate=True), A, B, C)


@pytest.mark.parametrize("K", [0, 1, 2, 7, K_BLOCK - 1, K_BLOCK, K_BLOCK + 1, 3 * K_BLOCK + 5])
def test_depths_around_blocks(kernels: Products, K: int) -> None:
    A, B, C, bias = operands(9, K, 50, kernels.dtype)
    assert_product(packed_product(kernels, A, B, np.full_like(C, np.nan), bias=bias), A, B, bias)
    assert_product(packed_product(kernels, A, B, C.copy(), accumulate=True), A, B, C)
    assert_product(tn_product(kernels, A.T.copy(), B, C.copy(), accumulate=True), A, B, C)


def test_more_rows_than_a_block(kernels: Products) -> None:
    rows = 2 * PACKED_BLOCK_BYTES // (K_BLOCK * np.dtype(kernels.dtype).itemsize) + 3
    A, B, C, bias = operands(rows, 6, 20, kernels.dtype)
    assert_product(packed_product(kernels, A, B, C.copy(), bias=bias), A, B, bias)
    rows *= 4
    A, B, C, bias = operands(rows, 6, 20, kernels.dtype)
    assert_product(tn_product(kernels, A.T.copy(), B, C.copy(), accumulate=True), A, B, C)


def test_views_and_what_lies_around_them(kernels: Products) -> None:
    A, B, C, bias = operands(11, 13, 37, kernels.dtype)
    for value in (np.nan, 7.0):
        (a, _), (b, _), (c, frame) = framed(A, value), framed(B, value), framed(C, 3.0)
        before = frame.copy()
        assert_product(packed_product(kernels, a, b, c, bias=bias), A, B, bias)
        assert_product(tn_product(kernels, framed(A.T, value)[0], b, c), A, B, np.zeros_like(C))
        frame[1:-1, 2:-3] = before[1:-1, 2:-3]
        np.testing.assert_array_equal(frame, before)
        assert_product(packed_product(kernels, a[::-1], b, c), A[::-1], B, np.zeros_like(C))


def test_packing(kernels: Products) -> None:
    for N in edge_columns(kernels):
        for K in (0, 1, 5, 33):
            B = operands(1, K, N, kernels.dtype)[1]
            packed = kernels.pack(B)
            assert packed.size == kernels.packed_size(K, N)
            for turned in (B.T.copy(), framed(B.T, np.nan)[0]):
                again = np.full_like(packed, np.nan)
                kernels.pack_transposed_into(turned, again)
                np.testing.assert_array_equal(packed, again)
            np.testing.assert_array_equal(packed, kernels.pack(framed(B, np.nan)[0]))
            assert np.sort(packed[packed != 0]).tolist() == np.sort(B.ravel()).tolist()


def test_any_cut_gives_the_same_bits(kernels: Products) -> None:
    random = np.random.default_rng(1)
    A, B, C, bias = operands(43, K_BLOCK + 90, 150, kernels.dtype)
    packed, transposed = kernels.pack(B), np.ascontiguousarray(A.T)
    whole, whole_tn = (
        packed_product(kernels, A, B, C.copy(), bias=bias),
        tn_product(kernels, transposed, B, C.copy(), True),
    )
    for cuts in range(1, 9):
        cut, cut_tn = np.full_like(C, np.nan), C.copy()
        rows, columns = list(parts(43, cuts, random)), list(parts(150, cuts, random))
        for begin, end in random.permutation(rows):
            for first, last in random.permutation(columns):
                kernels.gemm_packed(A, packed, cut, False, bias, begin, end, first, last)
                kernels.gemm_tn(transposed, B, cut_tn, True, begin, end, first, last)
        np.testing.assert_array_equal(cut, whole)
        np.testing.assert_array_equal(cut_tn, whole_tn)


@pytest.mark.parametrize("K", [7, K_BLOCK, 3 * K_BLOCK + 5])
def test_adding_in_place_gives_the_bits_of_adding_later(kernels: Products, K: int) -> None:
    A, B, C, bias = operands(19, K, 61, kernels.dtype)
    product = packed_product(kernels, A, B, np.full_like(C, np.nan))
    np.testing.assert_array_equal(packed_product(kernels, A, B, C.copy(), accumulate=True), C + product)
    np.testing.assert_array_equal(packed_product(kernels, A, B, np.full_like(C, np.nan), bias=bias), product + bias)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_any_cut_of_columns_gives_the_same_bits_for_few_rows(kernels: Products, rows: int) -> None:
    """Panels are as wide as the whole matrix has it, wherever a part of it ends: of 7 vectors they are 3, 2 and 2."""
    count = lanes(kernels.width, kernels.dtype)
    for vectors in range(1, 20):
        A, B, C, _ = operands(rows, 5, vectors * count - count // 2, kernels.dtype)
        packed, whole = kernels.pack(B), packed_product(kernels, A, B, np.full_like(C, np.nan))
        assert_product(whole, A, B, np.zeros_like(C))
        for cut in range(0, C.shape[1], max(1, count)):
            came = np.full_like(C, np.nan)
            for begin, end in ((0, cut), (cut, C.shape[1])):
                kernels.gemm_packed(A, packed, came, False, no_bias(kernels.dtype), 0, rows, begin, end)
            np.testing.assert_array_equal(came, whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_width_gives_the_same_bits(dtype: str) -> None:
    A, B, C, _ = operands(13, K_BLOCK + 7, 100, dtype)
    for product in (packed_product, tn_product):
        first, *others = (
            product(products_of(dtype, width), A if product is packed_product else A.T.copy(), B, C.copy(), True)
            for width in WIDTHS
        )
        for other in others:
            np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_give_the_same_bits(host: Products, threads: int) -> None:
    A, B, C, bias = operands(203, 300, 210, host.dtype)
    packed, transposed = host.pack(B), np.ascontiguousarray(A.T)
    came, came_tn = np.full_like(C, np.nan), np.full_like(C, np.nan)
    bounds = [(203 * i // threads, 203 * (i + 1) // threads) for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(host.gemm_packed, A, packed, came, False, bias, *rows, 0, 210) for rows in bounds]
        jobs += [pool.submit(host.gemm_tn, transposed, B, came_tn, False, *rows, 0, 210) for rows in bounds]
        for job in jobs:
            job.result()
    np.testing.assert_array_equal(came, packed_product(host, A, B, C.copy(), bias=bias))
    np.testing.assert_array_equal(came_tn, tn_product(host, transposed, B, C.copy()))


def test_sums_are_chains_of_fused_steps(host: Products) -> None:
    """1 + e, squared, minus 1 + 2 e: only a fused step keeps e^2, and only after the first product."""
    e = np.finfo(host.dtype).eps
    A = np.array([[1 + 2 * e, 1 + e]], host.dtype)
    B = np.array([[-1, 1 + e]], host.dtype).T.copy()
    came = packed_product(host, A, B, np.zeros((1, 1), host.dtype))
    assert came[0, 0] in (e * e, 0)  # 0 on processors without fused multiply-add
    np.testing.assert_array_equal(tn_product(host, A.T.copy(), B, np.zeros((1, 1), host.dtype)), came)


def test_nan_and_infinity_pass(kernels: Products) -> None:
    A, B, C, _ = operands(9, 20, 37, kernels.dtype)
    A[3, 7], A[5, 2], B[4, 36] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = A @ B
    for came in (packed_product(kernels, A, B, C.copy()), tn_product(kernels, A.T.copy(), B, C.copy())):
        np.testing.assert_array_equal(np.isnan(came), np.isnan(wanted))
        np.testing.assert_array_equal(came[np.isinf(wanted)], wanted[np.isinf(wanted)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_python(dtype: str) -> None:
    for M, K, N in [(0, 3, 4), (1, 0, 5), (1, 7, 130), (2, 30, 61), (9, 4, 1), (17, K_BLOCK + 1, 26)]:
        A, B, C, bias = operands(M, K, N, dtype)
        packed, part = np.zeros(products_of(dtype).packed_size(K, N), dtype), (0, M, 0, N)
        for pack, given in ((plain.pack_into, B), (plain.pack_transposed_into, B.T)):
            packed[:] = np.nan
            pack(given, packed)
            for accumulate, addend, came in ((False, 0 * C, np.full_like(C, np.nan)), (True, C, C.copy())):
                plain.gemm_packed(A, packed, came, accumulate, no_bias(dtype), *part)
                assert_product(came, A, B, addend)
        plain.gemm_packed(A, packed, came, False, bias, *part)
        assert_product(came, A, B, bias)
        plain.gemm_tn(A.T, B, came, True, *part)
        assert_product(came, A, B, bias + (A.astype(np.longdouble) @ B).astype(dtype))


def call_packed(host: Products, **changed: Any) -> None:
    A, B, C, _ = operands(4, 5, 6, host.dtype)
    given = {"A": A, "packed": host.pack(B), "C": C, "accumulate": False, "bias": no_bias(host.dtype)}
    host.gemm_packed(*({**given, "begin": 0, "end": 4, "first": 0, "last": 6} | changed).values())


def call_tn(host: Products, **changed: Any) -> None:
    A, B, C, _ = operands(4, 5, 6, host.dtype)
    given = {"A": A.T.copy(), "B": B, "C": C, "accumulate": False, "begin": 0, "end": 4, "first": 0, "last": 6}
    host.gemm_tn(*(given | changed).values())


def test_wrong_operands_are_errors(host: Products) -> None:
    wrong = np.zeros((4, 40), host.dtype)
    call_packed(host)
    call_tn(host)
    for changed in ({"A": wrong}, {"C": wrong}, {"bias": wrong[0]}, {"end": 5}, {"begin": -1}, {"C": wrong[:, 10::5]}):
        with pytest.raises(ValueError, match=r"packed|bias|C: wanted|contiguous rows"):
            call_packed(host, **changed)
    with pytest.raises(ValueError, match="bias"):
        call_packed(host, bias=wrong[0, :6], accumulate=True)
    for changed in ({"A": wrong}, {"B": wrong}, {"C": wrong}, {"end": 5}, {"last": 7}, {"first": -1}):
        with pytest.raises(ValueError, match="wanted"):
            call_tn(host, **changed)
    with pytest.raises(ValueError, match="wanted contiguous rows"):
        call_tn(host, B=np.zeros((5, 12), host.dtype)[:, ::2])
    with pytest.raises(ValueError, match="packed: wrong size"):
        host.pack_into(wrong, no_bias(host.dtype))
    with pytest.raises(ValueError, match="wanted contiguous rows"):
        host.pack(wrong[:, ::2])
    with pytest.raises(TypeError):
        call_tn(host, A=np.zeros((5, 4), np.int64))


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


AT_THE_END_OF_MEMORY = """
import ctypes, mmap
import numpy as np
from rnnops.kernels.cpu.native import products_of, rounded_products_of

def last(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + pages), mmap.PAGESIZE, 0) == 0
    kept.append(memory)
    array = np.frombuffer(memory, dtype, int(np.prod(shape)), pages - size).reshape(shape)
    array[...] = 1
    return array

kept = []
for kernels in (*map(products_of, ("float32", "float64")), rounded_products_of(), rounded_products_of(way="singles")):
    dtype = kernels.dtype
    for M, K, N in [(1, 5, 7), (8, 30, 49), (3, 2, 31), (13, 600, 16)]:
        A, B, C, bias = (last(shape, dtype) for shape in ((M, K), (K, N), (M, N), (N,)))
        packed = last((kernels.packed_size(K, N),), dtype)
        kernels.pack_into(B, packed)
        kernels.gemm_packed(A, packed, C, False, bias, 0, M, 0, C.shape[1])
        kernels.gemm_tn(last((K, M), dtype), B, C, True, 0, M, 0, N)
        if not kernels.way:
            kernels.gemm_nn(A, B, last((M, N), dtype), True, 0, M, 0, N)
            kernels.gemm_nt(A, last((N, K), dtype), last((M, N), dtype), True, 0, M, 0, N)
        kernels.pack_transposed_into(last((N, K), dtype), packed)
        assert (C == 2 * K + 1).all()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page of memory by mprotect")
def test_no_byte_outside_the_operands_is_touched() -> None:
    assert run_python(AT_THE_END_OF_MEMORY) == "done"
