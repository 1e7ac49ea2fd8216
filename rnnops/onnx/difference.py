"""How far outputs are from those of another program: the largest difference, over the largest value."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rnnops.types import Array


def distance(out: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The largest difference of two sets of outputs, over each one's largest value; infinite where they do not fit."""
    if set(out) != set(expected):
        return float("inf")
    return max((distance_of(out[name], expected[name]) for name in expected), default=0.0)


def distance_of(one: Array, other: Array) -> float:
    """The same of one output; of integers and bools, 0 or infinite."""
    if one.shape != other.shape or one.dtype != other.dtype or not np.isfinite(one.astype("float64")).all():
        return float("inf")
    if one.dtype.kind != "f":
        return 0.0 if np.array_equal(one, other) else float("inf")
    largest = np.abs(other).max(initial=np.finfo(one.dtype).tiny)
    return float(np.abs(one.astype("float64") - other).max(initial=0.0) / largest)
