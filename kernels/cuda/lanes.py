"""Folds over the lanes of a block, or over some of them: each brings a number, all get the result.

Those that fold together are `count` lanes from `first` on, `stride` lanes apart: neighbours, or lanes of the same place
in their teams. They go by one tree: at step k every 2^(k+1)-th of them takes in what lies 2^k further on. Functions
are text (`source`) that modules of generated kernels hold, as the simulator puts its own `cuda` only into the module
that a kernel is from. Limits: all lanes of a block call them, with shared memory for a number a lane.
"""

from __future__ import annotations

FOLD = """\
@device_function
def {name}(x, lane, first, stride, place, count, shared):
    shared[lane] = x
    cuda.syncthreads()
    step = 1
    while step < count:
        if place & (2 * step - 1) == 0 and place + step < count:
            a, b = shared[lane], shared[lane + step * stride]
            shared[lane] = {joined}
        cuda.syncthreads()
        step *= 2
    found = shared[first]
    cuda.syncthreads()
    return found"""
JOINED = {  # fold of a statement -> two numbers, `a` and `b`, as one; bools are bytes
    "add": "a + b",
    "max": "larger(a, b)",
    "min": "smaller(a, b)",
    "or": "a | b",
    "and": "a & b",
}


def fold_name(fold: str) -> str:
    """The function for a fold of statements.

    Its arguments are a number, the lane, the first of those it folds with, how far these are apart, the lane's place
    among them, how many they are, and shared memory.
    """
    return f"{fold}_of_lanes"


def source() -> str:
    """The text of all functions, for modules that define `cuda`, `device_function`, `larger` and `smaller`."""
    return "\n\n\n".join(fold_text(fold_name(fold), joined) for fold, joined in JOINED.items())


def fold_text(name: str, joined: str) -> str:
    """The text of a function for another fold.

    Args:
        joined: `a` and `b` as one.
    """
    return FOLD.format(name=name, joined=joined)
