"""Bytes that a recurrence in parts holds: slots of either kind, parts that are kept, states at hand."""

from __future__ import annotations

import pytest
from small_programs import recurrence_saved

from rnnops.checkpoints.policy import Policy, Slots
from rnnops.compiler.memory.allocations import PartBytes, held_in_parts, part_bytes

LINES = "a = MatMul(x, w); b = Add(a, h); y = Tanh(b)"
STATE = 8 * 2 * 3  # bytes of h
PART = 4 * STATE  # of two steps: the states before, between and after, and the one that is handed on
RESULTS = 3 * STATE  # of a part: h of both steps, and the last one


def bytes_now() -> PartBytes:
    return part_bytes(recurrence_saved(LINES, w=(3, 3))[0].calls[-1])


def test_bytes_of_a_part() -> None:
    found = bytes_now()
    assert (found.steps, found.batch, found.states) == (4, 2, STATE)
    assert found.sizes(2) == (PART, RESULTS)


@pytest.mark.parametrize(
    ("slots", "held"),
    [
        (Slots(2, "state", steps=2), STATE + PART),
        (Slots(1, "state", steps=2), PART),
        (Slots(2, "step", steps=2), 2 * PART),
        (Slots(9, "step", steps=2), 2 * PART),
        (Slots(3, "mixed", steps=2, cost=2), 2 * PART),
    ],
    ids=str,
)
def test_the_most_at_once(slots: Slots, held: int) -> None:
    assert bytes_now().held(slots) == held + 2 * STATE + RESULTS
    (call,) = recurrence_saved(LINES, Policy(slots=slots), w=(3, 3))[0].calls
    assert held_in_parts(call) == held + 2 * STATE + RESULTS
