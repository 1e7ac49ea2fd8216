"""Which recurrences compute the steps of a segment again instead of keeping their states, as that moves fewer bytes.

Keeping takes a write and a read of all states of all steps, past the cache; computing again takes one more forward pass
over what lies in it. Products are not computed again: only cells without any come into question.

Limits: the two speeds are those of one kind of server; on others the choice may be off by some, results never are.
"""

from __future__ import annotations

from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call
from rnnops.types import OPAQUE

CACHE = 4 * 1024 * 1024  # bytes that stay at hand from one pass to the other
BANDWIDTH, SPEED = 2e10, 4e10  # bytes of memory and elementwise results a second
FUNCTIONS = ("Exp", "Log", "Sigmoid", "Tanh", "Softplus", "Erf", "Gelu", "Sin", "Cos", "Tan", "Pow", "Softmax")
FUNCTION = 8  # sums and products take the time of a scalar function
HEAVY = ("MatMul", "Gemm", "RecurrentNetwork")


def goes_in_segments(call: Call) -> bool:
    """Whether computing the steps of a recurrence again is predicted to take less time than keeping its states."""
    kept, again = seconds(call)
    return again < kept


def seconds(call: Call) -> tuple[float, float]:
    """What keeping all states of a recurrence takes, nothing where they stay in the cache, and computing them again."""
    recurrence = Recurrence(call.op, call.net)
    steps, _ = recurrence.steps_and_batch(input_types(recurrence, call))
    program = cell_program(recurrence, call)
    blobs = program.net.output_blobs
    wanted = call.op.outputs[: 2 * len(recurrence.states) : 2]
    states = [program.types[blobs[state.output]].nbytes for state in recurrence.states]
    nbytes = steps * sum(states)
    if any(wanted) or nbytes <= CACHE or any(inner.op.type in HEAVY for inner in program.calls):
        return 0.0, 1.0
    return 2 * nbytes / BANDWIDTH, steps * sum(map(_results, program.calls)) / SPEED


def _results(call: Call) -> float:
    """Elementwise results of an op, each of a scalar function as many as take its time."""
    results = sum(kind.size for kind in call.output_types if kind.dtype != OPAQUE)
    return results * (FUNCTION if call.op.type in FUNCTIONS else 1)
