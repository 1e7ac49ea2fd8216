"""RandomUniformLike of files: its range, its dtype, and a seed that is the run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_node import one_node
from onnx import TensorProto, save

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model

X = {"x": np.zeros((40, 50), "float32")}


def written(folder: Path, **attributes: Any) -> Path:
    path = folder / "random.onnx"
    save(one_node("RandomUniformLike", attributes, X, 20), path)
    return path


def test_numbers_are_in_the_range_of_the_file(tmp_path: Path) -> None:
    model = load_model(written(tmp_path, low=-3.0, high=-1.0, seed=7.0))
    run = ro.compile(model.net)
    (y,) = run(X, seed=1).values()
    assert y.shape == (40, 50)
    assert -3.0 <= y.min() < -2.99 < -1.01 < y.max() < -1.0
    np.testing.assert_array_equal(y, *ro.compile(model.net, device="reference")(X, seed=1).values())
    with pytest.raises(ro.FeedError, match="no seed is given"):
        run(X)
    export(model, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(model.net)


def test_other_dtypes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OnnxError, match=r"random.onnx: .*float dtype of the file"):
        load(written(tmp_path, dtype=TensorProto.DOUBLE))
