"""Ops that become groups: random shapes and attributes against `onnx.reference`, gradients, what is out of range."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from onnx import helper, save
from onnx.reference import ReferenceEvaluator

import rnnops as ro
from rnnops.errors import RnnopsError
from rnnops.onnx import export, load, load_model
from rnnops.onnx.import_groups import GROUP_RULES

Array = np.ndarray[Any, Any]
Draw = np.random.Generator
Node = tuple[dict[str, Any], dict[str, Array]]  # attributes and feeds of one node
OPSETS = {"Mish": 18, "Swish": 24}
SEEDS = 6


def floats(draw: Draw, *shape: int) -> Array:
    """Numbers that keep away from kinks at multiples of a half."""
    whole = draw.integers(-4, 4, shape) / 2
    return np.asarray(whole + draw.uniform(0.1, 0.4, shape), "float32")


def shape_of(draw: Draw, least: int = 1, most: int = 3) -> tuple[int, ...]:
    return tuple(int(size) for size in draw.integers(1, 5, int(draw.integers(least, most + 1))))


def of_one(**attributes: Callable[[Draw], Any]) -> Callable[[Draw], Node]:
    """Nodes of one float input, some without their attributes."""

    def node(draw: Draw) -> Node:
        given = {name: make(draw) for name, make in attributes.items() if draw.random() < 0.7}
        return given, {"x": floats(draw, *shape_of(draw, 0))}

    return node


def special(draw: Draw) -> Node:
    x = floats(draw, 12)
    x[:3] = np.inf, -np.inf, np.nan
    return {}, {"x": draw.permutation(x)}


def is_inf(draw: Draw) -> Node:
    return {name: int(draw.integers(2)) for name in ("detect_negative", "detect_positive")}, special(draw)[1]


def reduced(draw: Draw) -> Node:
    x = np.abs(floats(draw, *shape_of(draw)))
    axes = draw.permutation(x.ndim)[: int(draw.integers(0, x.ndim + 1))] - x.ndim * int(draw.integers(2))
    attributes = {"keepdims": int(draw.integers(2))}
    return ({**attributes, "axes": axes.tolist()} if len(axes) else attributes), {"x": x}


def trilu(draw: Draw) -> Node:
    feeds = {"x": floats(draw, *shape_of(draw, 2))}
    if draw.random() < 0.3:
        feeds["x"] = feeds["x"] > 0
    if draw.random() < 0.7:
        feeds["k"] = np.array(draw.integers(-4, 5))
    return ({"upper": int(draw.integers(2))} if draw.random() < 0.7 else {}), feeds


def gathered(draw: Draw) -> Node:
    x = floats(draw, *shape_of(draw))
    axis = int(draw.integers(-x.ndim, x.ndim))
    shape = list(x.shape)
    shape[axis] = int(draw.integers(1, 6))
    size = x.shape[axis]
    return {"axis": axis}, {"x": x, "indices": draw.integers(-size, size, shape)}


def reversed_rows(draw: Draw) -> Node:
    x, time = floats(draw, *shape_of(draw, 2, 4)), int(draw.integers(2))
    lengths = draw.integers(1, x.shape[time] + 1, x.shape[1 - time])
    return {"time_axis": time, "batch_axis": 1 - time}, {"x": x, "lengths": lengths}


def prelu(draw: Draw) -> Node:
    x = floats(draw, *shape_of(draw))
    return {}, {"x": x, "slope": floats(draw, *x.shape[int(draw.integers(x.ndim + 1)) :])}


def bools(draw: Draw) -> Node:
    shape = shape_of(draw)
    return {}, {"a": draw.random(shape) < 0.5, "b": draw.random(shape[-1:]) < 0.5}


def positive(draw: Draw) -> float:
    return float(draw.choice([0.5, 1.0, 1.5, 2.0]))


FORMS: dict[str, Callable[[Draw], Node]] = {
    "Celu": of_one(alpha=positive),
    "GatherElements": gathered,
    "HardSwish": of_one(),
    "IsInf": is_inf,
    "IsNaN": special,
    "Mish": of_one(),
    "PRelu": prelu,
    "ReduceL1": reduced,
    "ReduceL2": reduced,
    "ReduceLogSum": reduced,
    "ReverseSequence": reversed_rows,
    "Shrink": of_one(bias=positive, lambd=positive),
    "Size": of_one(),
    "Swish": of_one(alpha=positive),
    "ThresholdedRelu": of_one(alpha=positive),
    "Trilu": trilu,
    "Xor": bools,
}


def written(op: str, attributes: dict[str, Any], feeds: dict[str, Array], path: Path) -> Any:
    """A model of one node, all of whose sizes are open; equal ones have one name."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    inputs = [
        helper.make_tensor_value_info(name, kinds[name], [f"size_{size}" for size in array.shape])
        for name, array in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info("y", 0, None)]
    graph = helper.make_graph([helper.make_node(op, list(feeds), ["y"], **attributes)], "one", inputs, outputs)
    opsets = [helper.make_opsetid("", OPSETS.get(op, 16))]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    save(model, path)
    return model


def test_every_group_has_forms() -> None:
    assert set(FORMS) == set(GROUP_RULES)


@pytest.mark.parametrize("op", FORMS)
def test_random_nodes(op: str, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        attributes, feeds = FORMS[op](np.random.default_rng(seed))
        model = written(op, attributes, feeds, tmp_path / "one.onnx")
        if op == "GatherElements":  # onnx.reference fails at axes from the end
            wanted = np.take_along_axis(feeds["x"], feeds["indices"], attributes["axis"])
        else:
            wanted = ReferenceEvaluator(model).run(None, feeds)[0]
        read = load_model(tmp_path / "one.onnx")
        net = read.net
        for device in ("reference", "plain")[: 2 if seed < 2 else 1]:
            out = DEVICES[device](net)(feeds)["y"]
            assert (out.dtype, out.shape) == (np.asarray(wanted).dtype, np.shape(wanted)), (attributes, device)
            np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6, err_msg=f"{attributes} {device}")
        export(read, tmp_path / "again.onnx", opset=20)
        assert str(load(tmp_path / "again.onnx")) == str(net)
        wide = {name: array.astype("float64") if array.dtype.kind == "f" else array for name, array in feeds.items()}
        if np.asarray(wanted).dtype.kind == "f":
            ro.testing.check_gradient(net, wide)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceLogSum"])
def test_axes_as_an_input(op: str, tmp_path: Path) -> None:
    x = np.abs(floats(np.random.default_rng(0), 2, 3, 4))
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)
    inputs = [helper.make_tensor_value_info("x", 1, ["a", "b", "c"])]
    outputs, axes = [helper.make_tensor_value_info("y", 0, None)], helper.make_tensor("axes", 7, [2], [0, -1])
    graph = helper.make_graph([node], "one", inputs, outputs, [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    save(model, tmp_path / "one.onnx")
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(ro.compile(load(tmp_path / "one.onnx"), device="reference")(x=x)["y"], wanted, rtol=1e-5)


def test_the_gradient_of_a_length_at_0_is_0(tmp_path: Path) -> None:
    written("ReduceL2", {"axes": [1]}, {"x": np.zeros((2, 3), "float32")}, tmp_path / "one.onnx")
    _, pullback = ro.compile(load(tmp_path / "one.onnx"), device="reference").vjp(x=np.zeros((2, 3)))
    assert not pullback({"y": np.ones((2, 1))})["x"].any()


WRONG = {
    "past the end": ("GatherElements", {"axis": 0}, {"x": (2, 3), "indices": [[2]]}),
    "before the start": ("GatherElements", {"axis": 1}, {"x": (2, 3), "indices": [[-4]]}),
    "wider than the data": ("GatherElements", {"axis": 0}, {"x": (2, 3), "indices": [[0, 0, 0, 0]]}),
    "rows longer than there are steps": ("ReverseSequence", {}, {"x": (2, 3), "lengths": [1, 3, 2]}),
    "lengths of fewer rows": ("ReverseSequence", {}, {"x": (2, 3), "lengths": [1, 2]}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_out_of_range_is_an_error(name: str, tmp_path: Path) -> None:
    """Never an element of another row."""
    op, attributes, given = WRONG[name]
    feeds = {key: np.ones(value, "float32") if key == "x" else np.array(value) for key, value in given.items()}
    written(op, attributes, feeds, tmp_path / "one.onnx")
    net = load(tmp_path / "one.onnx")
    for device in ("reference", "plain"):
        with pytest.raises(RnnopsError):
            DEVICES[device](net)(feeds)
