"""Speed of the matrix products, one thread: GFLOP/s beside NumPy's and beside the peak of the same run.

    python bench/gemm.py [--dtype float32|float64|bfloat16] [--width 512] [--rounds 5] [--only packed|tn]

The peak is a loop of multiply-adds of registers. Operands of bfloat16 are float32 numbers that are rounded on the way,
B once and A at every call; their peak is that of multiply-adds of words. Products, NumPy's `matmul` of float32 and the
peak take turns in short blocks after an untimed call, and count processor time of the thread, as machines are shared;
shown are medians over rounds, ratios of neighbouring blocks. Our calls are native ones whose arguments were checked
before, as in compiled nets. The process starts anew where NumPy's BLAS was not told to use one thread before it loaded.
For NumPy on a processor without AVX-512, set OPENBLAS_CORETYPE=Haswell.

Shapes are those of recurrent layers: x @ W with W [H, 4H], dG @ W^T with [4H, H], weight gradients [K, H]^T @ [K, 4H].
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from llvmlite import ir

from rnnops.kernels.cpu.gemm import DTYPES
from rnnops.kernels.cpu.micro_kernel import BYTES, I64, Vectors
from rnnops.kernels.cpu.native import (
    PRODUCTS_LEVEL,
    Products,
    address_of as address_in,
    compiled,
    engine_of,
    matrix_of,
    products_of,
    rounded_products_of,
    vector_of,
)
from rnnops.kernels.cpu.processor import NUMBERS, lanes

Call = Callable[[], object]
GOAL = 0.95  # of NumPy's speed
KINDS = ("packed", "tn")
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
BLOCK_SECONDS = 0.02


@dataclass(frozen=True)
class Product:
    """C [M, N] = A @ B over K; A is stored [K, M] where the kind is "tn"."""

    kind: str
    M: int
    K: int
    N: int

    @property
    def flops(self) -> int:
        return 2 * self.M * self.K * self.N

    def operands(self, dtype: str) -> tuple[Any, Any, Any]:
        random = np.random.default_rng(0)
        first = (self.M, self.K) if self.kind == "packed" else (self.K, self.M)
        A, B = (random.standard_normal(shape).astype(dtype) for shape in (first, (self.K, self.N)))
        return A, B, np.zeros((self.M, self.N), dtype)


def products() -> Iterator[Product]:
    """What is timed."""
    for H in (128, 256, 512, 1024):
        for M in (16, 32, 64, 256, 1024):
            yield Product("packed", M, H, 4 * H)
    yield from (Product("packed", M, 4 * H, H) for M, H in ((32, 256), (64, 512), (1024, 512)))
    yield from (Product("packed", M, H, 4 * H) for M, H in ((1, 128), (1, 512), (50, 200), (50, 1000), (64, 2048)))
    yield Product("packed", 1024, 4096, 4096)
    for H in (128, 256, 512, 1024):
        yield from (Product("tn", H, K, 4 * H) for K in (256, 1024))
    yield from (Product("tn", H, 1024, 4 * H) for H in (200, 1000))
    yield from (Product("tn", 64, 1024, 2048), Product("tn", 4096, 1024, 4096))


def our_call(kernels: Products, product: Product) -> Call:
    """The native call, as compiled nets make it: its arguments are checked and made ready once."""
    A, B, C = product.operands(kernels.dtype)
    packed, bias, part = kernels.pack(B), np.zeros(0, kernels.dtype), (0, product.M, 0, product.N)
    if product.kind == "tn":
        kernels.gemm_tn(A, B, C, True, *part)
        ready = (*matrix_of(A), *matrix_of(B), *matrix_of(C), True, *part)
    else:
        kernels.gemm_packed(A, packed, C, True, bias, *part)
        ready = (*matrix_of(A), *vector_of(packed), *matrix_of(C), True, *vector_of(bias), *part)
    native = kernels.calls[f"gemm_{product.kind}"]

    def call(held: object = (A, B, C, packed, bias)) -> None:
        native(*ready)

    return call


def numpy_call(product: Product, dtype: str) -> Call:
    A, B, C = product.operands(dtype)
    return lambda: np.matmul(A.T if product.kind == "tn" else A, B, out=C)


SUMS = 12  # that do not wait for each other, and with what they are made of fit the registers of any processor
PEAK_STEPS = 100_000


def peak_call(kernels: Products) -> tuple[Call, int]:
    """Multiply-adds of registers, and their flops."""
    dtype = DTYPES[kernels.way] if kernels.way else kernels.dtype
    module = ir.Module("peak")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTES]), "peak")
    count = lanes(kernels.width, dtype)
    _emit_peak(ir.IRBuilder(function.append_basic_block("entry")), dtype, count, function.args[0])
    engine = engine_of(compiled(str(module), PRODUCTS_LEVEL))
    call, numbers = (
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address_in(engine, "peak")),
        np.ones(SUMS * count, "float64" if dtype == "float64" else "float32"),
    )

    def peak(engine: object = engine) -> None:  # which holds the code
        call(numbers.ctypes.data)

    return peak, 2 * PEAK_STEPS * SUMS * count * NUMBERS.get(kernels.way, 1)


def _emit_peak(builder: ir.IRBuilder, dtype: str, count: int, memory: ir.Value) -> None:
    """Sums that start from memory and end there, so that LLVM knows nothing of them."""
    on = Vectors(builder, dtype, count)
    places = [builder.gep(memory, [I64(i * on.bytes)]) for i in range(SUMS)]
    first = [on.load(place) for place in places]
    entry, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    step, sums = builder.phi(I64), [builder.phi(on.type) for _ in places]
    added = [on.multiply_add(first[0], first[1], total) for total in sums]
    following = builder.add(step, I64(1))
    builder.cbranch(builder.icmp_signed("<", following, I64(PEAK_STEPS)), body, after)
    for phi, start, more in zip((step, *sums), (I64(0), *first), (following, *added), strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(more, body)
    builder.position_at_end(after)
    for place, total in zip(places, added, strict=True):
        on.store(total, place)
    builder.ret_void()


def seconds_a_call(call: Call) -> float:
    """Processor time of a call, over a block of calls."""
    start = time.perf_counter()
    call()
    calls = max(1, int(BLOCK_SECONDS / max(time.perf_counter() - start, 1e-7)))
    begin = time.thread_time()
    for _ in range(calls):
        call()
    return (time.thread_time() - begin) / calls


def compare(kernels: Products, product: Product, rounds: int) -> tuple[float, float, float, float]:
    """GFLOP/s of ours and of NumPy, ratios of ours to the peak and to NumPy."""
    ours, theirs = our_call(kernels, product), numpy_call(product, kernels.dtype)
    peak, peak_flops = peak_call(kernels)
    rates = []
    for _ in range(rounds):
        best = peak_flops / seconds_a_call(peak)
        rates.append((product.flops / seconds_a_call(ours), best, product.flops / seconds_a_call(theirs)))
    rate, _, other = (median(column) / 1e9 for column in zip(*rates, strict=True))
    to_peak, to_numpy = median(r / p for r, p, _ in rates), median(r / n for r, _, n in rates)
    return rate, other, to_peak, to_numpy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "float64", "bfloat16"), default="float32")
    parser.add_argument("--width", type=int, choices=(512, 256, 128, 64))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    if not ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    rounds = options.dtype == "bfloat16"
    kernels = rounded_products_of(options.width) if rounds else products_of(options.dtype, options.width)
    report(kernels, options.rounds, options.only)


def report(kernels: Products, rounds: int, only: str | None) -> None:
    """Prints the table."""
    call, flops = peak_call(kernels)
    peak = median(flops / seconds_a_call(call) for _ in range(rounds)) / 1e9
    what = f"bfloat16 as {kernels.way}" if kernels.way else kernels.dtype
    print(f"{what}, {kernels.width} bits, one thread; peak in registers: {peak:.0f} GFLOP/s")
    print(f"{'kind':6} {'M':>5} {'K':>5} {'N':>5} {'ours':>6} {'/ peak':>7} {'NumPy':>6} {'/ NumPy':>8}")
    for product in products():
        if only in (None, product.kind):
            ours, other, to_peak, to_numpy = compare(kernels, product, rounds)
            missed = " *" if to_numpy < GOAL and product.M >= 16 else ""
            shape = f"{product.kind:6} {product.M:5} {product.K:5} {product.N:5}"
            print(f"{shape} {ours:6.0f} {to_peak:7.2f} {other:6.0f} {to_numpy:8.2f}{missed}", flush=True)
    print(f"* below the goal: {GOAL:.2f} of NumPy's speed, from M = 16 on")


if __name__ == "__main__":
    main()
