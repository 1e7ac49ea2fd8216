"""ConvInteger and QLinearConv: integers of plain loops, and of `onnx.reference`."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from onnx import helper, save
from onnx.reference import ReferenceEvaluator
from quantised_models import MICROSOFT, model_of

from rnnops.onnx import OnnxError, export, load, load_model

Array = np.ndarray[Any, Any]


def whole(draw: np.random.Generator, dtype: str, *shape: int) -> Array:
    bounds = np.iinfo(dtype)
    return draw.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def convolved(x: Array, w: Array, pads: int = 0, stride: int = 1, group: int = 1) -> Array:
    """Of two axes, by plain loops over the kernel, in integers."""
    x = np.pad(x, [(0, 0), (0, 0), (pads, pads), (pads, pads)])
    places = [(size - kernel) // stride + 1 for size, kernel in zip(x.shape[2:], w.shape[2:], strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *places), "int64")
    parts, each = x.shape[1] // group, w.shape[0] // group
    for k, (i, j) in product(range(group), np.ndindex(*w.shape[2:])):
        rows, columns = (slice(at, at + stride * count, stride) for at, count in zip((i, j), places, strict=True))
        taken = x[:, k * parts : (k + 1) * parts, rows, columns]
        y[:, k * each : (k + 1) * each] += np.einsum("nchw,oc->nohw", taken, w[k * each : (k + 1) * each, :, i, j])
    return y


def check(model: Any, feeds: dict[str, Array], wanted: Array, folder: Path) -> Any:
    save(model, folder / "one.onnx")
    found = load_model(folder / "one.onnx")
    export(found, folder / "again.onnx", opset=21)
    assert str(load(folder / "again.onnx")) == str(found.net)
    for device in DEVICES:
        out = DEVICES[device](found.net)(found.params, feeds)["y"]
        assert out.dtype == wanted.dtype
        np.testing.assert_array_equal(out, wanted, err_msg=device)
    return found


@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("zeros", ["none", "one", "by channel"])
@pytest.mark.parametrize("fixed", [True, False])
def test_conv_integer(dtypes: tuple[str, str], zeros: str, fixed: bool, tmp_path: Path) -> None:
    """With pads, which stand for 0, strides and groups."""
    draw = np.random.default_rng(0)
    x, w = whole(draw, dtypes[0], 2, 4, 6, 5), whole(draw, dtypes[1], 6, 2, 3, 3)
    given: dict[str, Array] = {}
    if zeros != "none":
        given["x_zero"] = np.array(9, dtypes[0])
        given["w_zero"] = np.array(7, dtypes[1]) if zeros == "one" else whole(draw, dtypes[1], 6)
    options = {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 2}
    node = helper.make_node("ConvInteger", ["x", "w", *given], ["y"], **options)
    x_zero, w_zero = (np.asarray(given.get(f"{name}_zero", 0)).astype("int64") for name in "xw")
    wanted = convolved(x - x_zero, w - w_zero.reshape(-1, 1, 1, 1), 1, 2, 2).astype("int32")
    weights, feeds = ({"w": w, **given}, {"x": x}) if fixed else ({}, {"x": x, "w": w, **given})
    check(model_of([node], feeds, ["y"], weights), feeds, wanted, tmp_path)


@pytest.mark.parametrize("fixed", [True, False])
def test_long_sums_are_exact(fixed: bool, tmp_path: Path) -> None:
    x, w = np.full((1, 40, 4, 4), 255, "uint8"), np.full((2, 40, 3, 3), 255, "uint8")
    x[:, 1::2] = 254
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    weights, feeds = ({"w": w}, {"x": x}) if fixed else ({}, {"x": x, "w": w})
    wanted = convolved(x.astype("int64"), w.astype("int64")).astype("int32")
    found = check(model_of([node], feeds, ["y"], weights), feeds, wanted, tmp_path)
    assert sum(op.type == "Conv" for op in found.net.ops) == 2


def test_small_weights_are_one_convolution(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    x, w = whole(draw, "uint8", 1, 90, 5, 5), whole(draw, "int8", 2, 90, 3, 3) // 3
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    wanted = convolved(x.astype("int64"), w.astype("int64")).astype("int32")
    found = check(model_of([node], {"x": x}, ["y"], {"w": w}), {"x": x}, wanted, tmp_path)
    assert sum(op.type == "Conv" for op in found.net.ops) == 1


def test_long_sums_of_groups_are_refused(tmp_path: Path) -> None:
    feeds = {"x": np.ones((1, 80, 4, 4), "uint8"), "w": np.ones((2, 40, 3, 3), "uint8")}
    save(model_of([helper.make_node("ConvInteger", ["x", "w"], ["y"], group=2)], feeds, ["y"]), tmp_path / "one.onnx")
    with pytest.raises(OnnxError, match="sums of groups are too long to be exact"):
        load(tmp_path / "one.onnx")


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("domain", ["", MICROSOFT])
@pytest.mark.parametrize("bias", [False, True])
def test_qlinear_conv(channels: bool, domain: str, bias: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    wide = (3,) if channels else ()
    parts = {
        "x_scale": np.float32(0.02),
        "x_zero": np.uint8(100),
        "w": whole(draw, "int8", 3, 4, 3, 3),
        "w_scale": draw.uniform(0.01, 0.02, wide).astype("float32"),
        "w_zero": np.zeros(wide, "int8"),
        "y_scale": np.float32(0.3),
        "y_zero": np.uint8(90),
    }
    parts |= {"b": draw.integers(-9999, 9999, 3).astype("int32")} if bias else {}
    x = whole(draw, "uint8", 2, 4, 6, 6)
    node = helper.make_node("QLinearConv", ["x", *parts], ["y"], pads=[1, 1, 1, 1], domain=domain)
    y = convolved(x.astype("int64") - 100, parts["w"].astype("int64"), 1)
    y = y + parts["b"][:, None, None] if bias else y
    scale = (0.02 * parts["w_scale"] / 0.3).reshape(-1, 1, 1)
    wanted = np.clip(np.rint(y * scale) + 90, 0, 255).astype("uint8")
    model = model_of([node], {"x": x}, ["y"], parts)
    check(model, {"x": x}, wanted, tmp_path)
    if not domain and not channels:
        np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, {"x": x})[0], wanted)
