"""Names of tensors: how they read, and that no name of a blob is taken for that of a tensor or of scratch."""

from __future__ import annotations

import numpy as np
from devices import DEVICES

import rnnops as ro
from rnnops.compiler.lower.scan import Role, TensorName

T, N, D = 5, 3, 4


def test_names_read_as_role_and_blob() -> None:
    assert str(Role.SEQUENCE.of("x")) == "x"
    assert f"{Role.KEPT.of('tanh_0')}" == "kept tanh_0"
    assert Role.STATE.of("h") == TensorName(Role.STATE, "h") != Role.GRADIENT.of("h")


def test_blobs_may_be_called_as_memory_is() -> None:
    """A reference beside a sequence, a state and scratch of the same name but for the role."""
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=shape) for name, shape in {"xs": (T, N, D), "h0": (N, D), "w": (D, D)}.items()}
    for name in ("tensor x", "tensor state h", "state h", "w_float64", "packed0", "order", "x0"):
        cell = ro.Net("cell")
        x, h, w = cell.inputs("x", "h", name)
        cell.outputs(h_t=ro.tanh(x @ w + h @ w))
        net = ro.Net("net")
        xs, h0, w = net.inputs("xs", "h0", "w")
        found = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references={name: w})
        net.outputs(y=found[0])
        ro.testing.check_devices(net, feeds, {"plain": DEVICES["plain"]})


def test_blobs_may_be_called_as_what_the_compiler_makes() -> None:
    """A blob of the cell that is needed beside sums of products, and copies of rows that are not over."""
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=shape) for name, shape in {"xs": (T, N, D), "h0": (N, D), "w": (D, D)}.items()}
    feeds["lengths"] = np.array([5, 3, 2], "int32")
    for name in ("s/products", "x/lasting.0", "h/lasting.1", "x/over.0", "s/products/lasting"):
        cell = ro.Net("cell")
        x, h, w = cell.inputs("x", "h", "w")
        lengths, t = cell.input("lengths", "int32"), cell.input("t", "int32")
        beside = ro.tanh(h).named(name)
        s = (x @ w + h @ w + x).named("s")
        y = ro.tanh(s) * beside + ro.relu(s) * beside
        cell.outputs(h_t=ro.where(ro.unsqueeze(ro.less(t, lengths), [1]), y, h))
        net = ro.Net("net")
        xs, h0, w = net.inputs("xs", "h0", "w")
        references = {"w": w, "lengths": net.input("lengths", "int32")}
        found = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references=references, timestep="t")
        net.outputs(y=found[0])
        ro.testing.check_devices(net, feeds, {"plain": DEVICES["plain"]})
