"""What the lanes of a block fold together: each brings a number, all get the result, folded in the order of lanes.

Functions are text (`source`) that modules of generated kernels hold, as the simulator puts its own `cuda` only into the
module that a kernel is from. Limits: all lanes of a block call them, with shared memory for a number a lane.
"""

from __future__ import annotations

FOLD = """\
@device_function
def {name}(x, lane, lanes, shared):
    shared[lane] = x
    cuda.syncthreads()
    found = shared[0]
    for other in range(1, lanes):
        found = {joined}
    cuda.syncthreads()
    return found"""
JOINED = {  # fold of a statement -> two numbers as one; bools are bytes
    "add": "found + shared[other]",
    "max": "larger(found, shared[other])",
    "min": "smaller(found, shared[other])",
    "or": "found | shared[other]",
    "and": "found & shared[other]",
}


def fold_name(fold: str) -> str:
    """The function `(x, lane, lanes, shared)` for a fold of statements."""
    return f"{fold}_of_lanes"


def source() -> str:
    """The text of all functions, for modules that define `cuda`, `device_function`, `larger` and `smaller`."""
    return "\n\n\n".join(FOLD.format(name=fold_name(fold), joined=joined) for fold, joined in JOINED.items())
