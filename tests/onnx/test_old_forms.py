"""Ops whose form differs by version of the op set: each form gives what `onnx.reference` gives for it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import rnnops as ro
from rnnops.onnx import export, load, load_model

Row = tuple[str, int, dict[str, Any], tuple[Any, ...]]
ROWS: list[Row] = [  # op, version of the op set, attributes, constant inputs
    ("Clip", 7, {"min": -0.2, "max": 0.4}, ()),
    ("Clip", 10, {"max": 0.4}, ()),
    ("Clip", 11, {}, (np.float32(-0.1),)),
    ("Clip", 13, {}, (None, np.float32(0.3))),
    ("Slice", 9, {"starts": [1, 0], "ends": [9, -1]}, ()),
    ("Slice", 9, {"starts": [1], "ends": [2], "axes": [2]}, ()),
    ("Slice", 10, {}, ([3], [-9], [2], [-2])),
    ("Slice", 13, {}, ([0], [2**63 - 1], [1], [2])),
    ("Pad", 7, {"pads": [0, 1, 0, 0, 0, 2], "value": 0.5}, ()),
    ("Pad", 10, {"pads": [0, 1, 0, 0, 0, 2], "mode": "reflect"}, ()),
    ("Pad", 11, {"mode": "edge"}, ([0, 1, 0, 0, 0, 2],)),
    ("Pad", 13, {}, ([0, 1, 0, 0, 0, 2], np.float32(1.5))),
    ("Pad", 18, {}, ([1, 2], np.float32(-1.5), [2])),
    ("Pad", 19, {"mode": "wrap"}, ([1, 2], None, [1])),
    ("Squeeze", 11, {"axes": [0]}, ()),
    ("Squeeze", 13, {}, ([0],)),
    ("Squeeze", 13, {}, ()),
    ("Unsqueeze", 11, {"axes": [0, 4]}, ()),
    ("Unsqueeze", 13, {}, ([-1, 0],)),
    ("Split", 12, {"axis": 1}, ()),
    ("Split", 11, {"axis": 1, "split": [1, 2]}, ()),
    ("Split", 13, {"axis": 1}, ([2, 1],)),
    ("Split", 18, {"axis": 2, "num_outputs": 2}, ()),
    ("Softmax", 11, {"axis": 2}, ()),
    ("Softmax", 13, {}, ()),
    ("LogSoftmax", 13, {"axis": 1}, ()),
    ("Dropout", 7, {"ratio": 0.3}, ()),
    ("Dropout", 10, {}, ()),
    ("Dropout", 12, {"seed": 3}, (np.float32(0.4),)),
    ("Dropout", 13, {}, (np.float32(1.0), np.array(False))),
    ("Reshape", 7, {}, ([0, -1],)),
    ("Reshape", 14, {"allowzero": 1}, ([1, 12, 1],)),
    ("Flatten", 9, {"axis": 2}, ()),
    ("Flatten", 13, {"axis": -1}, ()),
    ("Gemm", 7, {"alpha": 0.5, "beta": 2.0, "transB": 1}, (np.ones((2, 4), "float32"), np.ones(2, "float32"))),
    ("Gemm", 11, {"transA": 1}, (np.ones((3, 2), "float32"),)),
    ("Upsample", 0, {}, ()),
    ("ReduceSum", 11, {"axes": [1], "keepdims": 0}, ()),
    ("ReduceSum", 13, {"noop_with_empty_axes": 1}, ()),
    ("ReduceSum", 13, {}, ([-1, 0],)),
    ("ReduceMax", 12, {"axes": [-1]}, ()),
    ("ReduceMean", 17, {"axes": [0, 2]}, ()),
    ("ReduceMean", 18, {"keepdims": 0}, ([1],)),
    ("ReduceLogSumExp", 13, {"axes": [1]}, ()),
    ("ReduceSumSquare", 18, {}, ([2],)),
    ("ReduceProd", 13, {"axes": [1], "keepdims": 0}, ()),
    ("Shape", 13, {}, ()),
    ("Shape", 15, {"start": 1, "end": -1}, ()),
    ("Cast", 9, {"to": TensorProto.INT32}, ()),
    ("Cast", 19, {"to": TensorProto.BOOL, "saturate": 1}, ()),
    ("Tile", 7, {}, ([1, 2, 3],)),
    ("Expand", 8, {}, ([2, 1, 1, 1],)),
    ("Pow", 7, {}, (np.float32(2.0),)),
    ("Pow", 13, {}, (np.int64(3),)),
    ("Gather", 11, {"axis": 2}, ([[0, -1], [1, 1]],)),
    ("Transpose", 7, {}, ()),
    ("Identity", 25, {}, ()),
    ("Gelu", 20, {"approximate": "tanh"}, ()),
]  # fmt: skip
ROWS = [row for row in ROWS if row[1]]
IDS = [f"{op}-{opset}-{k}" for k, (op, opset, _, _) in enumerate(ROWS)]


def model_of(row: Row) -> tuple[Any, dict[str, Any]]:
    """The model of a row, and its feeds."""
    op, opset, attributes, constants = row
    shape = (3, 4) if op == "Gemm" else (1, 3, 4)
    x = np.random.Generator(np.random.PCG64(2)).uniform(-1, 1, shape).astype("float32")
    names = ["x", *("" if value is None else f"c{k}" for k, value in enumerate(constants))]
    tensors = [numpy_helper.from_array(as_tensor(v), f"c{k}") for k, v in enumerate(constants) if v is not None]
    pieces = (3 if attributes == {"axis": 1} and not constants else 2) if op == "Split" else 1
    outputs = [f"y{k}" for k in range(pieces)]
    node = helper.make_node(op, names, outputs, **attributes)
    infos = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph([node], "one", inputs, infos, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), {"x": x}


def as_tensor(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value, "int64") if isinstance(value, list) else np.asarray(value)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_it_means_what_the_standard_says(row: Row, tmp_path: Path) -> None:
    model, feeds = model_of(row)
    path = tmp_path / "one.onnx"
    path.write_bytes(model.SerializeToString())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = ReferenceEvaluator(model).run(None, feeds)
    read = load_model(path)
    out = ro.compile(read.net, device="reference")(read.params, feeds)
    for array, expected in zip(out.values(), wanted, strict=True):
        assert array.dtype == expected.dtype
        assert array.shape == expected.shape
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    export(read, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(read.net)


@pytest.mark.parametrize(("op", "axis"), [("Softmax", None), ("Softmax", 0), ("LogSoftmax", 1), ("LogSoftmax", 0)])
def test_softmax_of_old_op_sets_takes_all_axes_from_one_on_as_one(op: str, axis: int | None, tmp_path: Path) -> None:
    """`onnx.reference` has the new meaning only; ONNX Runtime has this one, too."""
    model, feeds = model_of((op, 12, {} if axis is None else {"axis": axis}, ()))
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    out = ro.compile(load(tmp_path / "one.onnx"), device="reference")(feeds)["y0"]
    powers = np.exp(feeds["x"])
    wanted = powers / powers.sum(axis=tuple(range(1 if axis is None else axis, 3)), keepdims=True)
    np.testing.assert_allclose(out, np.log(wanted) if op == "LogSoftmax" else wanted, rtol=1e-5, atol=1e-6)
