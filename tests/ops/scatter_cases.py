"""Uses of ScatterElements and ScatterND for the table of ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_cases import Array, Case, bools, floats, integers, use

import rnnops as ro

REDUCTIONS = ("none", "add", "mul", "max", "min")
ROWS = np.array([[0, -1, 1], [2, 2, 0]])  # of an axis of three, some twice


def scatter_cases() -> Iterator[Case]:
    for reduction in REDUCTIONS:
        build = use(ro.scatter_elements, axis=1, reduction=reduction)
        yield Case("ScatterElements", reduction, build, (floats(2, 3), ROWS, floats(2, 3) + 0.25))
        build = use(ro.scatter_elements, axis=-2, reduction=reduction)
        yield Case("ScatterElements", reduction, build, (floats(3, 5, 2), ROWS[:, :, None], floats(2, 3, 1)))
        build = use(ro.scatter_elements, reduction=reduction)
        yield Case("ScatterElements", f"{reduction} none", build, (floats(3), ROWS[:1, 0][:0], floats(0)))
        yield Case("ScatterElements", f"{reduction} int", build, (integers(4), np.array([3, 3], np.int32), integers(2)))
        pairs = np.array([[[0, 1], [-1, 0]], [[1, -2], [0, 1]]])
        build = use(ro.scatter_nd, reduction=reduction)
        yield Case("ScatterND", reduction, build, (floats(3, 2), pairs, floats(2, 2) + 0.25))
        yield Case("ScatterND", f"{reduction} rows", build, (floats(3, 2), ROWS[:1, :, None], floats(1, 3, 2)))
        yield Case("ScatterND", f"{reduction} one", build, (floats(2, 3), np.array([1, 2]), floats()))
        yield Case("ScatterND", f"{reduction} int", build, (integers(4), np.array([[3], [3]], np.int32), integers(2)))
    yield Case("ScatterElements", "bool", ro.scatter_elements, (bools(3), np.array([2, 0]), bools(2)))
    yield Case("ScatterND", "bool", ro.scatter_nd, (bools(3, 2), np.array([[2], [0]]), bools(2, 2)))
    many = np.arange(200) * 7 % 199
    yield Case("ScatterElements", "many", use(ro.scatter_elements, reduction="max"), (floats(200), many, floats(200)))
    yield Case("ScatterND", "many", ro.scatter_nd, (floats(200), many[:, None], floats(200)))
    yield from constant_cases()


def constant_cases() -> Iterator[Case]:
    """Indices that are known before a run."""

    def elements(x: Array, y: Array) -> Array:
        return ro.scatter_elements(x, x.net.constant(ROWS), y, axis=1)

    yield Case("ScatterElements", "constant", elements, (floats(2, 3), floats(2, 3) + 0.25))

    def slices(x: Array, y: Array) -> Array:
        return ro.scatter_nd(x, x.net.constant(ROWS[0][:, None]), y)

    yield Case("ScatterND", "constant", slices, (floats(4, 2), floats(3, 2) + 0.25))
