"""What ops ask for, what lies in it, and from which moment to which it is there."""

from __future__ import annotations

from small_programs import program_of

from rnnops.compiler.memory.allocations import (
    MOMENTS,
    Allocation,
    Interval,
    allocations_of,
    intervals_of,
    last_moments,
    most_at_once,
)
from rnnops.compiler.memory.memory import GRADIENT, OUTPUT, SCRATCH, SUMS, Buffer, Demand

CHAIN = program_of("a = Exp(x); b = Tanh(a); y = Add(a, b)", x=(2, 3))
NBYTES, END = 48, 3 * MOMENTS
OUT, TOTAL, LATE = (
    Buffer(name, kind, "float64", (2, 3)) for name, kind in (("out", OUTPUT), ("total", SUMS), ("late", GRADIENT))
)


def lives(found: list[Allocation]) -> dict[str, tuple[int, int]]:
    return {one.buffer.what: (one.first, one.last) for one in found}


def test_blobs_go_after_their_last_reader_and_outputs_stay() -> None:
    assert last_moments(CHAIN) == {"x": 2, "a": 8, "b": 8, "y": END}
    assert last_moments(CHAIN, ["b"])["b"] == END


def test_what_an_op_holds_is_there_as_long_as_its_results() -> None:
    held = last_moments(CHAIN, held=lambda call: ["x"] if call.op.type == "Exp" else [])
    assert held == {"x": 8, "a": 8, "b": 8, "y": END}


def test_results_of_the_interpreter_are_there_when_it_has_run() -> None:
    found = allocations_of(CHAIN, {})
    assert lives(found) == {"a": (2, 8), "b": (5, 8), "y": (8, END)}
    assert [(one.op, one.of, one.blobs, one.buffer.kind, one.nbytes) for one in found] == [
        (number, name, (name,), SCRATCH, NBYTES) for number, name in enumerate("aby")
    ]


def test_sums_go_before_what_is_made_of_them_comes() -> None:
    found = allocations_of(CHAIN, {"b": Demand((OUT,), ((OUT,),), (TOTAL,), (LATE,))})
    assert lives(found) == {"a": (2, 8), "out": (3, 8), "total": (3, 3), "late": (4, 4), "y": (8, END)}
    assert [one.blobs for one in found] == [("a",), ("b",), (), (), ("y",)]


def test_arenas_share_nothing_within_an_op() -> None:
    found = allocations_of(CHAIN, {"b": Demand((OUT,), ((OUT,),), (TOTAL,), (LATE,))})
    ops = [(0, 2), (1, 2), (1, 1), (1, 1), (2, 3)]
    assert intervals_of(found) == [Interval(NBYTES, first, last) for first, last in ops]
    assert most_at_once(found) == (3 * NBYTES, 3)
    assert most_at_once(intervals_of(found)) == (4 * NBYTES, 1)
