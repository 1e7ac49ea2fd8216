"""What the lanes of a block fold together: each brings a number, all get the result, folded in the order of lanes.

Modules of generated kernels hold these functions as text (`source`), as the simulator puts its own `cuda` only into the
module that a kernel is from. Limits: all lanes of a block call them, with shared memory for a number a lane.
"""

from __future__ import annotations

import inspect
from typing import Any

from rnnops.kernels.cuda.facade import cuda


def sum_of_lanes(x: Any, lane: int, lanes: int, shared: Any) -> Any:
    """x of all lanes, added up."""
    shared[lane] = x
    cuda.syncthreads()
    total = shared[0]
    for other in range(1, lanes):
        total += shared[other]
    cuda.syncthreads()
    return total


def largest_of_lanes(x: Any, lane: int, lanes: int, shared: Any) -> Any:
    """The largest x of all lanes, NaN where one is."""
    shared[lane] = x
    cuda.syncthreads()
    found = shared[0]
    for other in range(1, lanes):
        found = larger(found, shared[other])  # type: ignore[name-defined]  # noqa: F821
    cuda.syncthreads()
    return found


def smallest_of_lanes(x: Any, lane: int, lanes: int, shared: Any) -> Any:
    """The smallest x of all lanes, NaN where one is."""
    shared[lane] = x
    cuda.syncthreads()
    found = shared[0]
    for other in range(1, lanes):
        found = smaller(found, shared[other])  # type: ignore[name-defined]  # noqa: F821
    cuda.syncthreads()
    return found


def any_of_lanes(x: Any, lane: int, lanes: int, shared: Any) -> Any:
    """Whether x is true in some lane."""
    shared[lane] = x
    cuda.syncthreads()
    found = False
    for other in range(lanes):
        found = found or shared[other] != 0
    cuda.syncthreads()
    return found


def all_of_lanes(x: Any, lane: int, lanes: int, shared: Any) -> Any:
    """Whether x is true in all lanes."""
    shared[lane] = x
    cuda.syncthreads()
    found = True
    for other in range(lanes):
        found = found and shared[other] != 0
    cuda.syncthreads()
    return found


FOLDS = (sum_of_lanes, largest_of_lanes, smallest_of_lanes, any_of_lanes, all_of_lanes)


def source() -> str:
    """The text of all folds, for modules that define `cuda`, `device_function`, `larger` and `smaller`."""
    return "\n\n\n".join(f"@device_function\n{inspect.getsource(fold).rstrip()}" for fold in FOLDS)
