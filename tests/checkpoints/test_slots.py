"""Schedules in slots: forward steps counted while actions run, against dynamic programs and closed forms."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import comb

import numpy as np
import pytest

import rnnops as ro
from rnnops.checkpoints.slot_schedule import Action, forward_steps, slots

TS = (0, 1, 2, 3, 5, 8, 21, 64, 133, 300)


@lru_cache
def program(kind: str, T: int, m: int, cost: int) -> np.ndarray:
    """C(t, m) for all t up to T, as the recurrences define it."""
    t = np.arange(T + 1)
    if m == 1:
        return t * (t + 1) // 2
    counts = np.minimum(t, 1)
    states = kind != "step" and program(kind, T, m - 1, cost)
    price = cost if kind == "mixed" else 1
    steps = program(kind, T, m - price, cost) if kind != "state" and m > price else None
    for n in range(2, T + 1):
        ways = []
        if kind != "step":
            ways.append(min(y + states[n - y] + counts[y] for y in range(1, n)))
        if steps is not None:
            ways.append(min(y + steps[n - y] + counts[y - 1] for y in range(1, n + 1)))
        counts[n] = min(ways)
    return counts


def run(actions: Iterable[Action], T: int, cost: int = 1) -> tuple[int, int, int, int]:
    """Forward steps, most states in slots, most steps kept, most slots in use beside the step in hand.

    Every action finds what it needs.
    """
    at: int | None = 0
    stored: set[int] = set()
    kept: set[int] = set()
    count, left, most_states, most_steps, most = 0, T, 0, 0, 0
    for action in actions:
        first = action.first
        if action.what == "advance":
            assert at == first < action.last
            count, at = count + action.last - first, action.last
        elif action.what == "keep":
            assert at == first
            count, at = count + 1, first + 1
            kept.add(first)
        elif action.what == "backward":
            assert first == left - 1
            kept.remove(first)
            left, at = first, None
        elif action.what == "store":
            assert at == first
            stored.add(first)
        elif action.what == "restore":
            assert first == 0 or first in stored or first - 1 in kept
            at = first
        else:
            stored.remove(first)
        most_states, most_steps = max(most_states, len(stored)), max(most_steps, len(kept))
        most = max(most, len(stored) + cost * max(0, len(kept) - 1))
    assert left == 0
    assert not stored
    assert not kept
    return count, most_states, most_steps, most


@pytest.mark.parametrize("T", TS)
def test_states_take_as_few_steps_as_can_be(T: int) -> None:
    for m in (1, 2, 3, 4, 7, 12, 40, 299, 300, 301):
        count, states, steps, _ = run(slots(T, m), T)
        assert count == forward_steps(T, m)
        assert states <= m - 1, "the state before step 0 takes one"
        assert steps <= 1


@pytest.mark.parametrize("T", TS)
def test_steps_take_as_few_steps_as_can_be(T: int) -> None:
    for m in (1, 2, 3, 4, 7, 12, 40, 299, 300, 301):
        count, states, steps, _ = run(slots(T, m, "step"), T)
        assert (count, states) == (forward_steps(T, m, "step"), 0)
        assert steps <= m


@pytest.mark.parametrize("kind", ["state", "step"])
def test_counts_are_those_of_the_dynamic_program(kind: str) -> None:
    for m in range(1, 31):
        assert [forward_steps(t, m, kind) for t in range(121)] == program(kind, 120, m, 1).tolist()


@pytest.mark.parametrize("cost", [1, 3, 6])
def test_mixed_slots_equal_their_dynamic_program(cost: int) -> None:
    for m in (1, 2, 4, 7, 11, 20):
        count, _, _, most = run(slots(90, m, "mixed", cost), 90, cost)
        assert count == forward_steps(90, m, "mixed", cost) == program("mixed", 90, m, cost)[90]
        assert most <= m - 1, "the state before step 0 takes one"


def test_known_numbers() -> None:
    """Forward steps over T at T = 1000 that Gruslys and others' recurrences give."""
    state = {5: 7.28, 10: 4.64, 20: 3.75, 32: 3.41, 50: 2.95, 100: 2.90}
    step = {5: 6.29, 10: 3.64, 20: 2.75, 32: 2.41, 50: 1.95, 100: 1.90}
    for m, wanted in state.items():
        assert forward_steps(1000, m) / 1000 == pytest.approx(wanted, abs=0.01)
    for m, wanted in step.items():
        assert forward_steps(1000, m, "step") / 1000 == pytest.approx(wanted, abs=0.01)
    assert forward_steps(1000, 50, "mixed", 3) / 1000 == pytest.approx(2.56, abs=0.01)


def test_enough_slots() -> None:
    assert forward_steps(50, 50) == 2 * 50 - 1
    assert forward_steps(50, 50, "step") == 50
    assert forward_steps(50, 1) == 50 * 51 // 2
    r = 2  # each step at most twice more
    assert forward_steps(comb(5 + r, 5), 5) == (r + 1) * comb(7, 5) - comb(7, 1)


def test_actions_read_as_text() -> None:
    text = [str(action) for action in slots(3, 2)]
    assert text == [
        "advance 0 to 1", "store 1", "advance 1 to 2", "keep 2", "backward 2", "restore 1", "keep 1", "backward 1",
        "drop 1", "restore 0", "keep 0", "backward 0",
    ]  # fmt: skip


def test_mixed_slots_too_few_for_a_step_are_slots_of_states() -> None:
    assert slots(9, 3, "mixed", 10**11) == slots(9, 3)
    with pytest.raises(ro.CheckpointError, match="too many mixed slots"):
        slots(1000, 10**12, "mixed", 10**9)


@pytest.mark.parametrize(
    "arguments", [(-1, 2), (3, 0), (3.0, 2), (True, 2), (3, 2, "all"), (3, 2, None), (3, 2, "mixed", 0)]
)
def test_bad_arguments(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ro.CheckpointError):
        slots(*arguments)  # type: ignore[arg-type]
