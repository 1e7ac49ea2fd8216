"""Shape inference and what it folds."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro


def run(net: ro.Net, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    return ro.compile(net, device="reference")(feeds)


def test_omitted_inputs_keep_their_place_when_folding() -> None:
    net = ro.Net("n")
    x = net.inputs("x")
    sizes = ro.clip(net.constant(np.array([1, 5])), max=4)
    net.outputs(y=ro.reshape(x, sizes))
    assert run(net, x=np.zeros((2, 2)))["y"].shape == (1, 4)


def test_shapes_may_be_computed() -> None:
    net = ro.Net("n")
    x, y = net.inputs("x", "y")
    net.outputs(z=ro.reshape(x, ro.shape(y)))
    assert run(net, x=np.zeros((2, 6)), y=np.zeros((3, 4)))["z"].shape == (3, 4)


def test_a_fed_shape_is_a_named_error() -> None:
    net = ro.Net("n")
    x, s = net.inputs("x"), net.input("s", "int64")
    net.outputs(z=ro.reshape(x, s))
    with pytest.raises(ro.TypeRuleError, match=r"net 'n', op 'Reshape.*blob 's'.*must be constant"):
        run(net, x=np.zeros((2, 6)), s=np.array([3, 4]))


def test_backward_keeps_no_blob_for_its_shape() -> None:
    """A reshape to a computed shape runs again on the backward pass from constants."""
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    big = ro.exp(h)
    sizes = ro.concat([ro.gather(ro.shape(big), cell.constant(np.array([0]))), cell.constant(np.array([-1]))], axis=0)
    flat = ro.reshape(ro.tanh(x), sizes).named("flat")
    cell.outputs(h_t=ro.tanh(flat * flat + h))
    net = ro.Net("n")
    xs, h0 = net.inputs("xs", "h0")
    h_all, _ = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, recompute_blobs_on_backward=["flat"])
    net.outputs(y=h_all)
    feeds = {"xs": np.random.default_rng(0).normal(size=(3, 2, 4)), "h0": np.zeros((2, 4))}
    assert ro.testing.check_gradient(net, feeds)


def test_typed_errors_name_net_op_and_blobs() -> None:
    net = ro.Net("model")
    a, b = net.inputs("a", "b")
    net.outputs(c=a + b)
    with pytest.raises(ro.TypeRuleError, match=r"net 'model', op 'Add -> .*a: float64\[2, 3\].*do not broadcast"):
        run(net, a=np.zeros((2, 3)), b=np.zeros((4,)))


def test_sizes_may_be_known_in_a_net_without_dtypes() -> None:
    net = ro.Net("n", sizes_for="float64")
    x, free = net.input("x", shape=(2, 3)), net.input("free")
    y = ro.reshape(x @ net.parameter("w", (3, 4)), [-1])
    assert str(y.type) == "float64[8]"
    assert y.dtype == "float"
    assert (free + y).type is None, "it does not follow"
    net.outputs(y=y)
    feeds = {"x": np.ones((2, 3), "float32"), "free": np.ones(8, "float32"), "w": np.ones((3, 4), "float32")}
    assert run(net, **feeds)["y"].dtype == np.float32
    assert str(net).startswith("net n(x: float[2, 3], free, w: param[3, 4] = xavier)\n")
