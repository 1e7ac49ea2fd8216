"""Sums of step outputs over steps as results of a recurrence, on every device beside a loop by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from cuda_marks import on_cuda
from devices import DEVICES

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.c99 import C99
from rnnops.errors import RecurrentError
from rnnops.testing import check_devices, check_gradient

T, N, D, H = 5, 3, 2, 4
Arrays = dict[str, np.ndarray]
ROWS = ("product", "masked", "column", "rows", "x", "h_before")  # what leaves rows independent
MIXED = ("weights", "weighed", "total")
COUNTS = ("count",)


def summed(names: tuple[str, ...], reverse: int = 0, recompute: tuple[str, ...] = ()) -> ro.Net:
    """A masked cell that gives its last state and the sums of some of its outputs."""
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    lengths, t = cell.input("lengths", "int32"), cell.input("t", "int32")
    new = ro.tanh(x @ w + h).named("new")
    h_new, turned = ro.select_valid(new, h, lengths, t), ro.transpose(x, [1, 0])
    outputs = {"product": turned @ new, "masked": turned @ h_new, "column": ro.reduce_sum(new, [0], keepdims=0)}
    outputs.update(
        rows=new * x[:, :1], x=x, h_before=h, weights=w, weighed=ro.reduce_sum(new) * w, total=ro.reduce_sum(h_new)
    )
    outputs["count"] = t + 1
    cell.outputs(h_new=h_new, **{name: outputs[name] for name in names})
    net = ro.Net("net")
    given = [*net.inputs("xs", "h0", "w"), net.input("lengths", "int32")]
    attributes = {
        "cell": cell.snapshot(),
        "inputs": ("x",),
        "states": (("h", "h_new", 1, None, None),),
        "references": ("w", "lengths"),
        "timestep": "t",
        "reverse": reverse,
        "recompute": recompute,
        "sums": names,
    }
    results = [None, *(part for name in names for part in (name, ""))]
    made = net.append("RecurrentNetwork", given, attributes, ["", "h_last", *results[1:]])
    net.outputs(**{blob.name: blob for blob in made if blob.name})
    return net


def by_hand(names: tuple[str, ...], reverse: int, xs: Any, h0: Any, w: Any, lengths: Any) -> Arrays:
    h, sums = h0, dict.fromkeys(names, 0.0)
    for t in range(T)[:: -1 if reverse else 1]:
        before, new = h, np.tanh(xs[t] @ w + h)
        h = np.where((t < lengths)[:, None], new, h)
        step = {"product": xs[t].T @ new, "masked": xs[t].T @ h, "column": new.sum(0), "rows": new * xs[t][:, :1]}
        step.update(x=xs[t], h_before=before, weights=w, weighed=new.sum() * w, total=h.sum(), count=np.array([t + 1]))
        sums = {name: sums[name] + step[name] for name in names}
    return {"h_last": h[None], **{name: np.asarray(total) for name, total in sums.items()}}


def feeds_of(lengths: list[int]) -> Arrays:
    return {**random_arrays(xs=(T, N, D), h0=(N, H), w=(D, H)), "lengths": np.array(lengths, np.int32)}


RUNS: dict[str, Callable[[ro.Net], ro.Run]] = {
    **DEVICES,
    "c99": lambda net: ro.compile(net, "cpu", tuning=Options(device=C99(), tile=2, around="all")),
    "tiles": lambda net: ro.compile(net, "cpu", threads=3, tuning=Options(tile=2)),
    "cuda": lambda net: ro.compile(net, "cuda"),
}
DEVICES_HERE = [pytest.param(name, marks=on_cuda if name == "cuda" else ()) for name in RUNS]


@pytest.mark.covering(2)
@pytest.mark.parametrize("device", DEVICES_HERE)
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("lengths", [[T, T, T], [1, 0, 4]])
@pytest.mark.parametrize("names", [ROWS, (*ROWS, *MIXED), COUNTS])
def test_sums_and_their_gradients(names: tuple[str, ...], lengths: list[int], reverse: int, device: str) -> None:
    net, feeds = summed(names, reverse), feeds_of(lengths)
    outputs, pullback = RUNS[device](net).vjp(feeds)
    wanted = by_hand(names, reverse, **feeds)
    assert {name: array.dtype for name, array in outputs.items()} == {n: outputs[n].dtype for n in wanted}
    for name, array in wanted.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-12, atol=1e-12, err_msg=name)
    given = {name: np.cos(array) for name, array in outputs.items() if array.dtype.kind == "f"}
    found, reference = pullback(given), ro.compile(net, "reference").vjp(feeds)[1](given)
    for name, grad in reference.items():
        np.testing.assert_allclose(found[name], grad, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("reverse", [0, 1])
def test_gradients_of_sums_beside_differences(reverse: int) -> None:
    check_gradient(summed((*ROWS, *MIXED), reverse), feeds_of([2, 5, 4]))
    check_gradient(summed(ROWS, reverse, ("new",)), feeds_of([2, 5, 4]), outputs=["product", "x"])


def test_bits_do_not_depend_on_threads() -> None:
    net, feeds = summed((*ROWS, *MIXED)), feeds_of([2, 5, 4])
    feeds = {name: array.astype("float32") if array.dtype.kind == "f" else array for name, array in feeds.items()}
    one, *others = ({n: y.tobytes() for n, y in ro.compile(net, threads=k)(feeds).items()} for k in (1, 2, 3))
    assert all(other == one for other in others)


@pytest.mark.parametrize("device", DEVICES)
def test_no_steps_sum_to_zero(device: str) -> None:
    feeds = {**feeds_of([0, 0, 0]), "xs": np.zeros((0, N, D))}
    outputs, pullback = DEVICES[device](summed(ROWS)).vjp(feeds)
    assert all((outputs[name] == 0).all() for name in ROWS)
    assert pullback({"product": outputs["product"]})["w"].tolist() == np.zeros((D, H)).tolist()


def test_sums_in_a_cell_of_a_recurrence() -> None:
    inner = ro.Net("inner")
    u, s, v = inner.inputs("u", "s", "v")
    new = ro.tanh(u * v + s)
    inner.outputs(s_new=new, total=new * u, column=ro.reduce_sum(u * s, [0], keepdims=0))
    cell = ro.Net("outer")
    x, h, w = cell.inputs("x", "h", "w")
    steps = ro.concat([ro.unsqueeze(x, [0]), ro.unsqueeze(x * x, [0])], axis=0)
    attributes = {"cell": inner.snapshot(), "inputs": ("u",), "references": ("v",), "sums": ("total", "column")}
    states = (("s", "s_new", 1, None, None),)
    found = cell.append(
        "RecurrentNetwork", [steps, h, w], {**attributes, "states": states}, ["", "s", "a", "", "b", ""]
    )
    cell.outputs(h_new=ro.squeeze(found[0], [0]) + found[1] * 0.1, y=found[2] * w)
    net = ro.Net("net")
    xs, h0, _ = net.inputs("xs", "h0", "w")
    _, last, every, _ = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_new"})
    net.outputs(last=last, every=every)
    feeds = random_arrays(xs=(4, N, D), h0=(N, D), w=(D,))
    check_gradient(net, feeds)
    check_devices(net, feeds, {name: run for name, run in RUNS.items() if name != "cuda"})


@pytest.mark.parametrize("device", DEVICES_HERE)
def test_sequences_without_rows(device: str) -> None:
    cell = ro.Net("cell")
    x, weights, scale, h = cell.inputs("x", "weights", "scale", "h")
    new = ro.tanh(x @ weights * scale + h)
    cell.outputs(h_new=new, total=weights * scale)
    net = ro.Net("net")
    given = net.inputs("xs", "weights", "scales", "h0")
    attributes = {"cell": cell.snapshot(), "inputs": ("x", "weights", "scale"), "loose": ("weights", "scale")}
    attributes.update(states=(("h", "h_new", 1, None, None),), sums=("total",))
    last, total = net.append("RecurrentNetwork", given, attributes, ["", "last", "total", ""])
    net.outputs(last=last, total=total)
    feeds = random_arrays(xs=(T, D, D), weights=(T, D, D), scales=(T,), h0=(D, D))  # N = D: the axes are not rows
    check_gradient(net, feeds)
    check_devices(net, feeds, {device: RUNS[device]})
    with pytest.raises(RecurrentError, match="a sequence of another T"):
        ro.compile(net, device="reference")({**feeds, "scales": np.ones(T + 1)})


WRONG = {
    "names no step output": {"sums": ("h_new",)},
    "has no last value": {"names": ["", "", "", "last"]},
    "needs numbers": {"sums": ("flag",)},
    "names no blob of the cell": {"loose": ("h",)},
}


@pytest.mark.parametrize("problem", WRONG)
def test_what_is_said_wrongly_is_an_error(problem: str) -> None:
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_new=x + h, total=x * h, flag=x > h)
    net = ro.Net("net")
    attributes = {"cell": cell.snapshot(), "inputs": ("x",), "states": (("h", "h_new", 1, None, None),)}
    attributes.update({"sums": ("total",), **WRONG[problem]})
    names = [*attributes.pop("names", ["", "y", "", ""]), "", ""]
    net.outputs(*net.append("RecurrentNetwork", net.inputs("xs", "h0"), attributes, names))
    with pytest.raises(ro.ParseError, match=problem):
        ro.parse_net(str(net))


def test_a_sum_in_an_onnx_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx.reference")
    net, feeds = summed((*ROWS, *MIXED), reverse=0), feeds_of([2, 5, 4])
    ro.onnx.export(net, tmp_path / "net.onnx", shapes={n: a.shape for n, a in feeds.items()}, dtype="float64")
    found = onnx.ReferenceEvaluator(str(tmp_path / "net.onnx")).run(None, feeds)
    for array, (name, wanted) in zip(found, ro.compile(net, device="reference")(feeds).items(), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_memory_budget_does_not_cut_a_recurrence_that_sums() -> None:
    feeds = feeds_of([2, 5, 4])
    _, pullback = ro.compile(summed(ROWS), memory_budget=1.0).vjp(feeds)
    assert pullback({"product": np.ones((D, H))})["w"].shape == (D, H)
    with pytest.raises(ro.BudgetError):
        ro.compile(summed(ROWS), memory_budget=0.01).vjp(feeds)
