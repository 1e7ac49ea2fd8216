"""Loop in many forms: values, gradients, what export writes, what becomes a step of a sequence, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from devices import DEVICES
from each import check_each
from loop_models import BODY, ROW, TEXTS, evaluate, loop_feeds, loop_model, rows
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, OnnxModel, export, load, load_model
from rnnops.recurrent.recurrence import Recurrence

Array = np.ndarray[Any, Any]


def written(text: str, folder: Path) -> Path:
    """A file with a model."""
    path = folder / "loop.onnx"
    onnx.save(loop_model(text), path)
    return path


def read(name: str, folder: Path, **sizes: int) -> tuple[OnnxModel, dict[str, Array], dict[str, Array]]:
    """The model of a form, read; its feeds; what a plain loop makes of them."""
    path = written(TEXTS[name], folder)
    model = load_model(path)
    feeds = loop_feeds(onnx.load(path), **sizes)
    return model, feeds, evaluate(onnx.load(path), feeds)


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
def test_values(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, feeds, wanted = read(name, tmp_path)
        out = DEVICES[device](model.net)(model.params, feeds)
        for key, array in out.items():
            assert (array.shape, array.dtype) == (wanted[key].shape, wanted[key].dtype), key
            np.testing.assert_allclose(array, wanted[key], rtol=1e-5, atol=1e-6, err_msg=key)

    check_each(TEXTS, check)


RUNTIME_DIFFERS = {
    "no trips": "open sizes of results of no trips are 0 there",
    "results handed through": "a trip's number that is a result is that of the last trip there, at all trips",
}


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

    def check(name: str) -> None:
        for sizes in ({}, {"T": 7, "N": 1}):
            model, feeds, _ = read(name, tmp_path, **sizes)
            session = runtime.InferenceSession(str(tmp_path / "loop.onnx"), providers=["CPUExecutionProvider"])
            out = ro.compile(model.net, device="reference")(model.params, feeds)
            for value, result in zip(session.get_outputs(), session.run(None, feeds), strict=True):
                np.testing.assert_allclose(out[value.name], result, rtol=1e-5, atol=1e-6)

    check_each([name for name in TEXTS if name not in RUNTIME_DIFFERS], check)


def test_gradients(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, feeds, _ = read(name, tmp_path)
        arrays = {k: a.astype("float64") if a.dtype.kind == "f" else a for k, a in {**model.params, **feeds}.items()}
        ro.testing.check_gradient(model.net, arrays, sample=6)

    check_each([name for name in TEXTS if name not in ("counting only",)], check)


def test_written_again_it_is_the_same_net(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _, _ = read(name, tmp_path)
        export(model, tmp_path / "again.onnx")
        again = load_model(tmp_path / "again.onnx")
        assert str(again.net) == str(model.net)

    check_each(TEXTS, check)


def test_steps_that_are_read_in_order_are_sequences(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _, _ = read(name, tmp_path)
        (op,) = [op for op in model.net.ops if op.type == "RecurrentNetwork"]
        recurrence = Recurrence(op, model.net.name)
        assert len(recurrence.sequences) == (2 if name == "with an offset" else 1)
        assert all(op.type != "Gather" for op in recurrence.cell.ops)

    names = ("by the trip", "backwards", "from the end", "an axis kept", "as an array of one", "with an offset")
    check_each([*names, "another axis", "counters and values that stay", "counting down", "steps of a sequence"], check)


@pytest.mark.parametrize(("trips", "steps"), [(0, 0), (3, 2), (6, 7)])
def test_a_run_with_another_number_of_steps_is_refused(trips: int, steps: int, tmp_path: Path) -> None:
    """The Loop says how often, y how many steps there are: fewer steps are read, more are an error."""
    text = rows("xt = Gather (y, i)").replace("float[N, 2] h)", "float[N, 2] h, float[S, N, 2] y)")
    model = load_model(written(text, tmp_path))
    feeds = loop_feeds(onnx.load(tmp_path / "loop.onnx"), T=trips, S=steps)
    run = ro.compile(model.net, device="reference")
    if steps < trips:
        rejects(ro.TypeRuleError, lambda: run(model.params, feeds), "Reshape")
    else:
        assert run(model.params, feeds)["all"].shape == (trips, 3, 2)


def test_a_step_from_the_last_place_to_the_first_is_none(tmp_path: Path) -> None:
    """Ends from 0 on count from the front: a Slice from -1 to 0 takes nothing, of which the sum is 0."""
    for place in ("Add (i, m)", "Sub (m, i)"):
        read = f"j = {place} k = Unsqueeze (j, zeros) e = Add (k, ones) xs = Slice (x, k, e, zeros)"
        around = "m = Constant <value_int = -1> () zeros = Constant <value_ints = [0]> ()"
        text = rows(
            f"{read} xt = ReduceSum <keepdims = 0> (xs, zeros)", f"{around} ones = Constant <value_ints = [1]> ()"
        )
        model = load_model(written(text, tmp_path))
        run = ro.compile(model.net, device="reference")
        for trips in (1, 2):
            feeds = loop_feeds(onnx.load(tmp_path / "loop.onnx"), T=trips)
            rejects(ro.TypeRuleError, lambda run=run, feeds=feeds: run(feeds), "an index is out of range")


def test_a_run_of_no_steps_gives_the_first_values(tmp_path: Path) -> None:
    for name in ("by the trip", "backwards", "counters and values that stay"):
        model = load_model(written(TEXTS[name], tmp_path))
        feeds = loop_feeds(onnx.load(tmp_path / "loop.onnx"), T=0)
        out = ro.compile(model.net, device="reference")(model.params, feeds)
        np.testing.assert_array_equal(out["last"], feeds["h"])
        assert out["all"].shape == (0, 3, 2)


BY_LENGTHS = rows("xt = Gather (x, i)").replace("float[N, 2] h)", "float[N, 2] h, int64[N] lengths)")
BY_LENGTHS = BY_LENGTHS.replace("trips = Gather (sizes, zero)", "trips = ReduceMax <keepdims = 0> (lengths)")


def test_trips_that_data_decide_can_be_given(tmp_path: Path) -> None:
    path = written(BY_LENGTHS, tmp_path)
    rejects(OnnxError, lambda: load(path), "data decide how many trips", "lengths", "constants=")
    lengths = np.array([2, 3, 1])
    model = load_model(path, constants={"lengths": lengths})
    feeds = loop_feeds(onnx.load(path)) | {"lengths": lengths}
    wanted = evaluate(onnx.load(path), feeds)
    del feeds["lengths"]
    out = ro.compile(model.net, device="reference")(model.params, feeds)
    np.testing.assert_allclose(out["all"], wanted["all"], rtol=1e-5)


MANY = "many = Constant <value_int = 1000000000000> ()"
PLAIN, STACKED = TEXTS["by the trip"], TEXTS["stacked"]
REFUSED = {
    "may end early": (PLAIN.replace("d = Identity (c)", "m = ReduceMax <keepdims = 0> (a) f = Neg (m) d = Less (f, m)"),
                      "may end before its last trip"),
    "never ends": (PLAIN.replace("Loop (trips,", "Loop (,"), "never ends"),
    "makes 10^12 trips": (PLAIN.replace("Loop (trips,", "Loop (many,").replace("go =", f"{MANY} go ="),
                          "a Loop, whose condition is true always, makes too many trips"),
    "grows": (PLAIN.replace("b = Tanh (p)", "b = Concat <axis = 1> (a, p)"), "step to the next"),
    "no body": (PLAIN.replace("body =", "boddy ="), "a body"),
    "inputs that do not fit": (PLAIN.replace("(trips, go, h)", "(trips, go, h, h)"), "do not fit"),
    "outputs that do not fit": (PLAIN.replace("last, all =", "last, all, more ="), "do not fit"),
    "a sequence as a result": (STACKED.replace("n = SequenceLength (s1)", "n = Identity (s1)"), "is read where"),
    "a sequence read inside": (STACKED.replace("b = Tanh (p)", "k = SequenceLength (q) f = Cast <to = 1> (k) "
                                               "b = Mul (p, f)"), "reads a sequence that it collects"),
    "a sequence made anew": (STACKED.replace("SequenceInsert (q, b)", "SequenceConstruct (b)"), "one element more"),
    "an empty sequence": ("(float x) => (float y) { s = SequenceEmpty () y = ConcatFromSequence <axis = 0> (s) }",
                          "joins one"),
    "no such element": ("(float x) => (float y) { s = SequenceConstruct (x) i = Constant <value_int = 3> () "
                        "y = SequenceAt (s, i) }", "does not have this place"),
    "no sequence": ("(float x) => (float y) { i = Constant <value_int = 0> () "
                    "y = SequenceAt (x, i) }", "not a sequence"),
    "a name twice": (PLAIN.replace("d = Identity (c)", "xt = Neg (a) d = Identity (c)"), "two values"),
}  # fmt: skip


def test_a_loop_of_many_trips_that_does_not_begin_makes_none(tmp_path: Path) -> None:
    text = f"""({ROW} h) => ({ROW} last) {{ {MANY} go = Constant <value = bool {{0}}> ()
        last = Loop (many, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b) {{ b = Tanh (a) }}> }}"""
    feeds = {"h": np.ones((3, 2), "float32")}
    out = ro.compile(load(written(text, tmp_path)), device="reference")(feeds)
    np.testing.assert_array_equal(out["last"], feeds["h"])


def test_a_place_before_the_start_of_an_array_is_an_error_in_a_run(tmp_path: Path) -> None:
    """Counted from the end: -5 of three steps is not the second one."""
    for place in ("j = Add (m, i)", "j = Sub (m, i)"):
        text = rows(f"m = Constant <value_int = -5> () {place} xt = Gather (x, j)")
        net = load(written(text.replace("Gather (sizes, zero)", "Constant <value_int = 1> ()"), tmp_path))
        run, feeds = ro.compile(net), loop_feeds(onnx.load(tmp_path / "loop.onnx"), T=3)
        rejects(ro.TypeRuleError, lambda run=run, feeds=feeds: run(feeds), "an index is out of range")


def test_refused(tmp_path: Path) -> None:
    def check(name: str) -> None:
        text, problem = REFUSED[name]
        rejects(OnnxError, lambda: load(written(text, tmp_path)), problem, "loop.onnx")

    check_each(REFUSED, check)
