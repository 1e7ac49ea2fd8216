"""Half precision of files is float in nets: each number as it is, what has none there infinite after a Cast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from onnx import TensorProto, helper, save

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model
from rnnops.onnx.node import read_tensor

Array = np.ndarray[Any, Any]
KINDS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
BITS = np.arange(2**16, dtype="uint16")


def meaning(bits: Array, kind: str) -> Array:
    """What bits stand for, digit by digit."""
    digits, bias = (10, 15) if kind == "float16" else (7, 127)
    sign = np.where(bits >> 15, -1.0, 1.0)
    exponent = (bits.astype("int64") & 0x7FFF) >> digits
    fraction = (bits & (2**digits - 1)) / 2.0**digits
    small = exponent == 0
    value = np.where(small, fraction, 1 + fraction) * 2.0 ** (np.maximum(exponent, 1) - bias)
    value = np.where(exponent == 2 * bias + 1, np.where(fraction > 0, np.nan, np.inf), value)
    with np.errstate(over="ignore"):
        return np.asarray((sign * value).astype("float32"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("raw", [True, False])
def test_all_numbers_of_a_half_precision(kind: str, raw: bool) -> None:
    tensor = TensorProto(name="t", data_type=KINDS[kind], dims=[256, 256])
    if raw:
        tensor.raw_data = BITS.astype("<u2").tobytes()
    else:
        tensor.int32_data.extend(BITS.tolist())
    read = read_tensor(tensor, "t")
    assert (read.dtype, read.shape) == (np.float32, (256, 256))
    np.testing.assert_array_equal(read.ravel(), meaning(BITS, kind))
    assert read_tensor(tensor, "t", "float64").dtype == np.float64


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_none_are_refused(kind: str) -> None:
    tensor = TensorProto(name="t", data_type=KINDS[kind], dims=[2])
    tensor.raw_data = b"\0\0\0"
    with pytest.raises(OnnxError, match="ends within an element"):
        read_tensor(tensor, "t")
    tensor = TensorProto(name="t", data_type=KINDS[kind], dims=[2], int32_data=[0, 2**16])
    with pytest.raises(OnnxError, match="elements out of range"):
        read_tensor(tensor, "t")


def half_model(kind: str, wide: int = TensorProto.FLOAT) -> Any:
    """A model all of whose floats are of half precision, but for one that it is cast to at its end."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ConstantOfShape", ["size"], ["c"], value=helper.make_tensor("", KINDS[kind], [1], [0.5])),
        helper.make_node("Add", ["a", "c"], ["y"]),
        helper.make_node("Cast", ["y"], ["z"], to=wide),
    ]
    inputs = [helper.make_tensor_value_info("x", KINDS[kind], ["N", 2])]
    outputs = [helper.make_tensor_value_info("y", KINDS[kind], None), helper.make_tensor_value_info("z", wide, None)]
    tensors = [helper.make_tensor("w", KINDS[kind], [2, 3], np.arange(6)), helper.make_tensor("size", 7, [1], [3])]
    graph = helper.make_graph(nodes, "half", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_half_precision_is_one_of_floats(kind: str, tmp_path: Path) -> None:
    save(half_model(kind), tmp_path / "half.onnx")
    model = load_model(tmp_path / "half.onnx")
    assert model.halves == {"x": kind, "y": kind}
    assert model.dtype == "float32"
    assert {array.dtype.name for array in model.params.values()} == {"float32"}
    x = np.array([[1.0, 2.0], [1e6, -1e6]], "float32")
    for device in DEVICES:
        out = DEVICES[device](model.net)(model.params, x=x)
        assert out["y"].dtype == out["z"].dtype == np.float32
        np.testing.assert_array_equal(out["y"], x @ np.arange(6.0).reshape(2, 3) + 0.5)
    with pytest.raises(ro.RnnopsError, match="got float16"):
        ro.compile(model.net)(model.params, x=x[:1].astype("float16"))
    export(model, tmp_path / "again.onnx")
    again = load_model(tmp_path / "again.onnx")
    assert str(again.net) == str(model.net)
    assert again.halves == {}


def test_beside_float64_it_is_that(tmp_path: Path) -> None:
    model = half_model("float16", TensorProto.DOUBLE)
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.DOUBLE, [1]))
    save(model, tmp_path / "half.onnx")
    read = load_model(tmp_path / "half.onnx")
    assert (read.dtype, read.params["w"].dtype) == ("float64", np.float64)
    out = ro.compile(read.net)(read.params, x=np.ones((1, 2)), unused=np.ones(1))
    assert out["z"].dtype == np.float64


@pytest.mark.parametrize("kind", KINDS)
def test_a_cast_makes_infinite_what_has_no_number(kind: str, tmp_path: Path) -> None:
    """It does not round: what comes out is what the file's own type would be rounded from."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])]
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=KINDS[kind]),
        helper.make_node("Cast", ["half"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(nodes, "casts", inputs, outputs)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "casts.onnx")
    net = load(tmp_path / "casts.onnx")
    limit = np.float32(65520 if kind == "float16" else 2.0**128 - 2.0**119)
    below = np.nextafter(limit, np.float32(0))
    x = np.array([0.1, below, limit, -below, -limit, np.inf, -np.inf, np.nan, -0.0], "float32")
    wanted = np.array([0.1, below, np.inf, -below, -np.inf, np.inf, -np.inf, np.nan, -0.0], "float32")
    for device in DEVICES:
        np.testing.assert_array_equal(DEVICES[device](net)(x=x)["y"], wanted)
    if kind == "float16":
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(np.isinf(x.astype("float16")), np.isinf(wanted))
    _, pullback = ro.compile(net, device="reference").vjp(x=x[:2])
    np.testing.assert_array_equal(pullback({"y": np.ones(2, "float32")})["x"], 1)


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "INT4", "STRING"])
def test_other_element_types_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    inputs = [helper.make_tensor_value_info("x", getattr(TensorProto, kind), ["N"])]
    outputs = [helper.make_tensor_value_info("y", 0, None)]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "one", inputs, outputs)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "one.onnx")
    with pytest.raises(OnnxError, match=f"input 'x' has an element type.*got {kind.lower()}"):
        load(tmp_path / "one.onnx")


def test_a_constant_input_of_half_precision(tmp_path: Path) -> None:
    save(half_model("float16"), tmp_path / "half.onnx")
    model = load_model(tmp_path / "half.onnx", {"x": np.array([[1.0, 2.0]], "float16")})
    assert ro.compile(model.net)(model.params)["y"].tolist() == [[6.5, 9.5, 12.5]]
