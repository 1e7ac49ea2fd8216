"""Types of feeds from arrays and shapes, and what is said of those that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.api.feeds import types_of_feeds
from rnnops.types import Type

NET = ro.parse_net("net n(x, i: int32, w: float[2, 3])\n    y = Mul(x, w)\n    return y, i")


def test_arrays_shapes_and_what_is_declared() -> None:
    types, dtype = types_of_feeds(NET, ({"x": np.zeros((4, 3))},), {"i": [5]})
    assert types == {"x": Type("float64", (4, 3)), "i": Type("int32", (5,)), "w": Type("float64", (2, 3))}
    assert dtype == "float64"


def test_floats_are_what_is_asked_for_or_float32() -> None:
    shapes = ({"x": (2, 3), "i": ()},)
    assert [types_of_feeds(NET, shapes, {}, dtype)[1] for dtype in (None, "float64", np.float32)] == [
        "float32",
        "float64",
        "float32",
    ]


@pytest.mark.parametrize(
    ("given", "dtype", "problem"),
    [
        ({"x": (2, 3)}, None, "an input is left out"),
        ({"x": (2, 3), "i": (1,), "z": (1,)}, None, "'z'"),
        ({"x": (2, -3), "i": (1,)}, None, "not a shape"),
        ({"x": (2, True), "i": (1,)}, None, "not a shape"),
        ({"x": (2**40, 2**40), "i": (1,)}, None, "no memory can hold"),
        ({"x": (2, 3), "i": (1,)}, "int32", "is not a float dtype"),
        ({"x": (2, 3), "i": (1,)}, "nonsense", "is not a float dtype"),
        ({"x": np.zeros((2, 3)), "i": (1,)}, "float32", "another dtype than dtype="),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Any], dtype: str | None, problem: str) -> None:
    with pytest.raises(ro.FeedError, match=problem):
        types_of_feeds(NET, (given,), {}, dtype)
