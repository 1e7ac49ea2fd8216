"""Streams of nets from ONNX files, whose states are inputs and outputs; the file names the axis of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from devices import DEVICES
from recurrent_models import D, H, T, Variant, feeds_of, model_of
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxModel, load_model

STATES = {"Y_h": "initial_h", "Y_c": "initial_c"}


def read(layout: int, folder: Path, dynamic: bool = True) -> tuple[OnnxModel, dict[str, np.ndarray]]:
    """An LSTM with its states as inputs and outputs, and feeds; of a fixed size unless T and N have names."""
    variant = Variant("LSTM", {"layout": layout}, ("B", "initial_h", "initial_c"))
    feeds, path = feeds_of(variant), folder / "model.onnx"
    path.write_bytes(model_of(variant, feeds, dynamic=dynamic).SerializeToString())
    return load_model(path), feeds


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
@pytest.mark.parametrize("layout", [0, 1])
def test_steps_are_one_call(layout: int, device: str, tmp_path: Path) -> None:
    model, feeds = read(layout, tmp_path)
    run = DEVICES[device](model.net).bind(**model.params)
    initial = {name: feeds[name] for name in STATES.values()}
    wanted = run(initial, X=feeds["X"])
    stream = run.stream(STATES, rows=3, shapes=model.shapes, initial=initial)
    y = [stream(step)["Y"] for step in np.split(feeds["X"], T, axis=layout)]
    assert np.array_equal(np.concatenate(y, axis=layout), wanted["Y"])
    for output, name in STATES.items():
        assert np.array_equal(stream.states[name], wanted[output])


def test_rows_come_and_go(tmp_path: Path) -> None:
    model, _ = read(0, tmp_path)
    stream = ro.compile(model.net, device="reference").bind(**model.params).stream(STATES, shapes=model.shapes)
    stream(np.ones((2, 1, D), "float32"))
    assert stream.join(stream.states) == 1
    y = stream(np.ones((2, 2, D), "float32"))["Y"]
    assert np.array_equal(y[..., 0, :], y[..., 1, :])


def test_a_file_of_a_fixed_size(tmp_path: Path) -> None:
    model, feeds = read(1, tmp_path, dynamic=False)
    run = ro.compile(model.net, device="reference").bind(**model.params)
    assert model.shapes["initial_h"] == (3, 1, H)
    one = run.stream(STATES, shapes=model.shapes)
    assert one(feeds["X"])["Y"].shape == (3, T, 1, H)
    rejects(ro.StreamError, lambda: one.reset(0), "axis of rows")
    rejects(ro.StreamError, lambda: run.stream(STATES, rows=3, shapes=model.shapes), "rows=")
