"""Scan in many forms: values, gradients, and that what export writes is read as the same net."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from devices import DEVICES
from rejection import rejects
from scan_models import TEXTS, evaluate, scan_feeds, scan_model, scan_text

import rnnops as ro
from rnnops.onnx import OnnxError, OnnxModel, export, load, load_model


def written(name: str, folder: Path) -> tuple[OnnxModel, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The model of a form, read; its feeds; its results."""
    model, path = scan_model(name), folder / "scan.onnx"
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    feeds = scan_feeds(model)
    return load_model(path), feeds, evaluate(model, feeds)


@pytest.mark.parametrize("device", ["reference", "plain"])
@pytest.mark.parametrize("name", TEXTS)
def test_values(name: str, device: str, tmp_path: Path) -> None:
    model, feeds, wanted = written(name, tmp_path)
    out = DEVICES[device](model.net)(model.params, feeds)
    for key, array in out.items():
        assert array.shape == wanted[key].shape
        np.testing.assert_allclose(array, wanted[key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TEXTS)
def test_gradients(name: str, tmp_path: Path) -> None:
    model, feeds, _ = written(name, tmp_path)
    arrays = {key: array.astype("float64") for key, array in {**model.params, **feeds}.items()}
    ro.testing.check_gradient(model.net, arrays, sample=6)


@pytest.mark.parametrize("name", TEXTS)
def test_written_again_it_is_the_same_net(name: str, tmp_path: Path) -> None:
    model, feeds, wanted = written(name, tmp_path)
    export(model, tmp_path / "again.onnx", opset=18)
    again = load_model(tmp_path / "again.onnx")
    assert str(again.net) == str(model.net)
    exported = evaluate(onnx.load(tmp_path / "again.onnx"), feeds)
    for key in model.net.output_blobs:
        np.testing.assert_allclose(exported[key], wanted[key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TEXTS)
def test_onnx_runtime_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    model, feeds, wanted = written(name, tmp_path)
    export(model, tmp_path / "again.onnx")
    session = runtime.InferenceSession(str(tmp_path / "again.onnx"), providers=["CPUExecutionProvider"])
    for value, result in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(result, wanted[value.name], rtol=1e-5, atol=1e-6)


def test_a_body_with_rows_is_the_cell_itself(tmp_path: Path) -> None:
    model, _, _ = written("running sum", tmp_path)
    (recurrence, *_) = model.net.ops
    assert [op.type for op in recurrence.attributes["cell"].ops] == ["Add", "Tanh"]


def test_weights_in_a_body_are_parameters(tmp_path: Path) -> None:
    model, _, _ = written("weights in the body", tmp_path)
    assert [spec.name for spec in model.net.parameters] == ["w"]
    assert model.params["w"].shape == (2, 2)


@pytest.mark.parametrize(
    ("change", "mentioned"),
    [
        ({"num_scan_inputs = 1": "num_scan_inputs = 3"}, "body"),
        ({"num_scan_inputs = 1": "num_scan_inputs = 0"}, "body"),
        ({"num_scan_inputs = 1": "num_scan_inputs = 1, scan_input_axes = [7]"}, "axis"),
        ({"num_scan_inputs = 1": "num_scan_inputs = 1, scan_input_directions = [2]"}, "directions"),
        ({"num_scan_inputs = 1": "num_scan_inputs = 1, scan_output_axes = [0, 0]"}, "scan_output_axes"),
        ({": 17]": ": 8]"}, "op set 8"),
        ({"Tanh(z)": "Tanh(q)"}, "q"),
        ({"Tanh(z)": "Asin(z)"}, "Asin"),
    ],
)
def test_senseless_scans_are_named_errors(change: dict[str, str], mentioned: str, tmp_path: Path) -> None:
    ((old, new),) = change.items()
    text = scan_text("running sum").replace(old, new)
    path = tmp_path / "scan.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    rejects(OnnxError, lambda: load(path), "scan.onnx", mentioned)


def test_weights_of_one_name_in_two_bodies_are_two_parameters(tmp_path: Path) -> None:
    model = scan_model("weights in the body")
    second = onnx.NodeProto.FromString(model.graph.node[0].SerializeToString())
    second.input[0], second.output[0] = "last", "more"
    (body,) = [attribute.g for attribute in second.attribute if attribute.name == "body"]
    body.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"), "w"))
    model.graph.node.append(second)
    model.graph.output[0].name = "more"
    (tmp_path / "scan.onnx").write_bytes(model.SerializeToString())
    read, feeds = load_model(tmp_path / "scan.onnx"), scan_feeds(model)
    assert sorted(read.params) == ["w", "w_1"]
    out = ro.compile(read.net, device="reference")(read.params, feeds)
    np.testing.assert_allclose(out["more"], evaluate(model, feeds)["more"], rtol=1e-5, atol=1e-6)
    export(read, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(read.net)
