"""Step outputs that are a state as each step read it: beside a loop, with gradients, and not stored a second time."""

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
from rnnops.checkpoints import Slots
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.c99 import C99
from rnnops.testing import check_gradient

T, N, D = 5, 3, 2
Arrays = dict[str, np.ndarray]
Sight = tuple[int, int, int]  # initial steps, window, offset
SIGHTS: dict[str, Sight] = {"one": (1, 1, 0), "delayed": (3, 1, 1), "window": (2, 2, 0), "part": (4, 2, 1)}


def seen_net(sight: Sight, reverse: bool, lengths: bool = True, outputs: tuple[str, ...] | None = None) -> ro.Net:
    """A net whose cell gives each step of a state that it saw, as `before0`, `before1` and so on."""
    _, window, offset = sight
    cell = ro.Net("cell")
    x, seen, w = cell.inputs("x", "seen", "w")
    steps = [seen[j] for j in range(window)] if window > 1 else [seen]
    new = ro.tanh(x @ w + steps[0] * steps[-1])
    if lengths:
        ends, t = cell.input("lengths", "int32"), cell.input("t", "int32")
        new = ro.select_valid(new, steps[-1], ends, t)
    cell.outputs(h=new, **{f"before{j}": step for j, step in enumerate(steps)})
    net = ro.Net("net")
    xs, h0, w = net.inputs("xs", "h0", "w")
    shared = {"references": {"w": w}}
    if lengths:
        shared = {"references": {"w": w, "lengths": net.input("lengths", "int32")}, "timestep": "t"}
    links = {"seen": ro.Link("h", window=window, offset=offset)}
    results = ro.recurrent_net(net, cell, [("x", xs)], [("seen", h0)], links, reverse=reverse, **shared)
    named = {blob.name: blob for blob in results}
    net.outputs(**{name: named[name] for name in outputs or named})
    return net


def by_hand(sight: Sight, reverse: bool, xs: Any, h0: Any, w: Any, lengths: Any) -> Arrays:
    _, window, offset = sight
    held, found = list(h0), {}
    for k in range(T):
        t = T - 1 - k if reverse else k
        steps = held[k + offset : k + offset + window]
        new = np.where((t < lengths)[:, None], np.tanh(xs[t] @ w + steps[0] * steps[-1]), steps[-1])
        held.append(new)
        found[t] = [new, *steps]
    names = ["h", *(f"before{j}" for j in range(window))]
    every = {f"{name}_all": np.stack([found[t][i] for t in range(T)]) for i, name in enumerate(names)}
    return {**every, **{name.replace("all", "last"): a[:1] if reverse else a[-1:] for name, a in every.items()}}


def feeds_of(sight: Sight) -> Arrays:
    h0 = random_arrays(h0=(sight[0], N, D))
    return {**random_arrays(xs=(T, N, D), w=(D, D)), **h0, "lengths": np.array([5, 2, 4], np.int32)}


RUNS: dict[str, Callable[[ro.Net], ro.Run]] = {
    **DEVICES,
    "c99": lambda net: ro.compile(net, "cpu", tuning=Options(device=C99(), tile=2, around="all")),
    "slots": lambda net: ro.compile(net, "cpu", checkpoints=Slots(2)),
    "interpreted slots": lambda net: ro.compile(net, "reference", checkpoints=Slots(2, steps=2)),
    "budget": lambda net: ro.compile(net, "cpu", memory_budget=0.6),
    "cuda": lambda net: ro.compile(net, "cuda"),
}
DEVICES_HERE = [pytest.param(name, marks=on_cuda if name == "cuda" else ()) for name in RUNS]


@pytest.mark.covering(2)
@pytest.mark.parametrize("device", DEVICES_HERE)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sight", SIGHTS)
def test_values_and_gradients(sight: str, reverse: bool, device: str) -> None:
    net, feeds = seen_net(SIGHTS[sight], reverse), feeds_of(SIGHTS[sight])
    wanted, run = by_hand(SIGHTS[sight], reverse, **feeds), RUNS[device](net)
    outputs, pullback = run.vjp(feeds)
    for found in (run(feeds), outputs):
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-12, atol=1e-12, err_msg=name)
    given = {name: np.cos(array) for name, array in outputs.items()}
    grads, reference = pullback(given), ro.compile(net, "reference").vjp(feeds)[1](given)
    for name, grad in reference.items():
        np.testing.assert_allclose(grads[name], grad, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sight", SIGHTS)
def test_gradients_beside_differences(sight: str, reverse: bool) -> None:
    net, feeds = seen_net(SIGHTS[sight], reverse), feeds_of(SIGHTS[sight])
    check_gradient(net, feeds)
    shapes = {name: array.shape for name, array in feeds.items()}
    first = ro.gradient_net(net, outputs=["before0_all"], **shapes)
    check_gradient(first, {**feeds, "d_before0_all": np.cos(feeds["xs"])}, outputs=["d_xs", "d_w", "d_h0"], sample=3)


@pytest.mark.parametrize("names", [("before0_all",), ("before0_last",), ("before0_all", "before0_last")])
@pytest.mark.parametrize("device", DEVICES)
def test_they_are_read_alone(device: str, names: tuple[str, ...]) -> None:
    for sight in SIGHTS.values():
        wanted, feeds = by_hand(sight, False, **feeds_of(sight)), feeds_of(sight)
        for name, array in DEVICES[device](seen_net(sight, False, True, names))(feeds).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_vector_is_where_all_rows_begin() -> None:
    net = seen_net(SIGHTS["one"], False)
    feeds = {**feeds_of(SIGHTS["one"]), "h0": np.array([0.5, -1.0])}
    for device in DEVICES.values():
        assert device(net)(feeds)["before0_all"][0].tolist() == [[0.5, -1.0]] * N


@pytest.mark.parametrize("device", DEVICES)
def test_no_steps_are_none(device: str) -> None:
    net = seen_net(SIGHTS["one"], False, False, ("before0_all",))
    feeds = {**feeds_of(SIGHTS["one"]), "xs": np.zeros((0, N, D))}
    del feeds["lengths"]
    assert DEVICES[device](net)(feeds)["before0_all"].shape == (0, N, D)


def test_they_have_no_memory_of_their_own() -> None:
    big = {"xs": (100, 8, 64), "h0": (1, 8, 64), "w": (64, 64)}
    tables = []
    for names in (("h_all",), ("before0_all",)):
        net = seen_net(SIGHTS["one"], False, False, names)
        tables.append(ro.compile(net, threads=1).plan(big, backward=False).memory())
        assert not any("output before0" in row.what for row in tables[-1].forward.rows)
    assert tables[0].total == tables[1].total


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_outputs_of_a_run_do_not_overlap(device: str) -> None:
    net = seen_net(SIGHTS["one"], False, True, ("h_all", "before0_all"))
    run, feeds = DEVICES[device](net), feeds_of(SIGHTS["one"])
    bound = run.bind(w=feeds.pop("w"))
    for _ in range(3):
        found = bound(feeds)
        assert not np.shares_memory(found["h_all"], found["before0_all"])
        np.testing.assert_array_equal(found["h_all"][:-1], found["before0_all"][1:])
        found["h_all"][...] = 0
        assert found["before0_all"].any()


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "window"])
def test_a_gradient_net_takes_the_memory_of_vjp(cell: str) -> None:
    shapes: dict[str, Any] = {"x": (100, 8, 64)}
    if cell == "window":
        net = seen_net((3, 3, 0), False, False, ("h_all",))
        shapes = {"xs": shapes["x"], "h0": (3, 8, 64), "w": (64, 64)}
    else:
        net = ro.Net(cell)
        net.outputs(y=getattr(ro, cell)(net, net.input("x"), None, None, 64, 64)[0])
        shapes.update({name: array.shape for name, array in ro.init_params(net, 0).items()})
    kept = ro.compile(net, threads=1).plan(shapes).memory().total
    twin = ro.compile(ro.gradient_net(net, **shapes), threads=1)
    assert twin.plan(backward=False).memory().total < 1.03 * kept


def test_the_text_of_a_gradient_net_reads_the_same_steps() -> None:
    net = seen_net(SIGHTS["window"], True)
    shapes = {name: array.shape for name, array in feeds_of(SIGHTS["window"]).items()}
    twin = ro.parse_net(str(ro.gradient_net(net, **shapes)))
    plans = [
        ro.compile(one, threads=1).plan(backward=False).memory().total for one in (twin, ro.gradient_net(net, **shapes))
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sight", ["delayed", "part"])
def test_a_pullback_has_their_steps(sight: str, device: str) -> None:
    feeds = feeds_of(SIGHTS[sight])
    outputs, pullback = DEVICES[device](seen_net(SIGHTS[sight], True)).vjp(feeds)
    for name in ("h", "before0"):
        np.testing.assert_array_equal(pullback.step_blobs(name), outputs[f"{name}_all"])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sight", SIGHTS)
def test_files_of_onnx_have_them(sight: str, reverse: bool, tmp_path: Path) -> None:
    feeds = {name: array for name, array in feeds_of(SIGHTS[sight]).items() if name != "lengths"}
    net = seen_net(SIGHTS[sight], reverse, False)
    shapes = {name: array.shape for name, array in feeds.items()}
    for one in (net, ro.gradient_net(net, outputs=["h_all"], **shapes)):
        given = {**feeds, **{spec.name: np.cos(feeds["xs"]) for spec in one.input_specs if spec.name not in feeds}}
        kinds = {name: array.astype("float32") for name, array in given.items()}
        ro.onnx.export(one, tmp_path / "net.onnx", shapes={name: array.shape for name, array in given.items()})
        wanted, found = ro.compile(one)(kinds), ro.compile(ro.onnx.load(tmp_path / "net.onnx"))(kinds)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6, err_msg=name)
