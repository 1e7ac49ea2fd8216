"""The first way within a byte budget: policies in order of time, then parts, and an error that names the least."""

from __future__ import annotations

import pytest
from small_programs import Saved, recurrence_saved

from rnnops.checkpoints.policy import Policy
from rnnops.compiler.memory.allocations import held_in_parts
from rnnops.compiler.memory.choose_saved import fit_budget, held_bytes, ways
from rnnops.errors import BudgetError

EVERYTHING, STATES = 8 * (5 + 4) * 6, 8 * 5 * 6  # bytes: of h and one more blob, and of h alone


def by(policy: Policy) -> Saved:
    return recurrence_saved("a = MatMul(x, w); b = Sigmoid(a); c = Mul(b, h); y = Tanh(c)", policy, w=(3, 3))


def tile(steps: int, rows: int) -> int:
    return 2


def test_bytes_that_policies_hold() -> None:
    assert [held_bytes(by(Policy(kind))) for kind in ("all", "default", "memory")] == [EVERYTHING, EVERYTHING, STATES]


@pytest.mark.parametrize(
    ("budget", "kind"),
    [(EVERYTHING, "all"), (EVERYTHING - 1, "memory"), (STATES, "memory"), (1.0, "all"), (0.6, "memory")],
)
def test_the_fastest_that_fits(budget: int | float, kind: str) -> None:
    assert fit_budget(by, budget, tile).policy == Policy(kind)


def test_the_least_is_named() -> None:
    with pytest.raises(BudgetError, match=rf"at least {STATES} bytes"):
        fit_budget(by, STATES - 1, tile)
    with pytest.raises(BudgetError, match=r"which are 0\.5 of what 'all' holds"):
        fit_budget(by, 0.5, tile)


def test_ways_are_in_order_of_time() -> None:
    found = ways(by, tile)
    assert [way.policy.kind for way in found[:3]] == ["all", "default", "speed"]
    assert [way.time for way in found] == sorted(way.time for way in found)


def test_bytes_of_ways_are_those_of_what_they_save() -> None:
    """Of parts they are worked out before anything is saved in parts."""
    found = ways(by, tile)
    assert sum(way.policy.slots is not None for way in found) > 2
    for way in found:
        if way.policy.slots is None:
            assert way.nbytes == held_bytes(by(way.policy))
        else:
            (call,) = by(way.policy)[0].calls
            assert way.nbytes == held_in_parts(call)
