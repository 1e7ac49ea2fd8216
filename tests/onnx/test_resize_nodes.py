"""Resize and Upsample of ONNX beside onnx.reference: fixed sizes in all modes, open ones by integer arithmetic."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import check_each
from one_node import Array, check_node, one_node, read, reference_results
from onnx import helper, parser, save

import rnnops as ro
from rnnops.onnx import OnnxError
from rnnops.onnx.import_indexing import NEAREST_MODES, TRANSFORMS

Form = tuple[str, dict[str, Any]]
FORMS: list[Form] = [  # mode, and what goes with it
    *(("nearest", {"nearest_mode": nearest}) for nearest in NEAREST_MODES),
    ("linear", {}),
    ("linear", {"antialias": 1}),
    ("cubic", {}),
    ("cubic", {"cubic_coeff_a": -0.5, "exclude_outside": 1}),
    ("cubic", {"antialias": 1}),
]
KNOWN = [name for name in TRANSFORMS if name not in ("tf_half_pixel_for_nn", "tf_crop_and_resize")]


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).uniform(-2, 2, shape).astype("float32")


def feeds_of(x: Array, scales: list[float] | None = None, sizes: list[int] | None = None) -> dict[str, Array | None]:
    return {
        "x": x,
        "roi": None,
        "scales": None if scales is None else np.array(scales, "float32"),
        "sizes": None if sizes is None else np.array(sizes, "int64"),
    }


def given(feeds: dict[str, Array | None]) -> list[str]:
    return [name for name, array in feeds.items() if array is not None and name != "x"]


@pytest.mark.parametrize("transform", KNOWN)
def test_fixed_sizes(transform: str, tmp_path: Path) -> None:
    targets: list[dict[str, Any]] = [
        {"scales": [1, 1, 1.5]},
        {"scales": [1, 1, 0.7]},
        {"sizes": [2, 3, 8]},
        {"sizes": [2, 2, 3]},
    ]

    def check(case: tuple[Form, dict[str, Any]]) -> None:
        (mode, more), target = case
        feeds = feeds_of(floats(2, 3, 5), **target)
        attributes = {"mode": mode, "coordinate_transformation_mode": transform, **more}
        model = one_node("Resize", attributes, feeds, 19, given(feeds), open_sizes=False)
        check_node(model, feeds, tmp_path, devices=["reference"], gradient=mode == "linear")

    check_each(product(FORMS, targets), check, str)


def test_a_scale_is_what_it_is_meant_to_be(tmp_path: Path) -> None:
    """0.6 in float32 is a little more, so that the middle of three elements would lie a little before one of five."""
    feeds = feeds_of(np.arange(5, dtype="float32"), scales=[0.6])
    model = one_node("Resize", {"nearest_mode": "floor"}, feeds, 19, given(feeds), open_sizes=False)
    check_node(model, feeds, tmp_path, [np.array([0, 2, 3], "float32")])


def test_some_axes_of_an_image_on_every_device(tmp_path: Path) -> None:
    for mode, axes in product(("nearest", "linear", "cubic"), ([2, 3], [-1, 1], [0])):
        sizes = [4, 7][: len(axes)]
        x, full = floats(2, 3, 2, 4), [2, 3, 2, 4]
        for axis, size in zip(axes, sizes, strict=True):
            full[axis] = size
        feeds, all_axes = feeds_of(x, sizes=sizes), feeds_of(x, sizes=full)
        wanted = reference_results(one_node("Resize", {"mode": mode}, all_axes, 18, given(all_axes)), all_axes)
        model = one_node("Resize", {"mode": mode, "axes": axes}, feeds, 18, given(feeds), open_sizes=False)
        check_node(model, feeds, tmp_path, wanted)


@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners"])
def test_open_sizes(transform: str, tmp_path: Path) -> None:
    def check(case: tuple[Form, int]) -> None:
        (mode, more), factor = case
        feeds = feeds_of(floats(2, 3, 5), scales=[1, 1, factor])
        attributes = {"mode": mode, "coordinate_transformation_mode": transform, **more}
        model = one_node("Resize", attributes, feeds, 13, given(feeds))
        check_node(model, feeds, tmp_path)

    check_each(product(FORMS[:5], (1, 2, 3)), check, str)


def test_sizes_that_follow_from_shapes(tmp_path: Path) -> None:
    """As PyTorch's exporters write a size that is that of another array."""
    nodes = [
        helper.make_node("Shape", ["like"], ["sizes"]),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    inputs = [helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", "T"), ("like", "S"))]
    graph = helper.make_graph(nodes, "like", inputs, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)
    save(model, tmp_path / "like.onnx")
    net = ro.onnx.load(tmp_path / "like.onnx")
    for size, wanted in ((4, 6), (4, 3), (5, 5), (3, 1)):
        feeds = {"x": floats(2, size), "like": floats(2, wanted)}
        out = ro.compile(net, device="reference")(feeds)["y"]
        np.testing.assert_allclose(out, reference_results(model, feeds)[0], rtol=1e-5, atol=1e-6)


def test_scales_that_are_put_together(tmp_path: Path) -> None:
    """As an exporter writes them that folds no constants."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, T] x) => (float y) {
        one = Constant<value = float[1] {1}>() two = Constant<value = float[1] {2}>()
        scales = Concat<axis = 0>(one, two) y = Resize<mode = "nearest">(x, "", scales) }"""
    save(parser.parse_model(text), tmp_path / "model.onnx")
    x = floats(2, 3)
    made = ro.compile(ro.onnx.load(tmp_path / "model.onnx"), device="reference")(x=x)["y"]
    np.testing.assert_array_equal(made, np.repeat(x, 2, 1))


def test_a_part_of_an_image(tmp_path: Path) -> None:
    for value in (0.0, 7.5):
        feeds = feeds_of(floats(1, 1, 4, 4), sizes=[1, 1, 3, 3])
        feeds["roi"] = np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], "float32")
        attributes = {
            "mode": "linear",
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": value,
        }
        check_node(one_node("Resize", attributes, feeds, 13, given(feeds), open_sizes=False), feeds, tmp_path)


@pytest.mark.parametrize("opset", [7, 9, 10])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_forms(opset: int, mode: str, tmp_path: Path) -> None:
    """By attributes or an input; places are those of the corner. NumPy says what comes out."""
    x = floats(1, 2, 3)
    attributes: dict[str, Any] = {"mode": mode}
    feeds: dict[str, Array | None] = {"x": x}
    if opset == 7:
        attributes["scales"] = [1.0, 1.0, 2.0]
    else:
        feeds["scales"] = np.array([1, 1, 2], "float32")
    place = np.arange(6) / 2
    low, high = np.floor(place).astype(int), np.minimum(np.floor(place).astype(int) + 1, 2)
    weight = (place - low).astype("float32")
    wanted = x[:, :, low] if mode == "nearest" else x[:, :, low] * (1 - weight) + x[:, :, high] * weight
    for open_sizes in (False, True):
        op = "Resize" if opset == 10 else "Upsample"
        model = one_node(op, attributes, feeds, opset, given(feeds), open_sizes=open_sizes)
        check_node(model, feeds, tmp_path, [wanted])


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], bool, str]] = {
    "cubic of open sizes": ({"mode": "cubic"}, {"scales": [1.0, 2.0]}, True, "whose size the file leaves open"),
    "by a part of open sizes": ({}, {"scales": [1.0, 1.5]}, True, "whose size the file leaves open.*by 1.5"),
    "an unknown mode": ({"mode": "area"}, {"scales": [1.0, 2.0]}, False, "this way of resizing is unknown"),
    "no scale": ({}, {"scales": [1.0, 0.0]}, False, "not above 0"),
    "too few scales": ({}, {"scales": [2.0]}, False, "one number for each axis"),
    "an axis without end": ({}, {"sizes": [2, 2**40]}, False, "an axis is too long"),
    "a matrix without end": ({"mode": "cubic"}, {"sizes": [2, 2**24]}, False, "too long"),
    "antialias of the nearest": ({"antialias": 1}, {"sizes": [2, 2]}, False, "antialias needs another mode"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    attributes, target, open_sizes, message = REFUSED[name]
    feeds = feeds_of(floats(4, 3) if open_sizes else floats(2, 3), **target)
    with pytest.raises(OnnxError, match=rf"one.onnx.*Resize.*{message}"):
        read(one_node("Resize", attributes, feeds, 18, given(feeds), open_sizes=open_sizes), tmp_path / "one.onnx")


def test_integers_are_looked_up_and_not_interpolated(tmp_path: Path) -> None:
    feeds = feeds_of(np.arange(12).reshape(4, 3), scales=[1.0, 2.0])
    check_node(one_node("Resize", {}, feeds, 18, given(feeds)), feeds, tmp_path)
    with pytest.raises(OnnxError, match="integers are not interpolated"):
        read(one_node("Resize", {"mode": "linear"}, feeds, 18, given(feeds), open_sizes=False), tmp_path / "one.onnx")


def test_scales_that_a_run_gives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OnnxError, match="neither scales nor sizes are known"):
        read(one_node("Resize", {}, feeds_of(floats(4, 3), scales=[1.0, 2.0]), 18), tmp_path / "one.onnx")
