"""Normalisations of ONNX: every form beside onnx.reference, or plain NumPy where that has no such form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_node import Array, check_node, one_node, read
from onnx import load as load_proto

from rnnops.onnx import OnnxError, export
from rnnops.onnx.import_groups import NORMALIZATION_RULES


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype("float32")


def positive(seed: int, *shape: int) -> Array:
    return np.abs(floats(seed, *shape)) + np.float32(0.5)


def of_channels(shape: tuple[int, ...], channels: int) -> dict[str, Array]:
    return {"x": floats(0, *shape), "scale": positive(1, channels), "bias": floats(2, channels)}


def grouped(x: Array, scale: Array, bias: Array, groups: int, epsilon: float, by_group: bool) -> Array:
    """GroupNormalization in NumPy."""
    rows = x.reshape(len(x), groups, -1)
    unit = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + epsilon)
    if by_group:
        return np.asarray((unit * scale[:, None] + bias[:, None]).reshape(x.shape), "float32")
    along = (-1, *(1,) * (x.ndim - 2))
    return np.asarray(unit.reshape(x.shape) * scale.reshape(along) + bias.reshape(along), "float32")


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (2, 3, 2, 2)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batches_by_given_statistics(shape: tuple[int, ...], opset: int, tmp_path: Path) -> None:
    feeds = {**of_channels(shape, 3), "mean": floats(3, 3), "var": positive(4, 3)}
    along = (-1, *(1,) * (len(shape) - 2))
    scale, bias, mean, var = (feeds[name].reshape(along) for name in ("scale", "bias", "mean", "var"))
    wanted = (feeds["x"] - mean) / np.sqrt(var + 0.01) * scale + bias
    model = one_node("BatchNormalization", {"epsilon": 0.01}, feeds, opset, ["scale", "bias", "mean", "var"])
    found = check_node(model, feeds, tmp_path, [wanted])
    assert [op.type for op in found.net.ops] == ["BatchNormalization"]


@pytest.mark.parametrize("shape", [(4, 3), (3, 2, 4)])
def test_batches_in_training(shape: tuple[int, ...], tmp_path: Path) -> None:
    feeds = {**of_channels(shape, shape[1]), "mean": floats(3, shape[1]), "var": positive(4, shape[1])}
    attributes = {"training_mode": 1, "momentum": 0.75, "epsilon": 0.1}
    check_node(one_node("BatchNormalization", attributes, feeds, 15, results=3), feeds, tmp_path)


def test_batches_in_training_before_op_set_14_are_refused(tmp_path: Path) -> None:
    feeds = {**of_channels((2, 3, 4), 3), "mean": floats(3, 3), "var": positive(4, 3)}
    with pytest.raises(OnnxError, match=r"BatchNormalization.*results of training only.*op set 14"):
        read(one_node("BatchNormalization", {}, feeds, 9, results=5), tmp_path / "one.onnx")
    with pytest.raises(OnnxError, match="statistics of every element"):
        read(one_node("BatchNormalization", {"spatial": 0}, feeds, 7), tmp_path / "one.onnx")


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2, 3)])
def test_instances(shape: tuple[int, ...], tmp_path: Path) -> None:
    feeds = of_channels(shape, 3)
    check_node(one_node("InstanceNormalization", {"epsilon": 0.125}, feeds, 6 + 1), feeds, tmp_path)
    with pytest.raises(OnnxError, match="no axis to normalize over"):
        read(one_node("InstanceNormalization", {}, of_channels((2, 3), 3), 7), tmp_path / "one.onnx")


@pytest.mark.parametrize("opset", [18, 20, 21, 25])
@pytest.mark.parametrize("shape", [(2, 4, 3), (2, 4), (1, 4, 2, 3)])
def test_groups(shape: tuple[int, ...], opset: int, tmp_path: Path) -> None:
    feeds = of_channels(shape, 2 if opset < 21 else 4)
    wanted = grouped(*feeds.values(), groups=2, epsilon=0.125, by_group=opset < 21)
    attributes = {"num_groups": 2, "epsilon": 0.125}
    constants = ["scale", "bias"] if opset < 21 else []  # so many groups, as the attribute says
    check_node(one_node("GroupNormalization", attributes, feeds, opset, constants), feeds, tmp_path, [wanted])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_root_mean_squares(axis: int, epsilon: float | None, tmp_path: Path) -> None:
    x = floats(0, 2, 3, 4)
    feeds = {"x": x, "scale": positive(1, *x.shape[axis:])}
    attributes = {"axis": axis} | ({} if epsilon is None else {"epsilon": epsilon})
    model = one_node("RMSNormalization", attributes, feeds, 23)
    found = check_node(model, feeds, tmp_path, opset=23)
    export(found, tmp_path / "old.onnx", opset=20)
    assert {node.op_type for node in load_proto(tmp_path / "old.onnx").graph.node}.isdisjoint({"RMSNormalization"})
    check_node(load_proto(tmp_path / "old.onnx"), feeds, tmp_path)


@pytest.mark.parametrize("p", [1, 2, None])
@pytest.mark.parametrize("axis", [0, -1])
def test_lengths(p: int | None, axis: int, tmp_path: Path) -> None:
    feeds = {"x": floats(0, 3, 4)}
    wanted = feeds["x"] / np.linalg.norm(feeds["x"], p or 2, axis, keepdims=True)
    attributes = {"axis": axis} | ({} if p is None else {"p": p})
    check_node(one_node("LpNormalization", attributes, feeds, 22), feeds, tmp_path, [wanted])
    with pytest.raises(OnnxError, match=r"norm of this kind.*got 3"):
        read(one_node("LpNormalization", {"p": 3}, feeds, 22), tmp_path / "one.onnx")


def test_a_length_of_0_gives_0_and_no_gradient(tmp_path: Path) -> None:
    feeds = {"x": np.array([[0.0, 0.0], [3.0, 4.0]], "float32")}
    wanted = np.array([[0.0, 0.0], [0.6, 0.8]], "float32")
    check_node(one_node("LpNormalization", {}, feeds, 22), feeds, tmp_path, [wanted], gradient=False)


@pytest.mark.parametrize("axes", [None, [0], [1, 2]])
def test_mean_and_variance(axes: list[int] | None, tmp_path: Path) -> None:
    x = floats(0, 2, 3, 2, 3)
    along = (0, 2, 3) if axes is None else tuple(axes)
    wanted = (x - x.mean(along, keepdims=True)) / x.std(along, keepdims=True)
    attributes: dict[str, Any] = {} if axes is None else {"axes": axes}
    check_node(one_node("MeanVarianceNormalization", attributes, {"x": x}, 13), {"x": x}, tmp_path, [wanted])


def test_other_types_of_statistics_are_refused(tmp_path: Path) -> None:
    feeds = of_channels((2, 4, 3), 4)
    group = one_node("GroupNormalization", {"num_groups": 2, "stash_type": 10}, feeds, 21)
    feeds.pop("bias")
    feeds["scale"] = positive(1, 3)
    root = one_node("RMSNormalization", {"stash_type": 10}, feeds, 23)
    for model in (group, root):
        with pytest.raises(OnnxError, match="statistics of this element type"):
            read(model, tmp_path / "one.onnx")


def test_all_rules_are_tested() -> None:
    assert set(NORMALIZATION_RULES) == {
        "BatchNormalization",
        "GroupNormalization",
        "InstanceNormalization",
        "LpNormalization",
        "MeanVarianceNormalization",
        "RMSNormalization",
    }
