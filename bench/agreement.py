"""Whether contenders computed the same: outputs and gradients, each against its largest value, or against its norm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.place import to_host
from bench.problems import Array, Arrays

OUTPUT_TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 1e-3  # of the largest value, in float32 after up to 1000 steps
NORM_TOLERANCE = 1e-3  # norm of the difference / norm, in float32 after 1024 steps of a CUDA device
LOW_TOLERANCE = 0.1  # the same of products, or of all, in bfloat16 on processors
GRADIENT = "gradient of "


def disagreement(label: str, came: Arrays, other: str, wanted: Arrays) -> list[str]:
    """One line, naming all that differs, unless the arrays of two contenders agree.

    What only one of them has is a difference too; outputs of a forward pass are compared where the other one trained.
    """
    if not any(name.startswith(GRADIENT) for name in came) or not any(name.startswith(GRADIENT) for name in wanted):
        came, wanted = without_gradients(came), without_gradients(wanted)
    found = [f"{name} is computed by one only" for name in sorted(came.keys() ^ wanted.keys())]
    for name in wanted.keys() & came.keys():
        found += difference(name, to_host(came[name]), to_host(wanted[name]))
    return [f"{label} and {other} differ: {'; '.join(sorted(found))}"] if found else []


def without_gradients(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if not name.startswith(GRADIENT)}


def difference(name: str, came: Array, wanted: Array) -> list[str]:
    """One line where two arrays differ in shape or by more than the tolerance, else none."""
    if came.shape != wanted.shape:
        return [f"{name} has shape {list(came.shape)}, wanted {list(wanted.shape)}"]
    tolerance = GRADIENT_TOLERANCE if name.startswith(GRADIENT) else OUTPUT_TOLERANCE
    largest = float(np.abs(wanted).max(initial=0.0))
    error = float(np.abs(came.astype(np.result_type(came, np.float64)) - wanted).max(initial=0.0))
    if error <= tolerance * largest + 1e-6:
        return []
    return [f"{name} is off by {error:.2e} where its largest value is {largest:.2e}, allowed {tolerance * largest:.2e}"]


def norm_differences(
    label: str, other: str, errors: Mapping[str, float], tolerance: float = NORM_TOLERANCE
) -> list[str]:
    """One line for all whose norms differ by too much; NaN differs."""
    wrong = [f"{name} by {error:.1e}" for name, error in sorted(errors.items()) if not error <= tolerance]
    text = f"{label} and {other} differ: {', '.join(wrong)}; allowed {tolerance:.0e} of the norm"
    return [text] if wrong else []
