"""Checks that models of Loops pass, by their texts: values, gradients, ONNX Runtime's numbers, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from devices import DEVICES
from loop_models import evaluate, loop_feeds, loop_model

import rnnops as ro
from rnnops.onnx import OnnxModel, export, load_model

Array = np.ndarray[Any, Any]


def saved(text: str, folder: Path) -> Path:
    """A file with a model."""
    path = folder / "loop.onnx"
    onnx.save(loop_model(text), path)
    return path


def read(text: str, folder: Path, **sizes: int) -> tuple[OnnxModel, dict[str, Array]]:
    """The model of a file, and feeds."""
    return load_model(saved(text, folder)), loop_feeds(loop_model(text), **sizes)


def check_values(text: str, folder: Path, device: str, **sizes: int) -> None:
    """Results are those of a plain loop."""
    model, feeds = read(text, folder, **sizes)
    out, wanted = DEVICES[device](model.net)(model.params, feeds), evaluate(loop_model(text), feeds)
    for key, array in out.items():
        assert (array.shape, array.dtype) == (wanted[key].shape, wanted[key].dtype), key
        np.testing.assert_allclose(array, wanted[key], rtol=1e-5, atol=1e-6, err_msg=f"{key} {sizes}")


def check_runtime(text: str, folder: Path, **sizes: int) -> None:
    """Results are those of ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    model, feeds = read(text, folder, **sizes)
    session = runtime.InferenceSession(str(folder / "loop.onnx"), providers=["CPUExecutionProvider"])
    out = ro.compile(model.net, device="reference")(model.params, feeds)
    for value, result in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(out[value.name], result, rtol=1e-5, atol=1e-6)


def check_gradients(text: str, folder: Path) -> None:
    """Gradients are differences."""
    model, feeds = read(text, folder)
    arrays = {k: a.astype("float64") if a.dtype.kind == "f" else a for k, a in {**model.params, **feeds}.items()}
    ro.testing.check_gradient(model.net, arrays, sample=6)


def check_written_again(text: str, folder: Path) -> None:
    """Written again it is the same net."""
    model, _ = read(text, folder)
    export(model, folder / "again.onnx")
    assert str(load_model(folder / "again.onnx").net) == str(model.net)
