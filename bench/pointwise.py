"""Time pointwise functions beside NumPy's (SciPy's for erf and sigmoid): nanoseconds an element, one thread.

    python bench/pointwise.py [name ...]

4096 elements, which stay in L1; ours and theirs in turn, the median of 15 rounds, each long enough for the clock.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import scipy.special

from rnnops.kernels.cpu.fastmath import OPTIONS
from rnnops.kernels.cpu.pointwise import FUNCTIONS

SIZE = 4096
ROUNDS = 15
CALLS = 20
PEERS = {"erf": scipy.special.erf, "pow": np.power, "sigmoid": scipy.special.expit, "divide_towards_zero": np.divide}
BINARY = ("divide_towards_zero", "maximum", "minimum", "pow")


def loop_over(name: str) -> Callable[..., None]:
    """A compiled loop: result, then operands."""
    function = FUNCTIONS[name]

    def unary(result: Any, x: Any) -> None:
        for i in range(x.size):
            result[i] = function(x[i])

    def binary(result: Any, x: Any, y: Any) -> None:
        for i in range(x.size):
            result[i] = function(x[i], y[i])

    loop: Callable[..., None] = numba.njit(**OPTIONS)(binary if name in BINARY else unary)
    return loop


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def measure(name: str, dtype: str) -> tuple[float, float]:
    """Nanoseconds an element, ours and theirs."""
    generator = np.random.default_rng(0)
    operands = [generator.uniform(0.1, 4.0, SIZE).astype(dtype) for _ in range(1 + (name in BINARY))]
    result, loop = np.empty_like(operands[0]), loop_over(name)
    peer: Callable[..., object] = PEERS[name] if name in PEERS else getattr(np, name)
    loop(result, *operands)
    times = [
        (seconds(lambda: loop(result, *operands)), seconds(lambda: peer(*operands, out=result))) for _ in range(ROUNDS)
    ]
    ours, theirs = (statistics.median(column) * 1e9 / SIZE for column in zip(*times, strict=True))
    return ours, theirs


def main(names: list[str]) -> None:
    print(f"{'':20}{'float32':>8}{'NumPy':>8}{'ratio':>7}{'float64':>9}{'NumPy':>8}{'ratio':>7}")
    for name in names or FUNCTIONS:
        (single, peer32), (double, peer64) = measure(name, "float32"), measure(name, "float64")
        left = f"{name:20}{single:8.2f}{peer32:8.2f}{peer32 / single:7.1f}"
        print(f"{left}{double:9.2f}{peer64:8.2f}{peer64 / double:7.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
