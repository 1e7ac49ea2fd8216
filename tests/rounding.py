"""Nearness of results of rounded operands: what two devices may differ by where they round the same."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
SHARE = 0.1  # of the mean error of rounding: a last bit of float32 turns few numbers over to the next bfloat16


def assert_rounded_alike(came: Array, wanted: Array, exact: Array) -> None:
    """`came` is `wanted`, up to few numbers that a last bit turned over, and not what exact operands would give.

    Args:
        exact: the same without rounding; or anything else that the result must not be taken for.
    """
    assert came.shape == wanted.shape
    assert came.dtype == np.float32
    error, noise = (np.abs(np.asarray(x, np.float64) - wanted).mean() for x in (exact, came))
    assert error > 1e-4 * np.abs(wanted).mean(), "rounding changes nothing here, so that nothing is tested"
    assert noise < SHARE * error, f"off by {noise:.2g} on average, where rounding is {error:.2g}"


def as_bfloat16(x: Array) -> Array:
    """Numbers rounded to bfloat16, by their distance from the two neighbours, in float64."""
    x = np.asarray(x, np.float64)
    _, exponent = np.frexp(x)
    unit = np.ldexp(1.0, np.maximum(exponent, -125) - 8)
    return np.asarray(np.rint(x / unit) * unit)


def assert_none_unrounded(came: Array, wanted: Array, exact: Array) -> None:
    """As `assert_rounded_alike`, for what rounding may change or not."""
    assert (came.shape, came.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind != "f":
        return
    finite = np.isfinite(wanted) & np.isfinite(exact) & np.isfinite(came)
    error, noise, size = (np.abs(x[finite]).sum(dtype=np.float64) for x in (exact - wanted, came - wanted, wanted))
    assert noise <= SHARE * error + 1e-5 * size + 1e-6, f"off by {noise:.2g}, where rounding is {error:.2g}"
