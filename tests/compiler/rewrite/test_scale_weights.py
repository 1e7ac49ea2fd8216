"""A BatchNormalization after a convolution is done by the convolution's weights, once they are bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.rewrite.bound_weights import lay_out_weights, scale_weights, split_bound
from rnnops.net.blob import Blob

STATISTICS = ("scale", "shift", "mean", "var")
SHAPES = {"x": (2, 4, 5), "w": (6, 2, 3), "b": (6,), **dict.fromkeys(STATISTICS, (6,))}
BOUND = {name for name in SHAPES if name != "x"}


def model(bias: bool = True, **attributes: float) -> ro.Net:
    net = ro.Net("model")
    x, w, b, *statistics = net.inputs(*SHAPES)
    y = ro.conv(x, w, b if bias else None, kernel_shape=[3], pads=[1, 1], group=2)
    net.outputs(y=ro.relu(ro.batch_normalization(y, *statistics, **attributes)))
    return net


def feeds_of(dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    feeds = {name: random.normal(size=shape).astype(dtype) for name, shape in SHAPES.items()}
    return {**feeds, "var": np.square(feeds["var"]) + feeds["var"].dtype.type(0.1)}


def rewritten(net: ro.Net, bound: set[str]) -> ro.Net:
    return scale_weights(lay_out_weights(net, bound), bound)


def test_the_convolution_does_it() -> None:
    split = split_bound(model(), BOUND)
    assert split is not None
    assert [op.type for op in split.rest if op.type != "Constant"] == ["MatrixConv", "Relu"]


@pytest.mark.parametrize("bound", [{"w", "b"}, {"w", *STATISTICS}, {"b", *STATISTICS}, BOUND - {"var"}])
def test_others_stay(bound: set[str]) -> None:
    """Something that the weights would follow from is not bound."""
    assert "BatchNormalization" in [op.type for op in rewritten(model(), bound).ops]


def of_the_batch(y: Blob, *statistics: Blob) -> Blob:
    result = ro.batch_normalization(y, *statistics, training_mode=1)
    assert isinstance(result, tuple)
    return result[0]


@pytest.mark.parametrize(
    "after",
    [
        of_the_batch,
        lambda y, *statistics: ro.batch_normalization(ro.relu(y), *statistics),
        lambda y, *statistics: ro.batch_normalization(y, *statistics) + y,
    ],
    ids=["statistics of the batch", "something between", "read twice"],
)
def test_other_nets_stay(after: Callable[..., Blob]) -> None:
    net = ro.Net("model")
    x, w, b, *statistics = net.inputs(*SHAPES)
    net.outputs(y=after(ro.conv(x, w, b, kernel_shape=[3], pads=[1, 1], group=2), *statistics))
    laid_out = lay_out_weights(net, BOUND)
    assert scale_weights(laid_out, BOUND) is laid_out
    feeds = feeds_of("float64")
    bound = ro.compile(net).bind(**{name: feeds[name] for name in BOUND})
    wanted = ro.compile(net, device="reference")(feeds)["y"]
    np.testing.assert_allclose(bound(x=feeds["x"])["y"], wanted, rtol=1e-10, atol=1e-10)


def test_a_convolution_that_is_an_output_stays() -> None:
    net = ro.Net("model")
    x, w, b, *statistics = net.inputs(*SHAPES)
    y = ro.conv(x, w, b, kernel_shape=[3], pads=[1, 1], group=2)
    net.outputs(y=y, z=ro.batch_normalization(y, *statistics))
    assert "BatchNormalization" in [op.type for op in rewritten(net, BOUND).ops]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_results_are_the_same(device: str, dtype: str, bias: bool) -> None:
    net, feeds = model(bias, epsilon=0.25), feeds_of(dtype)
    wanted = ro.compile(net, device="reference")(feeds)["y"]
    bound = ro.compile(net, device=device).bind(**{name: feeds[name] for name in feeds if name != "x"})
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for _ in range(3):
        np.testing.assert_allclose(bound(x=feeds["x"])["y"], wanted, rtol=tolerance, atol=tolerance)
