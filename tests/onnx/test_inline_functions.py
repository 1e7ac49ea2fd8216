"""Functions of a file, and ops that ONNX defines by simpler ones, are read as the nodes that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from function_models import ATTENTION, FUNCTIONS, HEAD, LINEAR, OWN, parsed
from onnx.reference import ReferenceEvaluator

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model
from rnnops.onnx.outline import outline, read_proto
from rnnops.testing import check_gradient

Array = np.ndarray[Any, Any]
X = {"x": np.random.default_rng(0).normal(size=(3, 2, 4)).astype("float32")}


def feeds_of(model: onnx.ModelProto) -> dict[str, Array]:
    return {**X, "h": np.ones((2, 4), "float32")} if len(model.graph.input) > 1 else X


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_a_file(name: str, device: str, tmp_path: Path) -> None:
    proto, path = parsed(FUNCTIONS[name]), tmp_path / "model.onnx"
    onnx.save(proto, path)
    model, feeds = load_model(path), feeds_of(proto)
    out = ro.compile(model.net, device=device)(model.params, feeds)
    wanted = ReferenceEvaluator(proto).run(None, feeds)
    for value, array in zip(proto.graph.output, wanted, strict=True):
        np.testing.assert_allclose(out[value.name], array, rtol=1e-5, atol=1e-6)
    export(model, tmp_path / "again.onnx")
    assert not outline(*read_proto(path)).unsupported


def test_a_function_in_a_scan_is_part_of_a_recurrence(tmp_path: Path) -> None:
    onnx.save(parsed(FUNCTIONS["within a Scan"]), tmp_path / "model.onnx")
    assert "RecurrentNetwork" in [op.type for op in load(tmp_path / "model.onnx").ops]


def chain(calls: int, count: int) -> onnx.ModelProto:
    """So many functions, each of which calls the next so many times."""
    model = parsed(f"{HEAD} g (float[N] x) => (float[N] y) {{ y = own.f0 (x) }}")
    for i in range(count):
        body = " ".join(f"a{k + 1} = own.f{i + 1} (a{k})" for k in range(calls))
        text = f"{HEAD} g (float[N] x) => (float[N] y) {{ y = own.f (x) }} {OWN} f (a0) => (a{calls}) {{ {body} }}"
        function = parsed(text).functions[0]
        function.name = f"f{i}"
        model.functions.append(function)
    last = parsed(f"{HEAD} g (float[N] x) => (float[N] y) {{ y = Tanh (x) }} {OWN} f (x) => (y) {{ y = Tanh (x) }}")
    last.functions[0].name = f"f{count}"
    model.functions.append(last.functions[0])
    return model


def circle() -> onnx.ModelProto:
    model = chain(1, 3)
    model.functions[-1].node[0].domain, model.functions[-1].node[0].op_type = "own", "f1"
    return model


def too_few_inputs() -> onnx.ModelProto:
    return parsed(
        f"{HEAD} g (float[N] x) => (float[N] y) {{ y = own.f (x, x, x) }} {OWN} f (x) => (y) {{ y = Neg (x) }}"
    )


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (circle(), "a function stands for itself"),
        (chain(2, 40), "stand for too many nodes"),
        (chain(1, 2000), "cannot be written out"),
        (too_few_inputs(), "cannot be written out"),
    ],
    ids=["a circle", "doubled forty times", "deep", "more inputs than it has"],
)
def test_functions_that_cannot_be(model: onnx.ModelProto, problem: str, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(OnnxError, match=problem):
        load(tmp_path / "model.onnx")
    read_proto(tmp_path / "model.onnx")


SHAPES = {"q": (2, 5, 6), "k": (2, 5, 6)}


@pytest.mark.parametrize(("text", "width"), [(LINEAR, 8), (ATTENTION, 6)], ids=["linear", "softmax"])
def test_attention(text: str, width: int, tmp_path: Path) -> None:
    """What ONNX defines compiles, as any other net, and has a gradient."""
    proto, random = parsed(text), np.random.default_rng(1)
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    shapes = {**SHAPES, "v": (2, 5, width), "decay": (2, 5, 2)}
    feeds = {value.name: random.normal(size=shapes[value.name]).astype("float32") for value in proto.graph.input}
    if "decay" in feeds:
        feeds["decay"] = -np.abs(feeds["decay"])
    out = ro.compile(model.net)(model.params, feeds)
    for value, wanted in zip(proto.graph.output, ReferenceEvaluator(proto).run(None, feeds), strict=True):
        np.testing.assert_allclose(out[value.name], wanted, rtol=1e-4, atol=1e-5)
    check_gradient(model.net, {name: array.astype("float64") for name, array in feeds.items()})


def test_linear_attention_is_a_recurrence(tmp_path: Path) -> None:
    onnx.save(parsed(LINEAR), tmp_path / "model.onnx")
    assert "RecurrentNetwork" in [op.type for op in load(tmp_path / "model.onnx").ops]
