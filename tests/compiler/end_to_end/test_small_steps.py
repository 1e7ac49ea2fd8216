"""Steps so small that LLVM makes them part of the loop over time: one step still reads what the one before wrote."""

from __future__ import annotations

import numpy as np
import pytest
from devices import DEVICES
from scan_cases import recurrent

import rnnops as ro

T = 40


@pytest.mark.parametrize("window", [1, 3])
def test_every_step_sees_the_one_before(window: int) -> None:
    """One number a step: `h = 0.5 h' + sign(h') / 5`, which LLVM would gladly compute four steps at a time."""
    cell = ro.Net("small")
    h = cell.input("h")
    last = h if window == 1 else ro.squeeze(ro.slice(h, [-1], [9], [0]), [0])
    cell.outputs(h_t=last * 0.5 + ro.sign(last) * 0.2)
    net = recurrent(cell, {}, {"h": ro.Link("h_t", window=window)}, steps=T)
    h0 = np.full((window, 1, 1), 0.9)
    out, pullback = DEVICES["cpu"](net).vjp(h0=h0)
    wanted = [0.9]
    for _ in range(T):
        wanted.append(wanted[-1] * 0.5 + 0.2)
    np.testing.assert_allclose(out["h_t_all"].reshape(-1), wanted[1:], rtol=1e-14)
    grad = pullback({"h_t_last": np.ones((1, 1, 1))})["h0"]
    np.testing.assert_allclose(grad[-1], 0.5**T, rtol=1e-12)


def test_rings_that_are_found_wrong_one_after_another() -> None:
    """Backward, the gradients of both states turn out to need all steps, the second when the first has them."""
    cell = ro.Net("pair")
    x, _, b, w = cell.inputs("x", "a", "b", "w")
    cell.outputs(a_t=ro.tanh(x - b * 0.5), b_t=ro.tanh(x), o=ro.tanh(b @ w))
    net = ro.Net("outer")
    xs, a0, b0, w = net.inputs("xs", "a0", "b0", "w")
    found = ro.recurrent_net(
        net, cell, [("x", xs)], [("a", a0), ("b", b0)], {"a": "a_t", "b": "b_t"}, references={"w": w}
    )
    net.outputs(**{f"y{i}": blob for i, blob in enumerate(found)})
    random = np.random.default_rng(0)
    shapes = {"xs": (4, 3, 2), "a0": (3, 2), "b0": (3, 2), "w": (2, 2)}
    feeds = {name: random.normal(size=shape) for name, shape in shapes.items()}
    ro.testing.check_devices(net, feeds, DEVICES)
