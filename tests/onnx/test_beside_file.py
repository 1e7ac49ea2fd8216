"""Numbers in files beside a model are read, from its own folder and no more than there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, load, load_model

DATA = "model.onnx.data"
TEXT = """
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[T, N, 3] x, float[N, 2] h) => (float[N, 2] last, float[T, N, 2] y)
    <float[3, 2] w, float[2] b> {
        p = MatMul (x, w)
        last, y = Scan <num_scan_inputs = 1, body = s (float[N, 2] a, float[N, 2] u) => (float[N, 2] t, float[N, 2] o)
            <float[2, 2] r> { k = MatMul (a, r) q = Add (k, u) z = Add (q, b) t = Tanh (z) o = Identity (t) }> (h, p)
    }
"""


def model() -> onnx.ModelProto:
    """Weights in the graph and in a body."""
    found, random = onnx.parser.parse_model(TEXT), np.random.default_rng(0)
    body = next(attribute.g for attribute in found.graph.node[1].attribute if attribute.name == "body")
    for graph in (found.graph, body):
        del graph.initializer[:]
    weights = {"w": (3, 2), "b": (2,), "r": (2, 2)}
    for name, shape in weights.items():
        array = random.normal(size=shape).astype("float32")
        (body if name == "r" else found.graph).initializer.append(onnx.numpy_helper.from_array(array, name))
    return found


def moved(proto: onnx.ModelProto, folder: Path) -> Path:
    """Write a model with all its initializers in another file, one behind the other."""
    tensors = [*proto.graph.initializer, *(t for a in proto.graph.node[1].attribute for t in a.g.initializer)]
    with open(folder / DATA, "wb") as file:
        for tensor in tensors:
            place = {"location": DATA, "offset": str(file.tell()), "length": str(len(tensor.raw_data))}
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in place.items():
                tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def test_values(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    feeds = {"x": random.normal(size=(4, 3, 3)).astype("float32"), "h": np.ones((3, 2), "float32")}
    wanted = ReferenceEvaluator(model()).run(None, feeds)
    found = load_model(moved(model(), tmp_path))
    assert sorted(found.params) == ["b", "r", "w"]
    for array, name in zip(wanted, found.net.output_blobs, strict=True):
        np.testing.assert_allclose(ro.compile(found.net)(found.params, feeds)[name], array, rtol=1e-5, atol=1e-6)


def test_what_onnx_writes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = onnx.numpy_helper.from_array(random.normal(size=(64, 32)).astype("float32"), "w")
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[N, 64] x) => (float[N, 32] y) { y = MatMul (x, w) }'
    )
    proto.graph.initializer.append(weights)
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin")
    assert (tmp_path / "weights.bin").is_file()
    np.testing.assert_array_equal(load_model(tmp_path / "model.onnx").params["w"], onnx.numpy_helper.to_array(weights))


def test_without_a_length(tmp_path: Path) -> None:
    """The standard lets it be left out."""
    path = moved(model(), tmp_path)
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        del tensor.external_data[2]
    path.write_bytes(proto.SerializeToString())
    wanted = onnx.numpy_helper.to_array(model().graph.initializer[1])
    np.testing.assert_array_equal(load_model(path).params["b"], wanted)


def change(key: str, value: str) -> Callable[[Any], None]:
    def made(tensor: Any) -> None:
        entry = next(entry for entry in tensor.external_data if entry.key == key)
        entry.value = value

    return made


def grow(tensor: Any) -> None:
    tensor.dims[0] = 2**40
    del tensor.external_data[2]


def be_text(tensor: Any) -> None:
    tensor.data_type = TensorProto.STRING


REFUSED: dict[str, tuple[Callable[[Any], None], str]] = {
    "no place": (change("location", ""), "outside"),
    "the whole machine's": (change("location", "/etc/passwd"), "outside"),
    "of the folder above": (change("location", "../model.onnx.data"), "outside"),
    "there and back": (change("location", f"a/../{DATA}"), "outside"),
    "by a link": (change("location", "link"), "outside"),
    "through a link": (change("location", "away/passwd"), "outside"),
    "another system's": (change("location", "..\\data"), "outside"),
    "the folder": (change("location", "."), "outside"),
    "not there": (change("location", "lost.data"), "not there"),
    "too long": (change("length", "25"), "as it claims"),
    "behind the end": (change("offset", "1000"), "as it claims"),
    "before the beginning": (change("offset", "-4"), "as it claims"),
    "no number": (change("offset", "near"), "does not say where"),
    "more than there is": (grow, "as it claims"),
    "of another type": (be_text, "string"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    path = moved(model(), tmp_path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "away").symlink_to("/etc")
    proto = onnx.load(path, load_external_data=False)
    spoil, problem = REFUSED[name]
    spoil(proto.graph.initializer[0])
    path.write_bytes(proto.SerializeToString())
    rejects(OnnxError, lambda: load(path), "model.onnx", "'w'", problem)


def test_bytes_are_read_once(tmp_path: Path) -> None:
    """Many tensors of the same bytes would take far more memory than the files have."""
    path = moved(model(), tmp_path)
    proto = onnx.load(path, load_external_data=False)
    for number in range(100):
        proto.graph.initializer.add().CopyFrom(proto.graph.initializer[0])
        proto.graph.initializer[-1].name = f"w{number}"
    path.write_bytes(proto.SerializeToString())
    rejects(OnnxError, lambda: load(path), "twice the bytes of the files next to it")


def test_weights_that_are_tied_may_lie_in_one_place(tmp_path: Path) -> None:
    path = moved(model(), tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer.add().CopyFrom(proto.graph.initializer[0])
    proto.graph.initializer[-1].name = "tied"
    proto.graph.node.append(onnx.helper.make_node("MatMul", ["x", "tied"], ["z"]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    path.write_bytes(proto.SerializeToString())
    found = load_model(path)
    np.testing.assert_array_equal(found.params["tied"], found.params["w"])
