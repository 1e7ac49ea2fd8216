"""Ops that ONNX defines by simpler ones are read as these; ONNX's own cases of them are in `test_backend_nodes.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from defined_models import ALL, SHAPES, WIDTHS
from onnx.reference import ReferenceEvaluator
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model
from rnnops.onnx.node import read_proto
from rnnops.onnx.outline import outline
from rnnops.testing import check_gradient

Array = np.ndarray[Any, Any]


def written(name: str, folder: Path) -> Path:
    onnx.save(onnx.parser.parse_model(ALL[name]), folder / "model.onnx")
    return folder / "model.onnx"


def feeds_of(name: str, proto: onnx.ModelProto) -> dict[str, Array]:
    random, (k, v) = np.random.default_rng(1), WIDTHS[name]
    shapes = {**SHAPES, "k": (2, 5, k), "v": (2, 5, v)}
    feeds = {value.name: random.normal(size=shapes[value.name]).astype("float32") for value in proto.graph.input}
    return {key: -np.abs(array) if key == "decay" else array for key, array in feeds.items()}


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", ALL)
def test_values(name: str, device: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    model, proto = load_model(path), onnx.load(path)
    feeds = feeds_of(name, proto)
    wanted = ReferenceEvaluator(proto).run(None, feeds)
    export(model, tmp_path / "again.onnx")
    for net in (model.net, load(tmp_path / "again.onnx")):
        out = ro.compile(net, device=device)(model.params, feeds)
        for value, array in zip(proto.graph.output, wanted, strict=True):
            np.testing.assert_allclose(out[value.name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_gradients(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    feeds = {key: array.astype("float64") for key, array in feeds_of(name, onnx.load(path)).items()}
    check_gradient(load(path), feeds)


@pytest.mark.parametrize("name", ["linear attention", "fewer heads of keys", "in a Scan"])
def test_what_steps_is_a_recurrence(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    assert "RecurrentNetwork" in [op.type for op in load(path).ops]
    told = outline(*read_proto(path))
    assert not told.unsupported
    assert [layer.kind for layer in told.layers] == ["Scan"]


def test_what_onnx_does_not_define_is_listed(tmp_path: Path) -> None:
    """Without its types there is no saying what an op stands for."""
    text = '<ir_version: 12, opset_import: ["" : 24]> g (x) => (y) { a = Attention (x, x, x) y = Det (a) }'
    model = onnx.parser.parse_model(text)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    rejects(OnnxError, lambda: load(tmp_path / "model.onnx"), "Attention, Det")


def test_names_that_two_bodies_share_may_have_two_types(tmp_path: Path) -> None:
    body = """body = b (float[3] h, float[3] u) => (float[3] t, float[3] o) {{ c = Constant <value = {0} {{2}}> ()
        p = CastLike (u, c) q = Cast <to = 1> (p) t = Add (h, q) o = Identity (t) }}"""
    for first, second in (("float", "int64"), ("int64", "float")):
        text = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[4, 3] x, float[3] h)
            => (float[4, 3] y, float[4, 3] z) {{ k, y = Scan <num_scan_inputs = 1, {body.format(first)}> (h, x)
            l, z = Scan <num_scan_inputs = 1, {body.format(second)}> (h, x) }}"""
        onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
        random = np.random.default_rng(0)
        feeds = {name: 3 * random.normal(size=shape).astype("float32") for name, shape in (("x", (4, 3)), ("h", (3,)))}
        out = ro.compile(load(tmp_path / "model.onnx"))(feeds)
        wanted = ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, feeds)
        np.testing.assert_allclose([out["y"], out["z"]], wanted, rtol=1e-5)
