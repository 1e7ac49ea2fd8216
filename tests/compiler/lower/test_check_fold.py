"""Folds that parts can be joined by, and those whose result depends on the order or on what they start from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_programs import call_of

from rnnops.compiler.lower.lower_ops import check_fold, evaluate
from rnnops.errors import OpError
from rnnops.net.loop_forms import Reduction
from rnnops.net.schema import form_of

SUM = call_of("y = ReduceSum(x, axes=[0])", x=(2, 3))


def form(**changes: object) -> Reduction:
    """The form of a sum, changed."""
    found = form_of(SUM)
    assert isinstance(found, Reduction)
    return replace(found, **changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"combine": "{a} * {b}", "start": 1}, {"combine": "maximum({a}, {b})", "start": "-inf"}],
    ids=["sum", "product", "largest"],
)
def test_folds_in_any_order(changes: dict[str, object]) -> None:
    check_fold(SUM, form(**changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"start": 1.5}, r"`start` 1.5 is not neutral: .* makes 3.0 of 1.5"),
        ({"combine": "{b}"}, r"`start` 0 is not neutral: .* makes 0.0 of -2.5"),
        ({"combine": "{a} - {b}"}, r"`start` 0 is not neutral: .* makes 2.5 of -2.5"),
        ({"combine": "{a} if {a} != 0 else {b}"}, r"is -2.5 for -2.5, -0.5 and -0.5 for -0.5, -2.5"),
        ({"combine": "{a} + {b} + {a} * {a} * {b} * {b}"}, r"depends on which two are combined first"),
    ],
)
def test_other_folds_are_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(OpError, match=problem):
        check_fold(SUM, form(**changes))


def test_texts_have_values() -> None:
    assert evaluate("maximum({a}, {b}) * 2 if {a} < {b} and not {a} == 0 else -{b}", {"a": 1.0, "b": 3.0}) == 6
    assert evaluate("maximum({a}, {b}) * 2 if {a} < {b} and not {a} == 0 else -{b}", {"a": 0.0, "b": 3.0}) == -3
