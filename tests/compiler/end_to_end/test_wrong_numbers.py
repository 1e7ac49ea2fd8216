"""Numbers that an op does not take are told on every device, with op and blob, wherever the op runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.c99 import C99

ALL = {"around": "all"}
RUNS: dict[str, Callable[[ro.Net], ro.Run]] = {
    "reference": lambda net: ro.compile(net, "reference"),
    "plain": lambda net: ro.compile(net, tuning=Options(compiled=False, **ALL)),
    "cpu": lambda net: ro.compile(net),
    "cpu, all ops": lambda net: ro.compile(net, tuning=Options(**ALL)),
    "c99": lambda net: ro.compile(net, tuning=Options(device=C99(), **ALL)),
    "cuda": lambda net: ro.compile(net, "cuda", tuning=Options(**ALL)),
}
needs_compiler = pytest.mark.skipif(not (os.environ.get("CC") or shutil.which("cc")), reason="there is no C compiler")
MARKS = {"c99": needs_compiler, "cuda": pytest.mark.cuda}
EVERY = [pytest.param(name, marks=MARKS[name]) if name in MARKS else name for name in RUNS]


def in_a_cell(power: int | None) -> ro.Net:
    cell, net = ro.Net("cell"), ro.Net("net")
    x, h = cell.input("x", "int32"), cell.input("h", "int32")
    cell.outputs(h=ro.pow(h + 1, x if power is None else power))
    y, *_ = ro.recurrent_net(net, cell, [("x", net.input("x", "int32"))], [("h", net.input("h0", "int32"))], {"h": "h"})
    net.outputs(y=y)
    return net


def alone(power: int | None) -> ro.Net:
    net = ro.Net("net")
    x, h = net.input("x", "int32"), net.input("h0", "int32")
    net.outputs(y=ro.pow(h + 1, x if power is None else power) + x)
    return net


@pytest.mark.parametrize("build", [in_a_cell, alone])
@pytest.mark.parametrize("power", [None, -1])
@pytest.mark.parametrize("device", EVERY)
def test_integers_have_no_power_below_0(device: str, power: int | None, build: Callable[[int | None], ro.Net]) -> None:
    run = RUNS[device](build(power))
    feeds = {"x": np.array([[[2, 3]], [[0, -1]]], "int32"), "h0": np.array([[1, 2]], "int32")}
    if power is None:
        assert run({**feeds, "x": np.abs(feeds["x"])})["y"].dtype == "int32"
    with pytest.raises(ro.RnnopsError, match="an integer has no power below 0"):
        run(feeds)


@pytest.mark.covering(2)
@pytest.mark.parametrize("device", EVERY)
@pytest.mark.parametrize(("dtype", "x"), [("f", 88.8), ("d", 709.8)])
@pytest.mark.parametrize("op", ["sinh", "cosh"])
def test_what_is_finite_is_not_infinite_on_the_way(device: str, op: str, dtype: str, x: float) -> None:
    net = ro.Net("net")
    net.outputs(y=getattr(ro, op)(net.input("x")))
    outputs, pullback = RUNS[device](net).vjp({"x": np.array([x, -x, 0.5], dtype)})
    wanted = getattr(np, op)(np.array([x, -x, 0.5], dtype))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(outputs["y"], wanted, rtol=10 * eps)
    gradient = {"sinh": np.cosh, "cosh": np.sinh}[op](np.array([x, -x, 0.5], dtype))
    np.testing.assert_allclose(pullback({"y": np.ones(3, dtype)})["x"], gradient, rtol=10 * eps)
