"""Predicted time: three forward passes for a step, and what is done again on top."""

from __future__ import annotations

import pytest
from matrix_cells import assert_equal, case, results
from small_programs import recurrence_saved

import rnnops as ro
from rnnops.checkpoints.policy import Policy, Slots
from rnnops.compiler.memory import choose_saved
from rnnops.compiler.memory.choose_saved import predicted_time
from rnnops.compiler.run import segments

PRODUCT = "a = MatMul(x, w); b = Sigmoid(a); c = Mul(b, h); y = Tanh(c)"


def test_nothing_done_again_is_one() -> None:
    assert predicted_time(recurrence_saved(PRODUCT, Policy("all"), w=(3, 3))) == 1


def test_a_product_done_again_is_a_third() -> None:
    assert predicted_time(recurrence_saved(PRODUCT, Policy("memory"), w=(3, 3))) == pytest.approx(1 + 1 / 3)


def test_of_two_products_the_larger_one_weighs_more() -> None:
    """One of w [3, 6], done again, and one of u [6, 3], which backward needs nothing of."""
    lines = "a = MatMul(x, w); b = Sigmoid(a); c = MatMul(b, u); y = Add(c, h)"
    saved = recurrence_saved(lines, Policy("memory"), w=(3, 6), u=(6, 3))
    assert predicted_time(saved) == pytest.approx(1 + (3 * 6) / (3 * (3 * 6 + 6 * 3)))


def test_parts_run_forward_again() -> None:
    saved = recurrence_saved(PRODUCT, Policy("all", slots=Slots(2, steps=2)), w=(3, 3))
    assert predicted_time(saved, forward_steps=1.5) == pytest.approx(1 + 0.5 / 3)


def test_without_products_elementwise_results_count() -> None:
    """One that is done again, beside that and a scalar function, which counts for eight."""
    saved = recurrence_saved("a = Mul(x, h); y = Tanh(a)", Policy("memory"))
    again = {op.outputs[0] for op in saved[0].calls[0].op.attributes["backward"].ops} & {"a"}
    assert predicted_time(saved) == pytest.approx(1 + len(again) / (3 * 9))


def test_of_large_states_bytes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeping all of them takes longer than computing them again; a budget that both fit takes what is faster."""
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    net, feeds = case("mlstm", T=40)
    run = ro.compile(net, memory_budget=1.0)
    default, everything = (run.memory_estimate(kind, feeds) for kind in (None, "all"))
    assert default.policy == "default"
    assert default.time < everything.time
    assert default.nbytes == run.saved_residuals(feeds).total < everything.nbytes / 10


def test_a_smaller_budget_makes_segments_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    monkeypatch.setattr(segments, "CACHE", 0)  # 8 steps
    net, feeds = case("mlstm", T=64)
    wanted, borders = results(net, feeds), ro.compile(net).memory_estimate(None, feeds).nbytes
    for times in (2, 4):
        run = ro.compile(net, memory_budget=borders // times)
        assert run.memory_estimate(None, feeds).policy == f"default, segments {times} times as long"
        assert run.saved_residuals(feeds).total == borders // times
        assert_equal(results(net, feeds, memory_budget=borders // times), wanted)
