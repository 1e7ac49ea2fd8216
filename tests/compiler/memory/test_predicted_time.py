"""Predicted time: three forward passes for a step, and what is done again on top."""

from __future__ import annotations

import pytest
from matrix_cells import assert_equal, case, results
from small_programs import recurrence_saved

import rnnops as ro
from rnnops.checkpoints.policy import Policy, Slots
from rnnops.compiler.memory import choose_saved
from rnnops.compiler.memory.choose_saved import step_cost
from rnnops.compiler.run import segments

PRODUCT = "a = MatMul(x, w); b = Sigmoid(a); c = Mul(b, h); y = Tanh(c)"
WHOLE = Slots(1)


@pytest.fixture
def products_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else takes no time."""
    monkeypatch.setattr(choose_saved, "START", 0.0)
    for speed in ("IN_STEPS", "READING", "NEAR_BANDWIDTH"):
        monkeypatch.setattr(choose_saved, speed, float("inf"))


def test_nothing_done_again_is_one() -> None:
    assert step_cost(recurrence_saved(PRODUCT, Policy("all"), w=(3, 3))).time(WHOLE) == 1


@pytest.mark.usefixtures("products_count")
def test_a_product_done_again_is_a_third() -> None:
    assert step_cost(recurrence_saved(PRODUCT, Policy("memory"), w=(3, 3))).time(WHOLE) == pytest.approx(1 + 1 / 3)


@pytest.mark.usefixtures("products_count")
def test_of_two_products_the_larger_one_weighs_more() -> None:
    """One of w [3, 6], done again, and one of u [6, 3], which backward needs nothing of."""
    lines = "a = MatMul(x, w); b = Sigmoid(a); c = MatMul(b, u); y = Add(c, h)"
    saved = recurrence_saved(lines, Policy("memory"), w=(3, 6), u=(6, 3))
    assert step_cost(saved).time(WHOLE) == pytest.approx(1 + (3 * 6) / (3 * (3 * 6 + 6 * 3)))


@pytest.mark.usefixtures("products_count")
@pytest.mark.parametrize(("slots", "again"), [(Slots(2, steps=2), 0.5), (Slots(1, steps=1), 1.5), (WHOLE, 1.5)])
def test_parts_run_forward_again(slots: Slots, again: float) -> None:
    """Four steps: of two parts the first runs again, of four in one slot 3 + 2 + 1."""
    saved = recurrence_saved(PRODUCT, Policy("all", slots=slots), w=(3, 3))
    assert step_cost(saved).time(slots) == pytest.approx(1 + again / 3)


def test_each_part_takes_time_to_start() -> None:
    """Of small steps it is all: 2 forward and 2 backward, and once again, where there would be one of each."""
    slots = Slots(2, steps=2)
    cost = step_cost(recurrence_saved(PRODUCT, Policy("all", slots=slots), w=(3, 3)))
    assert cost.time(slots) == pytest.approx((3 + 2 * 2) / 3, rel=1e-2)


def test_elementwise_results_count_beside_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product that is done again is a smaller share of a step then, but not with what is the same at each step."""
    monkeypatch.setattr(choose_saved, "START", 0.0)
    monkeypatch.setattr(choose_saved, "READING", float("inf"))
    saved = recurrence_saved(PRODUCT, Policy("memory"), w=(3, 3))
    more = 17 * choose_saved.MULTIPLY_ADDS / choose_saved.IN_STEPS  # two scalar functions and a product by element
    assert step_cost(saved).time(WHOLE) == pytest.approx(1 + 3 / (3 * (3 + more)))
    turned = "v = Transpose(w, perm=[1, 0]); a = MatMul(x, v); b = Sigmoid(a); c = Mul(b, h); y = Tanh(c)"
    assert step_cost(recurrence_saved(turned, Policy("memory"), w=(3, 3))).once == step_cost(saved).once


def test_products_of_states_wait_for_large_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of inputs, which are done for many steps at once."""

    def once(lines: str) -> float:
        return step_cost(recurrence_saved(lines, Policy("all"), w=(3, 3))).once

    of_state, of_input = "a = MatMul(h, w); y = Add(a, x)", "a = MatMul(x, w); y = Add(a, h)"
    nbytes, unit, work = 9 * 8, choose_saved.MULTIPLY_ADDS, 2 * 3 * 3
    near = once(of_state) - once(of_input)
    assert near == pytest.approx(2 * 4 * (nbytes / choose_saved.NEAR_BANDWIDTH * unit - work))
    monkeypatch.setattr(choose_saved, "NEAR", 0)
    read_at_each = 2 * 4 * (nbytes / choose_saved.BANDWIDTH * unit - work)
    assert once(of_state) - once(of_input) == pytest.approx(read_at_each - 3 * nbytes / choose_saved.READING * unit)


def test_without_products_elementwise_results_count() -> None:
    """A product by element and a scalar function, which counts for eight, are done again; one more product is not."""
    cost = step_cost(recurrence_saved("a = Mul(x, h); b = Tanh(a); y = Mul(b, x)", Policy("memory")))
    result = 4 * 6 * choose_saved.MULTIPLY_ADDS / choose_saved.ELEMENTWISE_SPEED
    assert cost.again == 9 * result
    assert cost.once == 3 * (10 * result + choose_saved.START * choose_saved.MULTIPLY_ADDS)


def test_of_large_states_bytes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeping all of them takes longer than computing them again; a budget that both fit takes what is faster."""
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    net, feeds = case("mlstm", T=40)
    run = ro.compile(net, memory_budget=1.0)
    default, everything = (run.memory_estimate(kind, feeds) for kind in (None, "all"))
    assert default.policy == "default"
    assert default.time < everything.time
    assert default.nbytes == run.saved_residuals(feeds).total < everything.nbytes / 10


def test_a_smaller_budget_makes_segments_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    monkeypatch.setattr(segments, "CACHE", 0)  # 8 steps
    net, feeds = case("mlstm", T=64)
    wanted, borders = results(net, feeds), ro.compile(net).memory_estimate(None, feeds).nbytes
    for times in (2, 4):
        run = ro.compile(net, memory_budget=borders // times)
        assert run.memory_estimate(None, feeds).policy == f"default, segments {times} times as long"
        assert run.saved_residuals(feeds).total == borders // times
        assert_equal(results(net, feeds, memory_budget=borders // times), wanted)
