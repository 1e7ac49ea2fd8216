"""LSTM, GRU and RNN in every variant: values, gradients, and that export writes the same node again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from devices import DEVICES
from recurrent_models import Variant, expected, feeds_of, model_of, variants
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, OnnxModel, export, load, load_model

TABLE = variants()
SOME = [
    "LSTM-bidirectional-0-all",
    "LSTM-bidirectional-peepholes-5",
    "LSTM-clip",
    "GRU-reverse-1-all",
    "GRU-bidirectional-linear-5",
    "RNN-reverse-0-lens",
]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def written(variant: Variant, folder: Path, dtype: str = "float32") -> tuple[OnnxModel, dict[str, np.ndarray]]:
    """The variant's model, read, and the feeds that are not parameters of it."""
    feeds, path = feeds_of(variant, dtype), folder / "model.onnx"
    model = model_of(variant, feeds)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    read = load_model(path)
    return read, {name: array for name, array in feeds.items() if name not in read.params}


def check_values(name: str, folder: Path, device: str, dtype: str) -> None:
    model, feeds = written(TABLE[name], folder, dtype)
    out = DEVICES[device](model.net)(model.params, feeds)
    for key, wanted in expected(TABLE[name], {**model.params, **feeds}).items():
        assert out[key].shape == wanted.shape
        np.testing.assert_allclose(out[key], wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(name: str, dtype: str, tmp_path: Path) -> None:
    check_values(name, tmp_path, "reference", dtype)


@pytest.mark.parametrize("name", SOME)
def test_values_in_generated_code(name: str, tmp_path: Path) -> None:
    check_values(name, tmp_path, "plain", "float32")


@pytest.mark.parametrize("name", ["LSTM-bidirectional-peepholes-5"])
def test_values_in_compiled_code(name: str, tmp_path: Path) -> None:
    check_values(name, tmp_path, "cpu", "float32")


@pytest.mark.parametrize("name", TABLE)
def test_gradients(name: str, tmp_path: Path) -> None:
    model, feeds = written(TABLE[name], tmp_path, "float64")
    ro.testing.check_gradient(model.net, {**model.params, **feeds}, sample=3)


@pytest.mark.parametrize("name", SOME)
def test_gradients_in_generated_code(name: str, tmp_path: Path) -> None:
    model, feeds = written(TABLE[name], tmp_path, "float64")
    ro.testing.check_gradient(model.net, {**model.params, **feeds}, sample=2, device=DEVICES["plain"])


@pytest.mark.parametrize("name", TABLE)
def test_written_again_it_is_the_same_node(name: str, tmp_path: Path) -> None:
    model, _ = written(TABLE[name], tmp_path)
    export(model, tmp_path / "again.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "again.onnx").graph.node] == [TABLE[name].op]
    assert str(load(tmp_path / "again.onnx")) == str(model.net)


@pytest.mark.parametrize("name", [name for name, variant in TABLE.items() if not variant.layout])
def test_written_again_onnx_runtime_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    if name in ("LSTM-clip", "LSTM-coupled-peepholes"):
        pytest.skip("ONNX Runtime does not clip what an LSTM's last activation reads (onnxruntime issue 27224)")
    model, feeds = written(TABLE[name], tmp_path)
    export(model, tmp_path / "again.onnx")
    session = runtime.InferenceSession(str(tmp_path / "again.onnx"), providers=["CPUExecutionProvider"])
    results = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    out = ro.compile(model.net, device="reference")(model.params, feeds)
    for value, result in zip(session.get_outputs(), results, strict=True):
        np.testing.assert_allclose(result, out[value.name], rtol=1e-4, atol=1e-5)


def test_a_row_of_length_zero_keeps_its_first_state(tmp_path: Path) -> None:
    variant = Variant("GRU", {}, ("sequence_lens", "initial_h"))
    model, feeds = written(variant, tmp_path)
    feeds["sequence_lens"] = np.array([0, 4, 2], "int32")
    out = ro.compile(model.net, device="reference")(model.params, feeds)
    np.testing.assert_array_equal(out["Y_h"][0, 0], feeds["initial_h"][0, 0])
    assert not out["Y"][:, :, 0].any()


def test_gates_can_be_recomputed_and_policies_apply(tmp_path: Path) -> None:
    model, feeds = written(TABLE["LSTM-forward-0-bias"], tmp_path)
    plain, lean = (ro.compile(model.net, device="reference", checkpoints=policy) for policy in (None, "memory"))
    grads = []
    for run in (plain, lean):
        out, pullback = run.vjp(model.params, feeds)
        grads.append(pullback({"Y": np.ones_like(out["Y"])}))
    for key in grads[0]:
        np.testing.assert_array_equal(grads[0][key], grads[1][key])


@pytest.mark.parametrize(
    ("attributes", "mentioned"),
    [
        ({"direction": "sideways"}, "direction"),
        ({"activations": ["Sigmoid"]}, "activations"),
        ({"activations": ["Sigmoid", "Tanh", "Cosine"]}, "Cosine"),
        ({"activations": ["Sigmoid", "Tanh", "Affine"]}, "activation_alpha"),
        ({"activation_alpha": [1.0]}, "numbers"),
        ({"clip": 3}, "clip"),
        ({"colour": 1}, "colour"),
    ],
)
def test_senseless_attributes_are_named_errors(attributes: dict[str, object], mentioned: str, tmp_path: Path) -> None:
    variant = Variant("LSTM", attributes)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(variant, feeds_of(Variant("LSTM"))).SerializeToString())
    rejects(OnnxError, lambda: load(path), "model.onnx", "layer", "LSTM", mentioned)


PROJECTED = {
    "R": ((1, 12, 2), "input 2 has wrong sizes; wanted [1, 12, 3]; got [1, 12, 2]"),
    "initial_c": ((1, 3, 8), "input 6 has wrong sizes; wanted [1, 3, 3]; got [1, 3, 8]"),  # of PyTorch 2.13's exporter
}


@pytest.mark.parametrize("port", PROJECTED)
def test_a_projection_is_refused(port: str, tmp_path: Path) -> None:
    shape, problem = PROJECTED[port]
    variant = Variant("LSTM", {}, ("B", "initial_h", "initial_c"))
    feeds = {**feeds_of(variant), port: np.ones(shape, "float32")}
    path = tmp_path / "model.onnx"
    onnx.save(model_of(variant, feeds, dynamic=False), path)
    rejects(OnnxError, lambda: load(path), "node 'layer' (LSTM)", problem, "no projection")


def test_weights_of_a_projection_among_biases_are_refused(tmp_path: Path) -> None:
    """PyTorch's exporter counts four weights of a direction, of which a projected LSTM has five."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[T,N,3] x, float[1,12,3] w, float[1,12,3] r) => (float y)
        <float[2,3] p = {1, 2, 3, 4, 5, 6}, float[2] q = {1, 2}> { b = Concat<axis = 0>(p, q) y = LSTM(x, w, r, b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    rejects(OnnxError, lambda: load(tmp_path / "model.onnx"), "(Concat)", "got p, q", "no projection")


@pytest.mark.parametrize(("op", "port"), [("GRU", "W"), ("RNN", "R"), ("GRU", "B"), ("LSTM", "P")])
def test_weights_of_wrong_sizes_are_refused(op: str, port: str, tmp_path: Path) -> None:
    variant = Variant(op, {}, ("B", "P") if op == "LSTM" else ("B",))
    feeds = feeds_of(variant)
    feeds[port] = np.concatenate([feeds[port], feeds[port]])
    path = tmp_path / "model.onnx"
    onnx.save(model_of(variant, feeds), path)
    rejects(OnnxError, lambda: load(path), f"node 'layer' ({op})", "has wrong sizes")
