"""What of a file is a parameter; and what is refused of pooling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model

MODEL = "weights.onnx"


def written(
    folder: Path, nodes: list[object], dims: list[object], weights: dict[str, np.ndarray] | None = None
) -> Path:
    """A file from `float[...] x` to y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(dims))
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "weighted", [x], [y], tensors)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / MODEL)
    return folder / MODEL


@pytest.mark.parametrize("size", [32, 31])
def test_large_results_of_constant_nodes_are_parameters(tmp_path: Path, size: int) -> None:
    value = np.arange(size * 32, dtype="float32").reshape(size, 32)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(value)),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    model = load_model(written(tmp_path, nodes, ["N", size]))
    assert list(model.params) == (["w"] if size == 32 else [])
    x = np.ones((2, size), "float32")
    np.testing.assert_allclose(ro.compile(model.net)(model.params, x=x)["y"], x @ value)
    export(model, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(model.net)


def test_initializers_that_nothing_reads_stay(tmp_path: Path) -> None:
    weights = {name: np.ones((2, 2), "float32") for name in ("unread", "w")}
    model = load_model(written(tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"])], ["N", 2], weights))
    assert set(model.params) == {"unread", "w"}
    export(model, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(model.net)


def test_indices_of_max_pool_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [helper.make_node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2])], ["N", 2, 5])
    rejects(OnnxError, lambda: load(path), "MaxPool gives no indices")


def test_windows_that_op_sets_disagree_on_are_written_for_new_ones(tmp_path: Path) -> None:
    net = ro.Net("pooled")
    net.outputs(y=ro.max_pool(net.input("x"), [2], strides=[3], pads=[0, 1], ceil_mode=1))
    shapes = {"x": (1, 1, 5)}
    rejects(OnnxError, lambda: export(net, tmp_path / MODEL, shapes=shapes), "a last window that starts in the padding")
    export(net, tmp_path / MODEL, shapes=shapes, opset=22)
    assert [op.type for op in load(tmp_path / MODEL).ops] == ["MaxPool", "Identity"]
