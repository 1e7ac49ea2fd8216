"""What a compiled recurrence says of its memory: what it asks for, and what is there at which moment."""

from __future__ import annotations

from small_programs import program_of

from rnnops.compiler.lower.lower_ops import hoist_invariants
from rnnops.compiler.memory.memory import GRADIENT, KEPT, OUTPUT, SCRATCH, SUMS, Buffer, Demand, prologue_buffers

OUT, STATE = Buffer("out", OUTPUT, "float32", (4,)), Buffer("state", KEPT, "float32", (5, 4))
TOTAL, GRAD = Buffer("total", SUMS, "float32", (2, 4)), Buffer("gradient", GRADIENT, "float32", (4,))
LATE, LENT = Buffer("late", OUTPUT, "float32", (1,)), Buffer("lent", SCRATCH, "float32", (9,))
DEMAND = Demand((OUT, STATE), ((OUT,), (GRAD,), (LATE,)), (TOTAL, GRAD), (LATE,), (LENT,), interpreted=(STATE,))


def test_what_the_interpreter_makes_is_not_asked_for() -> None:
    assert DEMAND.asked_for() == (OUT, TOTAL, GRAD, LATE)


def test_sums_that_are_no_results_are_gone_at_the_end() -> None:
    assert DEMAND.moments() == ((OUT, STATE, TOTAL, GRAD), (OUT, STATE, GRAD, LATE))


def test_what_runs_before_the_first_step_is_scratch() -> None:
    program = program_of("e = Exp(w); y = Mul(x, e)", x=(2, 3), w=(3,))
    hoisted = hoist_invariants(program, ["w"], program.net.output_blobs.values())
    assert prologue_buffers(hoisted) == (Buffer("e", SCRATCH, "float64", (3,)),)
    assert prologue_buffers(hoist_invariants(program, [], program.net.output_blobs.values())) == ()
