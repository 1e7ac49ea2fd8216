"""Kernels for people: names of blobs where they are identifiers and mean one thing, and never in what runs."""

from __future__ import annotations

import re

import pytest
from cuda_marks import in_simulator

import rnnops as ro
from rnnops.compiler.lower.expressions import Literal, Load, Name
from rnnops.compiler.lower.kernel import Assign, For, Function, Module, Parameter, Store, shown


def program(blob: str, other: str) -> Function:
    x = Load("p0", Name("i0"), dtype="float32")
    body = Assign("v0", x, blob), Assign("v1", x, other), Store("p1", Name("i0"), Name("v1", dtype="float32"), other)
    taken = Parameter("p0", "float32*", blob), Parameter("p1", "float32*", other), Parameter("c0")
    return Function("rows_0", taken, (For("i0", Literal(0), Name("c0"), Literal(1), body),))


def text_of(blob: str, other: str) -> str:
    module = Module("float32", (program(blob, other),), Function("scan", (), ()), (), ())
    return str(shown(module).programs[0])


def test_memory_has_the_blobs_name_and_a_variable_if_no_memory_has() -> None:
    lines = text_of("layer/h_prev", "c_t").splitlines()
    assert lines == [
        "def rows_0(h_prev, c_t, c0):",
        "    for i0 in range(c0):",
        "        v0 = h_prev[i0]",
        "        v1 = h_prev[i0]",
        "        c_t[i0] = v1",
    ]


def test_names_that_mean_nothing_in_python_are_not_shown() -> None:
    for name in ("a b", "for", "x\n    evil()", "c0", "", "p1", "1x", "é"):
        assert text_of(name, name) == str(program(name, name))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=in_simulator)])
def test_source_says_whose_memory_arrays_are_and_what_runs_does_not(device: str) -> None:
    cell, net = ro.Net("cell"), ro.Net("net")
    x, h = cell.inputs("x", "h")
    cell.outputs(h=ro.sigmoid((x * h).named("gate_in")))
    y, *_ = ro.recurrent_net(net, cell, [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "h"})
    net.outputs(y=y)
    plan = ro.compile(net, device=device).plan(xs=(3, 2, 4), h0=(2, 4))
    assert "gate_in" in plan.source
    assert re.search(r"# (x\d: )?tensor x\n", plan.source)
    for kernel in plan.plan.compiled.kernels:
        if kernel is not None:
            assert "gate_in" not in kernel.compiled.text.python()
            assert "tensor" not in kernel.compiled.text.python()
