"""What the machine can do, by our own kernels: its multiply-add peak, and the products of an LSTM over all steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench.case import Entry
from bench.contender import Bench, Contender
from bench.counting import Work
from bench.gemm import peak_call
from rnnops.kernels.cpu.native import products_of, rounded_products_of

PEAK_CALLS = 50  # of 38 MFLOP each with AVX-512: ten milliseconds, so that starting threads does not show


def peak(entry: Entry, bench: Bench) -> Contender:
    """Multiply-adds of registers, on every thread at once."""
    threads = bench.settings.threads
    kernels = rounded_products_of() if entry.floats.dtype == "bfloat16" else products_of("float32")
    pairs = [peak_call(kernels) for _ in range(threads)]

    def repeat(call: Callable[[], object]) -> Callable[[], None]:
        def repeated() -> None:
            for _ in range(PEAK_CALLS):
                call()

        return repeated

    flops = PEAK_CALLS * sum(flops for _, flops in pairs)
    return Contender(side_by_side([repeat(call) for call, _ in pairs]), work=lambda: Work(flops, 0.0))


def products(entry: Entry, bench: Bench) -> Contender:
    """xs @ w_x + h @ w_h over the rows of all steps, with packed weights, rows divided among the threads."""
    threads, size = bench.settings.threads, entry.problem.size
    kernels, feeds = products_of("float32"), bench.data(entry.problem).sets[0].feeds
    rows = size.T * size.N
    x, h = (feeds["xs"].reshape(rows, size.H) for _ in range(2))
    w_x, w_h = kernels.pack(feeds["w_x"]), kernels.pack(feeds["w_h"])
    gates, no_bias = np.zeros((rows, feeds["w_x"].shape[1]), np.float32), np.zeros(0, np.float32)

    def part(k: int) -> Callable[[], None]:
        begin, end = rows * k // threads, rows * (k + 1) // threads

        def multiply() -> None:
            kernels.gemm_packed(x, w_x, gates, False, no_bias, begin, end, 0, gates.shape[1])
            kernels.gemm_packed(h, w_h, gates, True, no_bias, begin, end, 0, gates.shape[1])

        return multiply

    flops = 4.0 * rows * size.H * gates.shape[1]
    return Contender(side_by_side([part(k) for k in range(threads)]), work=lambda: Work(flops, 0.0))


def side_by_side(calls: list[Callable[[], None]]) -> Callable[[int], None]:
    """One call that runs all of them, each on a thread of its own."""
    pool = ThreadPoolExecutor(max(1, len(calls) - 1))

    def together(k: int) -> None:
        others = [pool.submit(call) for call in calls[1:]]
        calls[0]()
        for other in others:
            other.result()

    return together
