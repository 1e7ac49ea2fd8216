"""Loops that write in carried arrays: values, gradients, what becomes a result of the recurrence, what is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from devices import DEVICES
from each import check_each
from loop_models import BODY, ROW, YES, H, T, X, evaluate, loop_feeds, loop_model
from rejection import rejects
from written_loops import AROUND, AT_TRIP, CELL, FORMS, STATES, STEPS, ZEROS, written

import rnnops as ro
from rnnops.onnx import OnnxError, OnnxModel, export, load, load_model
from rnnops.recurrent.recurrence import Recurrence

Array = np.ndarray[Any, Any]
TEXTS = {**FORMS, **STATES}


def read(text: str, folder: Path, **sizes: int) -> tuple[OnnxModel, dict[str, Array], dict[str, Array]]:
    """The model of a form, read; its feeds; what a plain loop makes of them."""
    model = loop_model(text)
    onnx.save(model, folder / "loop.onnx")
    feeds = loop_feeds(model, **{"B": 6, **sizes})
    if "ids" in feeds:  # one of them twice
        feeds["ids"] = np.arange(len(feeds["ids"]))[::-1] // 2
    return load_model(folder / "loop.onnx"), feeds, evaluate(model, feeds)


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
def test_values(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        for sizes in ({}, {"T": 6, "N": 1}, {"T": 0, "N": 2}):
            if sizes.get("T") == 0 and name in STATES:
                continue
            model, feeds, wanted = read(TEXTS[name], tmp_path, **sizes)
            out = DEVICES[device](model.net)(model.params, feeds)
            for key, array in out.items():
                assert (array.shape, array.dtype) == (wanted[key].shape, wanted[key].dtype), key
                np.testing.assert_allclose(array, wanted[key], rtol=1e-5, atol=1e-6, err_msg=f"{key} {sizes}")

    check_each(TEXTS, check)


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

    def check(name: str) -> None:
        model, feeds, _ = read(TEXTS[name], tmp_path)
        session = runtime.InferenceSession(str(tmp_path / "loop.onnx"), providers=["CPUExecutionProvider"])
        out = ro.compile(model.net, device="reference")(model.params, feeds)
        for value, result in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(out[value.name], result, rtol=1e-5, atol=1e-6)

    check_each(TEXTS, check)


def test_gradients(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, feeds, wanted = read(TEXTS[name], tmp_path)
        if any(array.dtype.kind == "f" for array in wanted.values()):
            ro.testing.check_gradient(
                model.net, {k: a.astype("float64") if a.dtype.kind == "f" else a for k, a in feeds.items()}, sample=6
            )

    check_each(TEXTS, check)


def test_written_again_it_is_the_same_net(tmp_path: Path) -> None:
    """Two Loops within each other that both read their trip's number get another name for one of them."""

    def check(name: str) -> None:
        model, _, _ = read(TEXTS[name], tmp_path)
        export(model, tmp_path / "again.onnx")
        assert str(load_model(tmp_path / "again.onnx").net) == str(model.net)

    check_each(TEXTS.keys() - {"two places in a Loop"}, check)


def test_arrays_that_are_not_read_are_no_states(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _, _ = read(TEXTS[name], tmp_path)
        cells = [Recurrence(op, model.net.name).cell for op in model.net.ops if op.type == "RecurrentNetwork"]
        inner = [Recurrence(op, cell.name).cell for cell in cells for op in cell.ops if op.type == "RecurrentNetwork"]
        scatters = {op.type for cell in (*cells, *inner) for op in cell.ops} & {"ScatterND", "ScatterElements"}
        assert bool(scatters) == (name in (*STATES, "two places in a Loop")), scatters

    check_each(TEXTS, check)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_an_array_that_is_too_short_is_an_error_in_a_run(device: str, tmp_path: Path) -> None:
    for size in ("B", "T", "3"):
        kind = f"float[{size}, N, 2]"
        text = written(AT_TRIP, buffer="o = Identity (o0)", kind=kind, inputs=f"{X}, {H}, {kind} o0")
        onnx.save(loop_model(text), tmp_path / "loop.onnx")
        model = load_model(tmp_path / "loop.onnx")
        feeds = loop_feeds(onnx.load(tmp_path / "loop.onnx"), B=3)
        feeds["o0"] = feeds["o0"][:3]
        run = DEVICES[device](model.net)
        rejects(ro.TypeRuleError, lambda run=run, feeds=feeds: run(feeds), "net 'g'", "all/steps")


def test_a_place_by_the_size_of_what_grows_is_refused(tmp_path: Path) -> None:
    """A carried value that gets longer has not the size of its first value at every trip."""
    text = f"""({X}, {H}) => ({STEPS} all) {{ {T} {YES} {AROUND} {ZEROS} g0 = Reshape (none, flat)
        last, g9, all = Loop (trips, go, h, g0, o) <body = s ({BODY}, {ROW} a, float[K] g, {STEPS} u) =>
            (bool c, {ROW} b, float[L] f, {STEPS} v) {{ {CELL} f = Concat <axis = 0> (g, g0) s = Shape (g)
            n = Gather (s, zero) m = Neg (n) k = Add (i, m) j = Reshape (k, flat) v = ScatterND (u, j, b) }}> }}"""
    onnx.save(loop_model(text), tmp_path / "loop.onnx")
    rejects(OnnxError, lambda: load(tmp_path / "loop.onnx"), "a carried value has another type")
