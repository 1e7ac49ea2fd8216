"""What the tests of matrix products share: kernels, operands, exact results and a bound for rounding errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from rnnops.kernels.cpu.native import Products
from rnnops.kernels.cpu.processor import lanes

EXACTER = {"float32": np.float64, "float64": np.longdouble}


def operands(M: int, K: int, N: int, dtype: str, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """A [M, K], B [K, N], C [M, N], bias [N]."""
    random = np.random.default_rng([seed, M, K, N])
    return tuple(random.standard_normal(shape).astype(dtype) for shape in ((M, K), (K, N), (M, N), N))  # type: ignore[return-value]


def no_bias(dtype: str) -> Any:
    return np.empty(0, dtype)


def assert_product(came: Any, A: Any, B: Any, addend: Any) -> None:
    """`came` is `addend + A @ B`, within gamma_(K+1) of the sum of absolute values, whatever the order of additions.

    gamma_n = n u / (1 - n u), u the unit roundoff: Higham, Accuracy and Stability of Numerical Algorithms, 3.1. The
    wanted value is computed in a wider type; its own error is counted as one more rounding.
    """
    wide = EXACTER[came.dtype.name]
    A, B = A.astype(wide), B.astype(wide)
    wanted = addend + A @ B
    n = (A.shape[1] + 2) * np.finfo(came.dtype).eps / 2
    bound = n / (1 - n) * (np.abs(addend) + np.abs(A) @ np.abs(B))
    assert came.shape == wanted.shape
    assert (np.abs(came - wanted) <= bound).all(), (A.shape, B.shape, np.abs(came - wanted).max())


def edge_columns(kernels: Products) -> list[int]:
    """Numbers of columns around vectors, panels, and four panels at once."""
    count = lanes(kernels.width, kernels.dtype)
    edges = {count * v + more for v in (1, 2, 3, 4, 7, 14) for more in (-1, 0, 1)}
    return sorted(edges | {0, 1, 2, 7})


def parts(size: int, cuts: int, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Neighbouring ranges that cover 0..size; some may be empty."""
    inner = np.sort(random.integers(0, size + 1, cuts))
    bounds = [0, *map(int, inner), size]
    yield from pairwise(bounds)


def framed(array: Any, value: float) -> tuple[Any, Any]:
    """A copy of a matrix as the middle of a larger array of `value`, and that larger array."""
    frame = np.full((array.shape[0] + 2, array.shape[1] + 5), value, array.dtype)
    middle = frame[1:-1, 2:-3]
    middle[...] = array
    return middle, frame
