"""Rows of one column are added in NumPy's own order, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from native_programs import exported, needs_compiler

import rnnops as ro
from rnnops.compiler.lower.scan import SUM_PARTS
from rnnops.compiler.run.recorder import LONGEST, added_rows


def column_of(dtype: str, rows: int, random: np.random.Generator) -> np.ndarray:
    """Numbers of very different sizes, whose sum shows the order in which they are added."""
    return (random.normal(size=(rows, 1)) * np.exp(3.0 * random.normal(size=(rows, 1)))).astype(dtype)


def sum_net() -> ro.Net:
    net = ro.Net("column")
    net.outputs(y=ro.reduce_sum(net.input("x"), axes=[0]))
    return net


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_are_those_of_numpy(dtype: str) -> None:
    """Of so few rows each is a part of the sum by itself."""
    run, random = ro.compile(sum_net()).bind(), np.random.default_rng(0)
    for rows in (8, 9, 15, 16, 17, 40, 63, SUM_PARTS):
        for _ in range(9):  # the third call and later ones are native
            x = column_of(dtype, rows, random)
            np.testing.assert_array_equal(run(x=x)["y"], x.sum(axis=0, keepdims=True))
        assert "one native call" in run.plan(x=x, backward=False).calls


@needs_compiler
@pytest.mark.parametrize("source", [None, "c99"])
def test_exported_programs(source: str | None, tmp_path: Path) -> None:
    feeds, y = {"x": column_of("float32", 37, np.random.default_rng(0))}, np.zeros((1, 1), "float32")
    program = exported(ro.compile(sum_net()), tmp_path, feeds, name="column", source=source)
    for _ in range(2):
        assert program(feeds, {"y": y}) == 0
        np.testing.assert_array_equal(y, feeds["x"].sum(axis=0, keepdims=True))


def test_all_parts_of_a_sum_are_added_in_compiled_code() -> None:
    assert SUM_PARTS <= LONGEST


def test_what_numpy_adds_in_halves_is_left_to_it() -> None:
    assert added_rows("float32", LONGEST, 1) is not None
    assert added_rows("float32", LONGEST + 1, 1) is None
    assert added_rows("float32", 1000, 2) is not None
    assert added_rows("int32", 1000, 1) is not None
