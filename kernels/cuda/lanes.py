"""What the lanes of a block, or of a team of them, fold together: each brings a number, all get the result.

They go by one tree: at step k every 2^(k+1)-th lane of a team takes in what lies 2^k further on. Functions are text
(`source`) that modules of generated kernels hold, as the simulator puts its own `cuda` only into the module that a
kernel is from. Limits: all lanes of a block call them, with shared memory for a number a lane.
"""

from __future__ import annotations

FOLD = """\
@device_function
def {name}(x, lane, mate, mates, shared):
    shared[lane] = x
    cuda.syncthreads()
    step = 1
    while step < mates:
        if mate & (2 * step - 1) == 0 and mate + step < mates:
            a, b = shared[lane], shared[lane + step]
            shared[lane] = {joined}
        cuda.syncthreads()
        step *= 2
    found = shared[lane - mate]
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

    Its arguments are a number, the lane, its place in a team, how many a team has, and shared memory.
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
