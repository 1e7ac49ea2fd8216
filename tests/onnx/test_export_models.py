"""Models as ONNX files: what `forward` computes, with the model's parameters, in ONNX's own reference too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from small_models import PERCEPTRON, TAGGER, Perceptron, Tagger, perceptron_batch, tagger_batch

import rnnops as ro
from rnnops.model import SGD


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def test_a_trained_perceptron(path: Path) -> None:
    model, (x, labels) = Perceptron(), perceptron_batch()
    model.set_optimizer(SGD(0.5))
    model.compile(PERCEPTRON, use_graph=False)
    model(x, labels)
    ro.onnx.export(model, path)
    read = ro.onnx.load_model(path)
    assert read.shapes == {"x": (6, 5)}
    assert set(read.params) == {"hidden/w", "hidden/b", "scores/w", "scores/b"}
    model.eval()
    np.testing.assert_allclose(ReferenceEvaluator(str(path)).run(None, {"x": x})[0], model(x), rtol=1e-5, atol=1e-6)


def test_sizes_that_stay_open(path: Path) -> None:
    """Everything a model may be made of; T and N are named, and other numbers of them are right."""
    model = Tagger()
    model.compile(TAGGER[::2], is_train=False, use_graph=False)
    ro.onnx.export(model, path, shapes={"words": ("T", "N"), "lengths": ("N",)})
    onnx.checker.check_model(str(path), full_check=True)
    read = ro.onnx.load_model(path)
    assert read.shapes == {"words": ("T", "N"), "lengths": ("N",)}
    for T, N in ((4, 3), (6, 2)):
        words, _, lengths = tagger_batch(T, N)
        wanted = model(words, lengths)
        came = ro.compile(read.net, device="reference")(read.params, words=words, lengths=lengths)
        np.testing.assert_allclose(came["output_scores"], wanted["scores"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(came["output_last"], wanted["last"], rtol=1e-5, atol=1e-6)


def test_a_model_that_is_not_compiled_for_forward(path: Path) -> None:
    with pytest.raises(ro.ModelError, match="is not compiled"):
        ro.onnx.export(Perceptron(), path)
    assert not path.exists()
