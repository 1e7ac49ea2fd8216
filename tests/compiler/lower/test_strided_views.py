"""Ops that only look at their input another way, outside of loops: offsets and strides."""

from __future__ import annotations

import pytest
from small_programs import call_of

from rnnops.compiler.lower.movements import stays_there, views_of
from rnnops.compiler.lower.statements import Layout

VIEWS = {
    "y = Transpose(x, perm=[1, 0])": (Layout(0, (3, 2), (1, 3)),),
    "y = Slice(x, starts=[2], ends=[-4], axes=[1], steps=[-1])": (Layout(2, (2, 3), (3, -1)),),
    "y, z = Split(x, axis=1, split=[1, 2])": (Layout(0, (2, 1), (3, 0)), Layout(1, (2, 2), (3, 1))),
    "y = Concat(x, x, axis=0)": (),
    'y = Pad(x, pads=[1, 0, 0, 0], mode="constant", constant_value=0)': (),
    "y = Tanh(x)": (),
}


@pytest.mark.parametrize("text", VIEWS)
def test_where_elements_lie(text: str) -> None:
    assert views_of(call_of(text, x=(2, 3))) == VIEWS[text]


def test_what_stays_on_a_device() -> None:
    assert [stays_there(call_of(text, x=(2, 3))) for text in VIEWS] == [True, True, True, True, False, False]
