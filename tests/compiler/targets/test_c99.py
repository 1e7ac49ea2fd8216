"""Plain C99 as a target: the numbers of the reference, for presets, own cells, lengths, and every scalar function."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scalar_jobs import Job, failures, job_of, merged, native_loop, use_of
from scalar_sweep import sweep

import rnnops as ro
from rnnops.compiler.codegen.scan_module import ScanModule
from rnnops.compiler.lower.expressions import Constants, Literal, Load
from rnnops.compiler.lower.kernel import Do, Function, Module, Parameter, Pointer
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.schedule.batch_axis import ScanTeam
from rnnops.compiler.targets.c99 import C99, c_text

pytestmark = pytest.mark.skipif(not (os.environ.get("CC") or shutil.which("cc")), reason="there is no C compiler")
T, N, D, H = 7, 3, 5, 6


def c99_run(net: ro.Net) -> ro.Run:
    return ro.compile(net, "cpu", tuning=Options(device=C99(), tile=2, around="all"))


def assert_same(net: ro.Net, feeds: dict[str, Any], seed: int | None = None) -> None:
    """Outputs and gradients of both devices agree."""
    found = []
    for run in (c99_run(net), ro.compile(net, "reference")):
        outputs, pullback = run.vjp(feeds, seed=seed, training=seed is not None)
        grads = {name: np.cos(np.arange(y.size)).astype(y.dtype).reshape(y.shape) for name, y in outputs.items()}
        found.append({**outputs, **{f"d {name}": g for name, g in pullback(grads).items() if g is not None}})
    eps = max(np.finfo(x.dtype).eps for x in feeds.values() if x.dtype.kind == "f")
    assert found[0].keys() == found[1].keys()
    for name, wanted in found[1].items():
        np.testing.assert_allclose(found[0][name], wanted, rtol=200 * eps, atol=200 * eps, err_msg=name)


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.covering(2)
@pytest.mark.parametrize("lengths", [None, [7, 3, 0]])
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "MILSTM", "LayerNormLSTM"])
def test_presets(cell: str, lengths: list[int] | None, dtype: str) -> None:
    net, random = ro.Net("net"), np.random.default_rng(0)
    given = None if lengths is None else net.input("lengths", "int32")
    y, *_ = getattr(ro, cell)(net, net.input("x"), given, None, D, H, scope="s")
    net.outputs(y=y)
    feeds = {name: array.astype(dtype) for name, array in ro.init_params(net, seed=1).items()}
    feeds["x"] = random.normal(size=(T, N, D)).astype(dtype)
    if lengths is not None:
        feeds["lengths"] = np.array(lengths, "int32")
    assert_same(net, feeds)


def test_an_own_cell_with_look_ups_extrema_and_dropout(dtype: str) -> None:
    cell = ro.Net("cell")
    word, h, table, w = cell.input("word", "int32"), *cell.inputs("h", "table", "w")
    x = ro.dropout(ro.gather(table, word, axis=0), ratio=0.4)
    seen = ro.softmax(h @ w, axis=-1) * ro.reduce_max(h, axes=[-1]) + ro.pow(ro.abs(x) + 1.0, 1.7)
    cell.outputs(h=ro.tanh(seen - ro.erf(x)))
    net, random = ro.Net("net"), np.random.default_rng(0)
    words, h0 = net.input("words", "int32"), net.input("h0")
    y, *_ = ro.recurrent_net(net, cell, [("word", words)], [("h", h0)], {"h": "h"})
    net.outputs(y=y)
    shapes = {"h0": (N, H), "table": (9, H), "w": (H, H)}
    feeds: dict[str, Any] = {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    assert_same(net, {**feeds, "words": random.integers(0, 9, (T, N)).astype("int32")}, seed=3)


def test_an_index_out_of_range_is_told() -> None:
    cell = ro.Net("cell")
    word, h, table = cell.input("word", "int32"), *cell.inputs("h", "table")
    cell.outputs(h=h + ro.gather(table, word, axis=0))
    net = ro.Net("net")
    words, h0 = net.input("words", "int32"), net.input("h0")
    y, *_ = ro.recurrent_net(net, cell, [("word", words)], [("h", h0)], {"h": "h"})
    net.outputs(y=y)
    feeds = {"h0": np.zeros((1, 2)), "table": np.ones((3, 2)), "words": np.array([[1], [3]], "int32")}
    with pytest.raises(ro.RnnopsError, match="out of range"):
        c99_run(net)(feeds)


@pytest.fixture
def _silent_edges() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.usefixtures("_silent_edges")
def test_every_elementwise_op_in_every_dtype() -> None:
    constants = Constants()
    uses = (use_of(op, attributes, *arrays) for op, attributes, arrays in sweep())
    jobs = merged(job_of(*use, constants, numbers=True) for use in uses)
    came = run_jobs(jobs, constants)
    assert not list(failures(jobs, came))


def run_jobs(jobs: list[Job], constants: Constants) -> list[Any]:
    """The results of all jobs, from one module whose driver calls their loops."""
    outs = [np.empty_like(job.wanted) for job in jobs]
    programs, calls, arrays = [], [], []
    for number, (job, out) in enumerate(zip(jobs, outs, strict=True)):
        loop = native_loop(job, number)
        programs.append(loop)
        places = []
        for parameter, array in zip(loop.parameters, [out, *job.operands.values()], strict=False):
            arrays.append((Parameter(f"x{len(arrays)}", f"{parameter.dtype}[]"), np.ascontiguousarray(array)))
            places.append(Pointer(arrays[-1][0].name, Literal(0)))
        calls.append(Do(loop.name, (*places, Load("lengths", Literal(number)))))
    lengths = Parameter("lengths", "int64[]"), np.array([out.size for out in outs])
    given = tuple(parameter for parameter, _ in (*arrays, lengths))
    driver = Function("scan", (Parameter("rank"), Parameter("threads")), tuple(calls))
    module = Module("float32", tuple(programs), driver, given, ())
    target, status = C99(), np.zeros(4, np.int64)
    function = target.load(ScanModule(module, constants, (), (), ()), None)
    memory = [array for _, array in (*arrays, lengths)]
    target.call(function, ScanTeam(1), (None, status, np.zeros(1, np.int64), *memory), may_fail=False)
    return outs


def test_text_is_readable_and_names_never_reach_it() -> None:
    cell = ro.Net("cell")
    x, h = cell.input("system(1)"), cell.input("h")
    cell.outputs(h=ro.tanh(x + h).named("*/ evil"))
    net = ro.Net("net")
    y, *_ = ro.recurrent_net(net, cell, [("system(1)", net.input("xs"))], [("h", net.input("h0"))], {"h": "h"})
    net.outputs(y=y)
    plan = c99_run(net).plan(xs=(T, N, D), h0=(N, D))
    kernels = [kernel for kernel in plan.plan.compiled.kernels if kernel is not None]
    text = "".join(c_text(kernel.compiled.text.module) for kernel in kernels)
    assert "tanh_float(" in text
    assert "system" not in text
    assert "evil" not in text
