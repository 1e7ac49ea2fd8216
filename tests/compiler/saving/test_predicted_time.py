"""Predicted time: three forward passes for a step, and what is done again on top."""

from __future__ import annotations

import pytest
from small_programs import recurrence_saved

from rnnops.checkpoints.policy import Policy, Slots
from rnnops.compiler.saving.predicted_time import predicted_time

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


def test_without_products_nothing_counts() -> None:
    assert predicted_time(recurrence_saved("a = Mul(x, h); y = Tanh(a)", Policy("memory"))) == 1
