"""Kernel IR as the text of a Python module: its functions, its driver, and comments for people alone."""

from __future__ import annotations

import numpy as np

from rnnops.compiler.codegen.scan_module import python_text
from rnnops.compiler.lower.expressions import Literal, Load, Name
from rnnops.compiler.lower.kernel import Do, For, Function, Module, Parameter, Pointer, Store
from rnnops.compiler.targets.target import load_module

X, Y, COUNT = Parameter("x", "float64[]", "layer/x"), Parameter("y", "float64[]", "no\nname"), Name("count")
ROWS = Function(
    "rows_0",
    (Parameter("p0", "float64*"), Parameter("p1", "float64*"), Parameter("c0")),
    (
        For(
            "i0",
            Literal(0),
            Name("c0"),
            Literal(1),
            (Store("p1", Name("i0"), Load("p0", Name("i0"), dtype="float64") * Name("FACTOR", dtype="float64")),),
        ),
    ),
)
CALL = Do("rows_0", (Pointer("x", Literal(0)), Pointer("y", Literal(1)), COUNT))
MODULE = Module("float64", (ROWS,), Function("scan", (), (CALL,)), (X, Y), ("count",))


def test_a_module_runs() -> None:
    text = python_text(MODULE, ["FACTOR = 3.0"])
    x, y = np.array([1.0, 2.0]), np.zeros(4)
    load_module(text).scan(0, 1, None, None, [2], [x, y])
    assert y.tolist() == [0, 3, 6, 0]


def test_the_driver_unpacks_arrays_and_sizes() -> None:
    driver = python_text(MODULE, ["FACTOR = 3.0"]).split("\n\n\n")[-1]
    assert driver.split("\n") == [
        "def scan(rank, threads, barrier, status, sizes, arrays):",
        "    x = arrays[0]",
        "    y = arrays[1]",
        "    count = sizes[0]",
        "    rows_0(at(x, 0), at(y, 1), count)",
        "",
    ]


def test_people_see_whose_memory_it_is_and_no_name_breaks_a_line() -> None:
    shown = python_text(MODULE, [], for_people=True)
    assert "    x = arrays[0]  # layer/x\n    y = arrays[1]\n" in shown
