"""Rows of groups: which ops may join rows along a known axis."""

from __future__ import annotations

import pytest
from small_programs import lowered_of

from rnnops.compiler.rewrite.fusion_groups import find_rows

JOIN = {  # what follows x, of rows along its last axis
    "y = Tanh(x)": False,
    "a = Transpose(x, perm=[1, 0]); y = Tanh(a)": True,
    "y = ReduceSum(x, axes=[0])": True,
    "y = Mul(x, r)": False,
}


@pytest.mark.parametrize("text", JOIN)
def test_rows_that_lie_side_by_side(text: str) -> None:
    lowered = lowered_of(text, x=(4, 3), r=(3,))
    known = {"x": 1, "r": 0}
    assert (find_rows([], lowered.statements, lowered.types, known) is not None) is JOIN[text]


def test_what_the_group_has_computed_is_not_read_from_memory() -> None:
    """Of rows of x, read in pieces: a is written across, and y follows from it; from outside it would be read so."""
    lowered = lowered_of("t = Transpose(x, perm=[1, 0]); a = Tanh(t); y = Exp(a)", x=(3, 4))
    *before, last = lowered.statements
    known = {"x": 0, "a": 1}
    assert find_rows(before, [last], lowered.types, known) is not None
    assert find_rows([], [last], lowered.types, known) is None


def test_rows_stay_where_nothing_is_new() -> None:
    found = find_rows([], [], {}, {"x": 1})
    assert found is not None
    assert found.axes == {"x": 1}
