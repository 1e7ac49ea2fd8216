"""How far devices may differ from the reference: one table by dtype, never a number in a test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rnnops.types import Array


@dataclass(frozen=True)
class Tolerance:
    """An array may be off by `relative` times its largest finite value plus `absolute`."""

    relative: float
    absolute: float

    def limit(self, wanted: Array) -> float:
        """The largest difference that is allowed against this array."""
        finite = np.abs(wanted[np.isfinite(wanted)], dtype=np.float64)
        return self.relative * float(finite.max(initial=0.0)) + self.absolute


TOLERANCES = {"float32": Tolerance(1e-5, 1e-6), "float64": Tolerance(1e-12, 1e-13)}
"""By dtype, how far a device may be off from the reference: `relative` times the largest finite value, and `absolute`.

Example:
    >>> ro.testing.TOLERANCES["float32"].limit(np.array([-2.0, 1.0], "float32")) < 3e-5
    True
"""
EXACT = Tolerance(0.0, 0.0)  # integers, bools, and a device against itself


def tolerance_of(dtype: object) -> Tolerance:
    """The tolerance for arrays of a dtype; integers and bools are exact."""
    return TOLERANCES.get(np.dtype(dtype).name, EXACT)  # type: ignore[call-overload]


def difference(came: Array, wanted: Array) -> float:
    """The largest difference; infinite where NaN or infinities do not agree, or shape or dtype differ."""
    if came.shape != wanted.shape or came.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return float("inf") if (came != wanted).any() else 0.0
    finite = np.isfinite(wanted)
    if not np.array_equal(came[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(came[finite]).all():
        return float("inf")
    return float(np.abs(came[finite].astype(np.float64) - wanted[finite]).max(initial=0.0))
