"""What is made of bound weights for products is written out, so that it is made when they are bound."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.rewrite.bound_weights import lay_out_weights, split_bound


def model() -> ro.Net:
    net = ro.Net("model")
    x, w, v, b = net.inputs("x", "w", "v", "b")
    y = ro.conv(x, w * 2.0, b, kernel_shape=[3], pads=[1, 1], group=2)
    net.outputs(y=ro.gemm(ro.flatten(y), v, transB=1, alpha=0.5))
    return net


def test_weights_are_matrices_once() -> None:
    net = lay_out_weights(model(), {"w", "v", "b"})
    assert [op.type for op in net.ops] == [
        "Constant",
        "Mul",
        "ConvMatrix",
        "MatrixConv",
        "Flatten",
        "Transpose",
        "Gemm",
    ]
    split = split_bound(model(), {"w", "v", "b"})
    assert split is not None
    assert [op.type for op in split.rest if op.type != "Constant"] == ["MatrixConv", "Flatten", "Gemm"]


def test_weights_that_are_constants_are_laid_out() -> None:
    net = ro.Net("constant")
    x, w = net.input("x"), net.constant(np.ones((2, 3, 3)))
    net.outputs(y=ro.conv(x, w * 2.0, kernel_shape=[3]))
    split = split_bound(net, set())
    assert split is not None
    assert [op.type for op in split.rest if op.type != "Constant"] == ["MatrixConv"]
    once = {name: np.ones((9, 2), "float32") for name in split.once.output_blobs}
    rest, bound = split.with_bound(once)
    assert not bound, "a small array that nothing is bound for is a constant as before"
    assert rest.input_names == ("x",)


def test_others_stay() -> None:
    net = model()
    assert lay_out_weights(net, {"x", "b"}) is net
    plain = ro.Net("plain")
    x, w, v = plain.inputs("x", "w", "v")
    plain.outputs(ro.conv(x, w), ro.gemm(x, v))
    assert lay_out_weights(plain, {"w", "v"}) is plain  # sizes of the kernel are not told, v is as it is read


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_results_are_the_same(device: str) -> None:
    random, net = np.random.default_rng(1), model()
    shapes = {"x": (2, 4, 5), "w": (6, 2, 3), "v": (7, 30), "b": (6,)}
    feeds = {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    wanted = ro.compile(net, device="reference")(feeds)["y"]
    bound = ro.compile(net, device=device).bind(**{name: feeds[name] for name in ("w", "v", "b")})
    np.testing.assert_allclose(bound(x=feeds["x"])["y"], wanted, rtol=1e-5, atol=1e-5)


def test_the_kernel_follows_from_declared_weights() -> None:
    net = ro.Net("n")
    net.outputs(y=ro.conv(net.input("x"), net.parameter("w", (4, 3, 5)), pads=[2, 2]))
    split = split_bound(net, {"w"})
    assert split is not None
    assert [op.type for op in split.rest if op.type != "Constant"] == ["MatrixConv"]
    x, params = np.random.default_rng(0).normal(size=(2, 3, 7)).astype("f"), ro.init_params(net, 0)
    wanted = ro.compile(net, device="reference")(params, x=x)["y"]
    np.testing.assert_allclose(ro.compile(net).bind(**params)(x=x)["y"], wanted, 1e-5, 1e-5)
