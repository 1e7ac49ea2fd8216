"""`precision=` of `ro.compile`: what it means on the reference device, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rounding import as_bfloat16, assert_rounded_alike

import rnnops as ro
from rnnops.errors import DeviceError

Array = Any
T, N, D, H = 5, 3, 6, 7
SHAPES = {"xs": (T, N, D), "h0": (N, H), "w_x": (D, H), "w_h": (H, H), "b": (H,)}
FEEDS = {
    name: np.random.default_rng(i).standard_normal(shape).astype(np.float32) * np.float32(0.5)
    for i, (name, shape) in enumerate(SHAPES.items())
}
DY = np.random.default_rng(99).standard_normal((T, N, H)).astype(np.float32)


def tanh_net() -> ro.Net:
    cell = ro.Net("cell")
    x, h, w_x, w_h, b = cell.inputs("x_t", "h_prev", "w_x", "w_h", "b")
    cell.outputs(h_t=ro.tanh(x @ w_x + h @ w_h + b))
    net = ro.Net("net")
    xs, h0 = net.inputs("xs", "h0")
    links = {"h_prev": "h_t"}
    h_all, _ = ro.recurrent_net(net, cell, inputs=[("x_t", xs)], initial_cell_inputs=[("h_prev", h0)], links=links)
    net.outputs(y=h_all)
    return net


def by_hand() -> tuple[Array, dict[str, Array]]:
    """The same in float64, operands of each product rounded."""
    given = {name: x.astype(np.float64) for name, x in FEEDS.items()}
    q, w_x, w_h = as_bfloat16, as_bfloat16(given["w_x"]), as_bfloat16(given["w_h"])
    states = [given["h0"]]
    for x in given["xs"]:
        states.append(np.tanh(q(x) @ w_x + q(states[-1]) @ w_h + given["b"]))
    grads = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    dh = np.zeros((N, H))
    for t in reversed(range(T)):
        dz = (DY[t] + dh) * (1 - states[t + 1] ** 2)
        grads["xs"][t], dh = q(dz) @ w_x.T, q(dz) @ w_h.T
        grads["w_x"] += q(given["xs"][t]).T @ q(dz)
        grads["w_h"] += q(states[t]).T @ q(dz)
        grads["b"] += dz.sum(0)
    return np.array(states[1:]), {**grads, "h0": dh}


def test_reference_rounds_operands_of_products_alone() -> None:
    """Forward, backward and weight gradients, beside float64 by hand."""
    out, pullback = ro.compile(tanh_net(), "reference", precision="bfloat16").vjp(FEEDS)
    exact, exact_pullback = ro.compile(tanh_net(), "reference").vjp(FEEDS)
    wanted, grads = by_hand()
    assert_rounded_alike(out["y"], wanted, exact["y"])
    found, unrounded = pullback(DY), exact_pullback(DY)
    for name, grad in grads.items():
        assert_rounded_alike(found[name], grad, unrounded[name])


def test_float32_is_no_rounding() -> None:
    out = ro.compile(tanh_net(), "reference", precision="float32")(FEEDS)
    assert np.array_equal(out["y"], ro.compile(tanh_net(), "reference")(FEEDS)["y"])


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_bound_parameters_are_rounded_as_well(device: str) -> None:
    run = ro.compile(tanh_net(), device, precision="bfloat16")
    weights = {name: FEEDS[name] for name in ("w_x", "w_h", "b")}
    bound = run.bind(**weights)
    for _ in range(2):  # packed at the first call
        assert np.array_equal(bound(xs=FEEDS["xs"], h0=FEEDS["h0"])["y"], run(FEEDS)["y"])


def test_the_net_stays_as_it_was() -> None:
    net = tanh_net()
    before = str(net)
    assert str(ro.compile(net, "reference", precision="bfloat16").net) == str(net) == before


@pytest.mark.parametrize("precision", ["double", 16, None, "bfloat16 "])
def test_no_such_precision(precision: Any) -> None:
    with pytest.raises(DeviceError, match=r"no such precision; wanted float32 or bfloat16 or float16 or tfloat32"):
        ro.compile(tanh_net(), "reference", precision=precision)


@pytest.mark.parametrize("precision", ["tfloat32", "float16"])
def test_precisions_that_processors_have_not(precision: str) -> None:
    said = rf"net 'net': device 'cpu' does not .* wanted float32 or bfloat16; got '{precision}'. CUDA devices multi"
    with pytest.raises(DeviceError, match=said):
        ro.compile(tanh_net(), "cpu", precision=precision)


def test_float64_is_an_error() -> None:
    """Calls, `vjp`, plans and estimates, before anything is computed."""
    run = ro.compile(tanh_net(), "reference", precision="bfloat16")
    feeds = {name: x.astype(np.float64) for name, x in FEEDS.items()}
    for call in (run, run.vjp, run.plan, run.memory_estimates):
        with pytest.raises(
            DeviceError, match=r"net 'net': precision='bfloat16' .* wanted feeds of float32; got float64"
        ):
            call(feeds)
