"""Hardmax, EyeLike, NonZero, Compress, and orders of integers, beside onnx.reference or NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_node import Array, check_node, one_node, read
from onnx import helper

from rnnops.onnx import OnnxError, load


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype("float32")


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("opset", [11, 13])
def test_hardmax(axis: int | None, opset: int, tmp_path: Path) -> None:
    """Before op set 13 all axes from the given one on were one, which onnx.reference does not know."""
    if (axis, opset) == (-1, 11):
        return
    x = floats(2, 3, 4)
    shown = 1 if axis is None and opset < 13 else -1 if axis is None else axis
    rows = (
        x.reshape(int(np.prod(x.shape[:shown])), -1)
        if opset < 13
        else np.moveaxis(x, shown, -1).reshape(-1, x.shape[shown])
    )
    wanted = np.eye(rows.shape[1], dtype="float32")[rows.argmax(1)]
    if opset >= 13:
        wanted = np.moveaxis(wanted.reshape(np.moveaxis(x, shown, -1).shape), -1, shown)
    attributes = {} if axis is None else {"axis": axis}
    model = one_node("Hardmax", attributes, {"x": x}, opset)
    check_node(model, {"x": x}, tmp_path, [wanted.reshape(x.shape)])


@pytest.mark.parametrize("k", [0, 1, -2])
@pytest.mark.parametrize("dtype", [None, 1, 7, 9])
def test_eyes(k: int, dtype: int | None, tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"k": k} | ({} if dtype is None else {"dtype": dtype})
    for x in (floats(3, 4), np.ones((4, 2), "int32")):
        kind = {None: x.dtype, 1: "float32", 7: "int64", 9: "bool"}[dtype]
        wanted = np.eye(*x.shape, k=k).astype(kind)
        check_node(one_node("EyeLike", attributes, {"x": x}, 9), {"x": x}, tmp_path, [wanted], gradient=False)
    with pytest.raises(OnnxError, match="the input is not a matrix"):
        read(one_node("EyeLike", {}, {"x": floats(3)}, 9), tmp_path / "one.onnx")


def test_what_is_not_zero(tmp_path: Path) -> None:
    x = np.array([[1, 0, 3], [0, 0, 2]])
    model = one_node("NonZero", {}, {"x": x}, 13)
    with pytest.raises(OnnxError, match=r"which elements are not zero decides a shape.*constants="):
        read(model, tmp_path / "one.onnx")
    found = load(tmp_path / "one.onnx", constants={"x": x})
    check_node(one_node("NonZero", {}, {"x": x}, 13, ["x"]), {"x": x}, tmp_path)
    assert [op.type for op in found.ops][-1] == "Constant" or found.ops[-1].type == "Identity"


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_what_a_condition_takes(axis: int | None, tmp_path: Path) -> None:
    x = floats(2, 3)
    condition = np.array([False, True, True, False])[: 6 if axis is None else x.shape[axis]]
    attributes = {} if axis is None else {"axis": axis}
    feeds = {"x": x, "condition": condition}
    check_node(one_node("Compress", attributes, feeds, 11, ["condition"]), feeds, tmp_path)
    with pytest.raises(OnnxError, match="which slices stay decides a shape"):
        read(one_node("Compress", attributes, feeds, 11), tmp_path / "one.onnx")


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_smallest_of_integers(dtype: str, tmp_path: Path) -> None:
    """Down to the least number that there is."""
    low = 0 if dtype == "float32" else np.iinfo(dtype).min
    x = np.array([[3, 1, low, 7], [2, 2, 5, 1]], dtype)
    check_node(one_node("ArgMin", {"axis": 1}, {"x": x}, 13), {"x": x}, tmp_path)
    feeds = {"x": x, "k": np.array([2])}
    model = one_node("TopK", {"largest": 0, "axis": 1}, feeds, 11, ["k"], results=2)
    indices = np.argsort(x, 1, kind="stable")[:, :2]
    check_node(model, feeds, tmp_path, [np.take_along_axis(x, indices, 1), indices])


def test_all_of_an_axis_sorted(tmp_path: Path) -> None:
    """As PyTorch writes `sort`: so many as there are, which the file leaves open."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], start=1),
        helper.make_node("TopK", ["x", "size"], ["y0", "y1"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["N", "T"])]
    outputs = [helper.make_tensor_value_info(name, 0, None) for name in ("y0", "y1")]
    graph = helper.make_graph(nodes, "sort", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=10)
    check_node(model, {"x": floats(3, 5) + np.arange(5, dtype="float32") / 16}, tmp_path)


def test_a_number_that_a_run_gives_is_refused(tmp_path: Path) -> None:
    feeds = {"x": floats(3, 5), "k": np.array([2])}
    with pytest.raises(OnnxError, match="input 'k' decides a shape"):
        read(one_node("TopK", {}, feeds, 11, results=2), tmp_path / "one.onnx")
