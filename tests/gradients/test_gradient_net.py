"""Gradient nets of recurrences: the bits of `run.vjp` on the reference device, and second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda
from devices import DEVICES
from random_feeds import random_feeds

import rnnops as ro
from rnnops.cells import CELLS
from rnnops.cells.attention import ATTENTION_TYPES
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.c99 import C99
from rnnops.testing import check_gradient
from rnnops.testing.gradient_check import rotation

Array = np.ndarray
Nets = dict[str, Callable[[], tuple[ro.Net, dict[str, Any]]]]
SEED = 3
LENGTHS = np.array([5, 3], np.int32)


def preset(name: str, **options: Any) -> tuple[ro.Net, dict[str, Any]]:
    net = ro.Net(name)
    states = getattr(ro, name)(net, net.input("x"), net.input("lengths", "int32"), None, 3, 4, **options)
    net.outputs(y=states[0], last=states[-1])
    return net, {"x": (5, 2, 3), "lengths": LENGTHS}


def coupled(**options: Any) -> tuple[ro.Net, dict[str, Any]]:
    """A state with rows, and one without in its initial value."""

    @ro.cell
    def cell(x, h, c, *, w_x, w_h, b):
        keep, out, new = ro.split((x @ w_x + h @ w_h + b).named("gates"), 3, axis=-1)
        keep = ro.sigmoid(keep)
        c = keep * c + (1 - keep) * np.tanh(new)
        return {"h": ro.sigmoid(out) * np.tanh(c), "c": c, "y": out * h}

    net = ro.Net("coupled")
    xs, h0, c0 = net.inputs("xs", "h0", "c0")
    last, steps = ro.scan(cell, xs, h=h0, c=c0, **options)
    net.outputs(y=steps["y"] if isinstance(steps, dict) else steps, c=last["c"])
    return net, {"xs": (4, 2, 3), "h0": (2, 4), "c0": (4,), "w_x": (3, 12), "w_h": (4, 12), "b": (12,)}


def window(length: int, size: int, offset: int | None, reverse: bool = False) -> tuple[ro.Net, dict[str, Any]]:
    cell = ro.Net("cell")
    x, seen, v = cell.inputs("x", "seen", "v")
    cell.outputs(y=ro.tanh(x + (ro.reduce_sum(seen * seen, [0], keepdims=0) if size > 1 else seen * seen) * v))
    net = ro.Net("window")
    xs, h0 = net.inputs("xs", "h0")
    links = {"seen": ro.Link("y", window=size, offset=offset)}
    y, last = ro.recurrent_net(net, cell, [("x", xs)], [("seen", h0)], links, reverse=reverse)
    net.outputs(y=y, last=last)
    return net, {"xs": (6, 2, 3), "h0": (length, 2, 3), "v": (3,)}


def dropped() -> tuple[ro.Net, dict[str, Any]]:
    @ro.cell
    def cell(x, h, *, w):
        return {"h": np.tanh(ro.dropout(x + h @ w, 0.4) + ro.random_uniform_like(h) * h)}

    net = ro.Net("dropped")
    xs, h0 = net.inputs("xs", "h0")
    _, steps = ro.scan(cell, xs, h=h0)
    net.outputs(y=ro.dropout(steps["h"], 0.3))
    return net, {"xs": (5, 2, 3), "h0": (2, 3), "w": (3, 3)}


def nested() -> tuple[ro.Net, dict[str, Any]]:
    """A recurrence in a cell, all steps and the last state of which are read."""

    @ro.cell
    def inner(u, s, *, a):
        return {"s": np.tanh(u + s * a)}

    @ro.cell
    def outer(x, h, *, w, a):
        seen = ro.reshape(x + h @ w, [1, 2, 4])
        last, every = ro.scan(inner, ro.concat([seen, seen * 0.5, seen * seen], axis=0), s=h, a=a)
        return {"h": last["s"] + every["s"][1]}

    net = ro.Net("nested")
    xs, h0 = net.inputs("xs", "h0")
    _, steps = ro.scan(outer, xs, h=h0)
    net.outputs(y=steps["h"])
    return net, {"xs": (4, 2, 4), "h0": (2, 4), "w": (4, 4), "a": (4,)}


NETS: Nets = {
    "LSTM": lambda: preset("LSTM"),
    "GRU": lambda: preset("GRU"),
    "LayerNormLSTM": lambda: preset("LayerNormLSTM"),
    "coupled": coupled,
    "backwards": lambda: coupled(reverse=True),
    "recomputed": lambda: coupled(recompute=["gates"]),
    "window of 2 of 3": lambda: window(3, 2, 1),
    "window from the first": lambda: window(4, 2, 0),
    "window of all": lambda: window(3, 3, None),
    "window backwards": lambda: window(3, 2, 0, True),
    "delayed": lambda: window(3, 1, 0),
    "dropped": dropped,
    "nested": nested,
}


def of_cell(name: str) -> tuple[ro.Net, dict[str, Any]]:
    net = ro.Net(name)
    y, _ = CELLS[name](8, 8, name="cell").apply_over_sequence(net, net.input("x"), net.input("lengths", "int32"))
    net.outputs(y=y)
    return net, {**ro.init_params(net, 1, "float64"), "x": (4, 2, 8), "lengths": np.array([4, 2], np.int32)}


def of_attention(kind: str) -> tuple[ro.Net, dict[str, Any]]:
    net = ro.Net("attention")
    x, encoder = net.inputs("x", "encoder")
    lengths, ends = net.input("lengths", "int32"), net.input("ends", "int32")
    decoder = ro.cells.DropoutCell(ro.cells.LSTMCell(3, 4, name="decoder"), 0.3)
    cell = ro.cells.AttentionCell(5, encoder, ends, decoder, 4, kind, name="att")
    y, states = cell.apply_over_sequence(net, x, lengths)
    net.outputs(y=y, **{f"s{i}": state for i, state in enumerate(states)})
    given = {"lengths": np.array([3, 2], np.int32), "ends": np.array([1, 3], np.int32)}
    return net, {"x": (3, 2, 3), "encoder": (3, 2, 5), **given}


EVERY_CELL: Nets = {
    **{name: partial(of_cell, name) for name in CELLS},
    **{f"attention {kind}": partial(of_attention, kind) for kind in ATTENTION_TYPES},
}
OTHER_ORDER = {"window of 2 of 3", "window from the first", "window of all", "window backwards"}  # of sums of gradients
OTHER_ORDER |= {"GRU", "gru", "rwkv7"}  # in a cell
SURROGATES = ("lif", "alif")  # whose gradients are no derivatives


def output_grads(outputs: dict[str, Array]) -> dict[str, Array]:
    return {name: rotation(array.shape, 10 * i).astype(array.dtype) for i, (name, array) in enumerate(outputs.items())}


def shapes_of(feeds: dict[str, Array]) -> dict[str, Any]:
    return {name: array.shape for name, array in feeds.items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NETS)
def test_as_vjp(name: str, device: str) -> None:
    assert_as_vjp(name, *NETS[name](), device)


@pytest.mark.parametrize("name", EVERY_CELL)
def test_every_cell_as_vjp(name: str) -> None:
    assert_as_vjp(name, *EVERY_CELL[name](), "reference")


def assert_as_vjp(name: str, net: ro.Net, given: dict[str, Any], device: str) -> None:
    feeds = random_feeds(net, **given)
    outputs, pullback = ro.compile(net, device="reference").vjp(feeds, seed=SEED)
    grads = output_grads(outputs)
    wanted = pullback(grads)
    run = DEVICES[device](ro.gradient_net(net, **shapes_of(feeds)))
    found = run(feeds, {f"d_{n}": grad for n, grad in grads.items()}, seed=SEED, training=True)
    for n, grad in wanted.items():
        if device == "reference" and name not in OTHER_ORDER:
            np.testing.assert_array_equal(found[f"d_{n}"], grad, err_msg=n)
        np.testing.assert_allclose(found[f"d_{n}"], grad, rtol=1e-12, atol=1e-12, err_msg=n)


@pytest.mark.parametrize("name", NETS)
def test_second_derivatives_beside_differences(name: str) -> None:
    """By run.vjp of the gradient net, and by its own gradient net on every device."""
    net, given = NETS[name]()
    feeds = random_feeds(net, **given)
    first = ro.gradient_net(net, **shapes_of(feeds))
    feeds.update({spec.name: rotation(spec.shape or ()) for spec in first.input_specs if spec.name not in feeds})
    outputs = [n for n in first.output_blobs if n.startswith("d_")]
    check_gradient(first, feeds, outputs=outputs, seed=SEED, sample=3)
    _, pullback = ro.compile(first, device="reference").vjp(feeds, seed=SEED)
    second = ro.gradient_net(first, outputs=outputs, **shapes_of(feeds))
    grads = {
        n: rotation(spec.shape) for n, spec in {s.name: s for s in second.input_specs}.items() if n.startswith("d2_")
    }
    wanted = pullback({n.removeprefix("d2_"): grad for n, grad in grads.items()})
    for device, run in DEVICES.items():
        found = run(second)(feeds, grads, seed=SEED, training=True)
        for n, grad in wanted.items():
            np.testing.assert_allclose(found[f"d2_{n}"], grad, rtol=1e-11, atol=1e-11, err_msg=f"{device} {n}")


IN_CI = {  # one cell of each kind; CI differentiates every op twice by itself
    *("cfc", "gated_delta_product", "lmu", "mlstm", "ntm", "qrnn", "rwkv7", "s5", "slstm", "sru", "ttt_linear"),
    *("attention regular", "attention soft_coverage"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in IN_CI else pytest.mark.slow) for n in EVERY_CELL if n not in SURROGATES],
)
def test_second_derivatives_of_every_cell(name: str) -> None:
    net, given = EVERY_CELL[name]()
    feeds = random_feeds(net, **given)
    first = ro.gradient_net(net, **shapes_of(feeds))
    feeds.update({spec.name: rotation(spec.shape or ()) for spec in first.input_specs if spec.name not in feeds})
    outputs = [n for n in first.output_blobs if n.startswith("d_")]
    check_gradient(first, feeds, outputs=outputs, seed=SEED, sample=1, step=1e-6, tolerance=3e-5)


def test_a_third_derivative() -> None:
    net, given = coupled()
    feeds = random_feeds(net, **given)
    for prefix in ("d_", "d2_"):
        outputs = None if prefix == "d_" else ["d_h0"]
        net = ro.gradient_net(net, wrt=["h0", "w_h"], outputs=outputs, **shapes_of(feeds))
        feeds.update({spec.name: rotation(spec.shape or ()) for spec in net.input_specs if spec.name not in feeds})
    check_gradient(net, feeds, outputs=["d2_h0", "d2_w_h"], wrt=["h0", "w_h", "xs"], sample=2)


def test_it_is_a_net_like_any_other(tmp_path: Path) -> None:
    net, given = coupled()
    gradient = ro.gradient_net(net, **shapes_of(random_feeds(net, **given)))
    assert str(ro.parse_net(str(gradient))) == str(gradient)
    plan = ro.compile(gradient, threads=1).plan(backward=False)
    assert "summed over steps and rows by products of whole tiles" in str(plan)
    assert plan.draw_net().svg
    assert ro.compile(gradient, threads=1).export_native(tmp_path, source="c99").header.exists()


def test_chosen_inputs_and_outputs() -> None:
    net, given = coupled()
    shapes = shapes_of(random_feeds(net, **given))
    gradient = ro.gradient_net(net, wrt="w_h", outputs=["c"], **shapes)
    assert list(gradient.output_blobs) == ["y", "c", "d_w_h"]
    assert [name for name in gradient.input_names if name.startswith("d_")] == ["d_c"]
    for float_dtype in ("float32", "float64"):
        feeds = {n: a.astype(float_dtype) for n, a in random_feeds(net, **given).items()}
        assert ro.compile(gradient)(feeds, d_c=np.ones((2, 4), float_dtype))["d_w_h"].dtype == float_dtype


def test_nan_in_padding_reaches_no_gradient() -> None:
    for name in ("LSTM", "LayerNormLSTM", "GRU"):
        net, given = preset(name)
        feeds = random_feeds(net, **given)
        first = ro.gradient_net(net, **shapes_of(feeds))
        feeds.update({spec.name: rotation(spec.shape or ()) for spec in first.input_specs if spec.name not in feeds})
        feeds["x"][3:, 1] = np.nan
        outputs = [n for n in first.output_blobs if n.startswith("d_")]
        for device in ("reference", "cpu"):
            found, pullback = ro.compile(first, device=device).vjp(feeds)
            second = pullback({n: np.ones_like(found[n]) for n in outputs})
            assert all(np.isfinite(array).all() for array in (*(found[n] for n in outputs), *second.values()))


def restricted() -> ro.Net:
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_new=x * h, other=x + h)
    net = ro.Net("net")
    xs, h0 = net.inputs("xs", "h0")
    results = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_new"}, outputs_with_grads=["other_all"])
    net.outputs(h=results[0], other=results[2])
    return net


def test_outputs_that_take_no_gradient() -> None:
    shapes = {"xs": (3, 2, 1), "h0": (2, 1)}
    for outputs in (None, "other", ["other"]):
        assert ro.gradient_net(restricted(), outputs=outputs, **shapes).input_names == ("xs", "h0", "d_other")
    with pytest.raises(ro.GradientError, match="takes no gradient"):
        ro.gradient_net(restricted(), outputs=["h"], **shapes)
    for wrong in (["x"], "x", 5):
        with pytest.raises(ro.GradientError, match="outputs names no float output"):
            ro.gradient_net(restricted(), outputs=wrong, **shapes)
    with pytest.raises(ro.FeedError, match="wrt names no float input"):
        ro.gradient_net(restricted(), wrt="y", **shapes)
    with pytest.raises(ro.FeedError, match="an input is left out"):
        ro.gradient_net(restricted(), xs=(3, 2, 1))
    with pytest.raises(ro.NetError, match="no outputs"):
        ro.gradient_net(ro.Net("empty"))


@pytest.mark.parametrize("name", ["LSTM", "coupled", "window of 2 of 3"])
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=on_cuda), "c99"])
def test_on_other_devices(device: str, name: str) -> None:
    net, given = NETS[name]()
    feeds = random_feeds(net, **given)
    gradient = ro.gradient_net(net, **shapes_of(feeds))
    feeds.update({spec.name: rotation(spec.shape or ()) for spec in gradient.input_specs if spec.name not in feeds})
    tuning = Options(device=C99(), tile=2, around="all")
    run = ro.compile(gradient, "cuda") if device == "cuda" else ro.compile(gradient, "cpu", tuning=tuning)
    found = run(feeds)
    for n, wanted in ro.compile(gradient, device="reference")(feeds).items():
        np.testing.assert_allclose(found[n], wanted, rtol=1e-11, atol=1e-11, err_msg=n)


def test_parameters_keep_their_initializers() -> None:
    net = ro.Net("net")
    net.outputs(y=net.input("x") @ net.parameter("w", (3, 3), ("xavier", 3)))
    wanted = ro.init_params(net, 0)["w"]
    for derived in (ro.gradient_net(net, x=(2, 3)), ro.tangent_net(net, x=(2, 3))):
        np.testing.assert_array_equal(ro.init_params(derived, 0)["w"], wanted)
