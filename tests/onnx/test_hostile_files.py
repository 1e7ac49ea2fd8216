"""Files that are damaged, foreign or made to harm: each is a named error, before anything large is made."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import StringStringEntryProto, TensorProto, helper, numpy_helper
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, load, load_model

FLOAT_INPUT = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
RESULT = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def model_with(
    nodes: list[Any], tensors: list[Any] | None = None, opset: int = 17, inputs: list[Any] | None = None
) -> Any:
    graph = helper.make_graph(nodes, "g", inputs or [FLOAT_INPUT], [RESULT], tensors or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def add_weight(**changes: Any) -> Any:
    """A model `y = x + w` whose tensor w is changed."""
    tensor = numpy_helper.from_array(np.ones((1, 2), "float32"), "w")
    for name, value in changes.items():
        if isinstance(value, list):
            tensor.ClearField(name)
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return model_with([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def nested_scans(depth: int) -> Any:
    """Scans inside each other."""
    body_inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in ("s", "e")]
    body = helper.make_graph([helper.make_node("Add", ["s", "e"], ["y"])], "b", body_inputs, [RESULT])
    for k in range(depth):
        node = helper.make_node("Scan", [f"s{k}", "x"], ["y"], body=body, num_scan_inputs=1)
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in (f"s{k}", f"e{k}")]
        body = helper.make_graph([node], "b", inputs, [RESULT])
    return model_with([helper.make_node("Scan", ["s", "x"], ["y"], body=body, num_scan_inputs=1)])


def constant(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, "int64"), name)


HUGE = 2**40
BODY = nested_scans(0).graph
EXTERNAL = [StringStringEntryProto(key="location", value="/etc/passwd")]
FILES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "another file's data": (
        add_weight(data_location=TensorProto.EXTERNAL, external_data=EXTERNAL), ("outside", "/etc/passwd")),
    "fewer bytes than claimed": (add_weight(dims=[HUGE, 2]), ("claims", "w")),
    "negative sizes": (add_weight(dims=[-1, -2]), ("w", "sizes")),
    "bytes that end within an element": (add_weight(raw_data=b"abc"), ("w", "bytes")),
    "many axes": (add_weight(dims=[1] * 100 + [2]), ("w", "sizes")),
    "half precision that is as long as whole": (add_weight(data_type=TensorProto.FLOAT16), ("w", "2 elements")),
    "a quarter of precision": (add_weight(data_type=TensorProto.FLOAT8E5M2), ("w", "float8e5m2")),
    "text": (add_weight(data_type=TensorProto.STRING), ("w", "string")),
    "no such type": (add_weight(data_type=99), ("w", "99")),
    "an unknown op": (model_with([helper.make_node("Det", ["x"], ["y"])]), ("Det",)),
    "another domain": (model_with([helper.make_node("Tanh", ["x"], ["y"], domain="my.ops")]), ("my.ops::Tanh",)),
    "an old op set": (model_with([helper.make_node("Tanh", ["x"], ["y"])], opset=6), ("7 to", "6")),
    "an op set to come": (model_with([helper.make_node("Tanh", ["x"], ["y"])], opset=999), ("7 to", "999")),
    "a value from nowhere": (model_with([helper.make_node("Add", ["x", "z"], ["y"])]), ("z", "Add")),
    "a value made twice": (model_with([helper.make_node("Tanh", ["x"], ["y"])] * 2), ("two values", "y")),
    "a loop": (model_with([helper.make_node("Add", ["x", "y"], ["y"])]), ("y", "no earlier node")),
    "an unknown attribute": (model_with([helper.make_node("Tanh", ["x"], ["y"], speed=3)]), ("speed", "Tanh")),
    "an attribute of another kind": (model_with([helper.make_node("Elu", ["x"], ["y"], alpha="a")]), ("alpha",)),
    "too many inputs": (model_with([helper.make_node("Tanh", ["x", "x"], ["y"])]), ("Tanh", "inputs")),
    "too few inputs": (model_with([helper.make_node("Add", ["x"], ["y"])]), ("Add", "inputs")),
    "too many results": (model_with([helper.make_node("Tanh", ["x"], ["y", "z"])]), ("results",)),
    "deep graphs": (nested_scans(20), ("deep",)),
    "unprintable names": (model_with([helper.make_node("Tanh", ["x"], ["a\nb"])]), ("Tanh", "name")),
    "a sequence": (
        model_with([helper.make_node("Identity", ["x"], ["y"])],
                   inputs=[helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)]), ("tensor", "x")),
    "two float dtypes": (
        model_with([helper.make_node("Tanh", ["x"], ["y"])],
                   inputs=[FLOAT_INPUT, helper.make_tensor_value_info("z", TensorProto.DOUBLE, [1])]), ("float64",)),
    "a scan of op set 8": (
        model_with([helper.make_node("Scan", ["", "x"], ["y"], num_scan_inputs=1, body=BODY)], None, 8),
        ("op set 8",)),
    "dropout that is always active": (
        model_with([helper.make_node("Dropout", ["x", "", "on"], ["y"])], [constant("on", 1)]),
        ("dropout", "training")),
    "an output from nowhere": (model_with([helper.make_node("Tanh", ["x"], ["z"])]), ("y", "no earlier node")),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_it_is_a_named_error(name: str, tmp_path: Path) -> None:
    model, mentioned = FILES[name]
    path = tmp_path / "hostile.onnx"
    path.write_bytes(model.SerializeToString())
    tracemalloc.start()
    rejects(OnnxError, lambda: load(path), "hostile.onnx", *mentioned)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


@pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"PK\x03\x04", b"\xff" * 1000, b"\x08\x07"])
def test_what_is_no_model_is_a_named_error(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    path.write_bytes(data)
    rejects(OnnxError, lambda: load(path), "hostile.onnx")


def test_what_is_no_file_is_a_named_error(tmp_path: Path) -> None:
    rejects(OnnxError, lambda: load(tmp_path / "nothing.onnx"), "nothing.onnx", "does not exist")
    rejects(OnnxError, lambda: load(tmp_path), "not a file")
    rejects(OnnxError, lambda: load(3), "path")


@pytest.mark.parametrize("op", ["Expand", "ConstantOfShape", "Tile"])
def test_sizes_that_are_claimed_are_not_made_while_it_is_read(op: str, tmp_path: Path) -> None:
    size = constant("size", HUGE, HUGE)
    inputs = ["size"] if op == "ConstantOfShape" else ["x", "size"]
    model = model_with([helper.make_node(op, inputs, ["z"]), helper.make_node("Cast", ["z"], ["y"], to=1)], [size])
    path = tmp_path / "hostile.onnx"
    path.write_bytes(model.SerializeToString())
    tracemalloc.start()
    if op == "ConstantOfShape":  # there is no x that it could run with
        rejects(OnnxError, lambda: load(path), "hostile.onnx", "node 'z' (ConstantOfShape)", "no memory can hold")
    else:
        assert load(path).input_names == ("x",)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


@pytest.mark.parametrize("sizes", [(HUGE, HUGE), (HUGE, 0), (2**32, 2**32)])
def test_integers_of_claimed_sizes_are_not_made_either(sizes: tuple[int, int], tmp_path: Path) -> None:
    ones = numpy_helper.from_array(np.ones((1, 1), "int64"), "ones")
    nodes = [helper.make_node(op, ["ones", "size"], [op]) for op in ("Tile", "Expand")]
    nodes += [
        helper.make_node("Add", nodes[0].output[:1] + nodes[1].output[:1], ["z"]),
        helper.make_node("Cast", ["z"], ["y"], to=1),
    ]
    path = tmp_path / "hostile.onnx"
    path.write_bytes(model_with(nodes, [ones, constant("size", *sizes)]).SerializeToString())
    tracemalloc.start()
    if 0 in sizes:
        load(path)
    else:
        rejects(OnnxError, lambda: load(path), "hostile.onnx", "node 'Tile'", "no memory can hold")
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_all_unknown_ops_are_listed_with_those_in_bodies(tmp_path: Path) -> None:
    model = nested_scans(1)
    body = next(attribute.g for attribute in model.graph.node[0].attribute if attribute.name == "body")
    body.node.append(helper.make_node("SequenceMap", [], ["l"]))
    model.graph.node.append(helper.make_node("Det", ["x"], ["d"]))
    path = tmp_path / "foreign.onnx"
    path.write_bytes(model.SerializeToString())
    rejects(OnnxError, lambda: load(path), "Det, SequenceMap")


def test_an_initializer_that_is_an_input_is_a_parameter(tmp_path: Path) -> None:
    model = add_weight()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 2]))
    path = tmp_path / "old.onnx"
    path.write_bytes(model.SerializeToString())
    read = load_model(path)
    assert [spec.name for spec in read.net.parameters] == ["w"]
    assert read.params["w"].tolist() == [[1.0, 1.0]]


def test_constants_must_be_inputs(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(add_weight().SerializeToString())
    rejects(OnnxError, lambda: load(path, constants={"nothing": np.ones(1)}), "nothing")
    rejects(OnnxError, lambda: load(path, constants={"x": ["text"]}), "x")


def test_a_constant_has_the_dtype_of_its_input(tmp_path: Path) -> None:
    inputs = [FLOAT_INPUT, helper.make_tensor_value_info("shape", TensorProto.INT64, [2])]
    path = tmp_path / "model.onnx"
    path.write_bytes(
        model_with([helper.make_node("Reshape", ["x", "shape"], ["y"])], inputs=inputs).SerializeToString()
    )
    net = load(path, constants={"shape": [2, -1]})
    assert ro.compile(net, device="reference")(x=np.zeros((3, 2), "float32"))["y"].shape == (2, 3)
    rejects(OnnxError, lambda: load(path, constants={"shape": [2.5, -1]}), "shape", "int64")


def test_a_large_file_is_in_memory_twice_at_most(tmp_path: Path) -> None:
    size = 2**22
    weight = numpy_helper.from_array(np.ones((size // 2, 2), "float32"), "w")
    path = tmp_path / "large.onnx"
    path.write_bytes(model_with([helper.make_node("Add", ["x", "w"], ["y"])], [weight]).SerializeToString())
    tracemalloc.start()
    model = load_model(path)
    assert tracemalloc.get_traced_memory()[1] < 2 * 4 * size  # beside it there is the parser's own copy
    tracemalloc.stop()
    assert model.params["w"].nbytes == 4 * size


def test_open_name_scopes_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(add_weight().SerializeToString())
    with ro.name_scope("outer"):
        assert str(load(path)) == str(load_model(path).net)
    assert "outer" not in str(load(path))


def test_import_of_rnnops_loads_no_onnx_and_a_missing_package_is_named() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import rnnops as ro\n"
        "try:\n    ro.onnx\n"
        "except ro.RnnopsError as error:\n    print(error); print(isinstance(error, ImportError))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install onnx" in out
    assert "True" in out
