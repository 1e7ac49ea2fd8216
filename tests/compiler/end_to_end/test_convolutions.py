"""Convolutions in cells and around recurrences: compiled, and the same as the reference says, gradients too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.testing import check_devices, check_gradient

C, H, SIZES = 2, 3, (4, 3)
RANDOM = np.random.default_rng(0)


def conv_lstm() -> ro.Net:
    """An LSTM whose products are convolutions over an image."""
    cell = ro.Net("conv_lstm")
    x, h, c = cell.inputs("x", "h", "c")
    w, u, b = (cell.parameter(*each) for each in (("w", (4 * H, C, 3, 3)), ("u", (4 * H, H, 3, 3)), ("b", (4 * H,))))
    gates = ro.conv(x, w, b, pads=[1] * 4) + ro.conv(h, u, pads=[1] * 4)
    i, f, o, z = ro.split(gates, 4, axis=1)
    c_t = ro.sigmoid(f) * c + ro.sigmoid(i) * ro.tanh(z)
    cell.outputs(h_t=ro.sigmoid(o) * ro.tanh(c_t), c_t=c_t)
    net = ro.Net("video")
    xs, h0, c0 = net.inputs("xs", "h0", "c0")
    found = ro.recurrent_net(
        net, cell, inputs=[("x", xs)], initial_cell_inputs=[("h", h0), ("c", c0)], links={"h": "h_t", "c": "c_t"},
        state_shapes={"h": (H, *SIZES), "c": (H, *SIZES)},
    )  # fmt: skip
    net.outputs(y=found[0])
    return net


def feeds(rows: int) -> dict[str, Any]:
    shapes = {"xs": (3, rows, C, *SIZES), "h0": (rows, H, *SIZES), "c0": (rows, H, *SIZES)}
    shapes |= {"w": (4 * H, C, 3, 3), "u": (4 * H, H, 3, 3), "b": (4 * H,)}
    return {name: RANDOM.normal(size=shape) * 0.5 for name, shape in shapes.items()}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_convolution_in_a_cell(rows: int) -> None:
    net, given = conv_lstm(), feeds(rows)
    check_gradient(net, given, sample=8)
    check_devices(net, given)
    text = ro.compile(net).plan(given).describe()
    assert "interpreter, at each step" not in text
    assert "around recurrences, in the interpreter, forward: nothing" in text


def image_net() -> ro.Net:
    """Convolutions of all kinds in a chain, with pooling between, as image models have them."""
    net = ro.Net("image")
    x, w, v, d, t = net.inputs("x", "w", "v", "d", "t")
    y = ro.conv(x, w, pads=[1, 1, 1, 1], strides=[2, 2])
    y = ro.max_pool(y * ro.sigmoid(y), [2, 2], strides=[2, 2], ceil_mode=1)
    y = ro.relu(ro.conv(y, v) + y)
    y = ro.conv(y, d, group=8, pads=[1, 1, 1, 1])
    y = ro.average_pool(ro.tanh(y), [3, 3], pads=[1, 1, 1, 1])
    y = ro.conv_transpose(y, t, strides=[2, 2])
    net.outputs(y=y, mean=ro.global_average_pool(y), largest=ro.global_max_pool(y))
    return net


def image_feeds(rows: int) -> dict[str, Any]:
    shapes = {"x": (rows, 3, 13, 11), "w": (8, 3, 3, 3), "v": (8, 8, 1, 1), "d": (8, 1, 3, 3), "t": (8, 2, 3, 2)}
    return {name: RANDOM.normal(size=shape).astype("float32") for name, shape in shapes.items()}


@pytest.mark.parametrize("rows", [1, 2])
def test_convolutions_outside_of_recurrences(rows: int) -> None:
    net, given = image_net(), image_feeds(rows)
    wanted = ro.compile(net, device="reference")(given)
    bound = ro.compile(net).bind(**{name: array for name, array in given.items() if name != "x"})
    for name, array in bound(x=given["x"]).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
    assert "one native call" in bound.plan(x=given["x"], backward=False).describe()
    check_devices(net, given)


def test_sizes_of_feeds_may_change() -> None:
    net, given = image_net(), image_feeds(1)
    run = ro.compile(net)
    for sizes in ((13, 11), (14, 11), (9, 20)):
        given["x"] = RANDOM.normal(size=(1, 3, *sizes)).astype("float32")
        wanted = ro.compile(net, device="reference")(given)
        for name, array in run(given).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
