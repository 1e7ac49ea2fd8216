"""Loop in many forms: values, gradients, what export writes, what becomes a step of a sequence, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from each import check_each
from loop_checks import check_gradients, check_runtime, check_values, check_written_again, read, saved
from loop_models import BODY, ROW, TEXTS, evaluate, loop_feeds, rows
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, load, load_model
from rnnops.recurrent.recurrence import Recurrence


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
def test_values(device: str, tmp_path: Path) -> None:
    check_each(TEXTS, lambda name: check_values(TEXTS[name], tmp_path, device))


RUNTIME_DIFFERS = {
    "no trips": "open sizes of results of no trips are 0 there",
    "results handed through": "a trip's number that is a result is that of the last trip there, at all trips",
}


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    def check(name: str) -> None:
        for sizes in ({}, {"T": 7, "N": 1}):
            check_runtime(TEXTS[name], tmp_path, **sizes)

    check_each([name for name in TEXTS if name not in RUNTIME_DIFFERS], check)


def test_gradients(tmp_path: Path) -> None:
    check_each([name for name in TEXTS if name != "counting only"], lambda name: check_gradients(TEXTS[name], tmp_path))


def test_written_again_it_is_the_same_net(tmp_path: Path) -> None:
    check_each(TEXTS, lambda name: check_written_again(TEXTS[name], tmp_path))


def test_steps_that_are_read_in_order_are_sequences(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _ = read(TEXTS[name], tmp_path)
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
    model, feeds = read(text, tmp_path, T=trips, S=steps)
    run = ro.compile(model.net, device="reference")
    if steps < trips:
        rejects(ro.TypeRuleError, lambda: run(model.params, feeds), "Reshape")
    else:
        assert run(model.params, feeds)["all"].shape == (trips, 3, 2)


def test_a_step_from_the_last_place_to_the_first_is_none(tmp_path: Path) -> None:
    """Ends from 0 on count from the front: a Slice from -1 to 0 takes nothing, of which the sum is 0."""
    for place in ("Add (i, m)", "Sub (m, i)"):
        step = f"j = {place} k = Unsqueeze (j, zeros) e = Add (k, ones) xs = Slice (x, k, e, zeros)"
        around = "m = Constant <value_int = -1> () zeros = Constant <value_ints = [0]> ()"
        text = rows(
            f"{step} xt = ReduceSum <keepdims = 0> (xs, zeros)", f"{around} ones = Constant <value_ints = [1]> ()"
        )
        for trips in (1, 2):
            model, feeds = read(text, tmp_path, T=trips)
            run = ro.compile(model.net, device="reference")
            rejects(ro.TypeRuleError, lambda run=run, feeds=feeds: run(feeds), "an index is out of range")


def test_a_run_of_no_steps_gives_the_first_values(tmp_path: Path) -> None:
    for name in ("by the trip", "backwards", "counters and values that stay"):
        model, feeds = read(TEXTS[name], tmp_path, T=0)
        out = ro.compile(model.net, device="reference")(model.params, feeds)
        np.testing.assert_array_equal(out["last"], feeds["h"])
        assert out["all"].shape == (0, 3, 2)


BY_LENGTHS = rows("xt = Gather (x, i)").replace("float[N, 2] h)", "float[N, 2] h, int64[N] lengths)")
BY_LENGTHS = BY_LENGTHS.replace("trips = Gather (sizes, zero)", "trips = ReduceMax <keepdims = 0> (lengths)")


def test_trips_that_data_decide_can_be_given(tmp_path: Path) -> None:
    path = saved(BY_LENGTHS, tmp_path)
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
                          "a Loop whose condition is always true makes too many trips"),
    "grows": (PLAIN.replace("b = Tanh (p)", "b = Concat <axis = 1> (a, p)"), "step to the next"),
    "no body": (PLAIN.replace("body =", "boddy ="), "a body"),
    "inputs that do not fit": (PLAIN.replace("(trips, go, h)", "(trips, go, h, h)"), "do not fit"),
    "outputs that do not fit": (PLAIN.replace("last, all =", "last, all, more ="), "do not fit"),
    "a sequence as a result": (STACKED.replace("n = SequenceLength (s1)", "n = Identity (s1)"), "is read as an array"),
    "a sequence read inside": (STACKED.replace("b = Tanh (p)", "k = SequenceLength (q) f = Cast <to = 1> (k) "
                                               "b = Mul (p, f)"), "reads a sequence that it collects"),
    "a sequence made anew": (STACKED.replace("SequenceInsert (q, b)", "SequenceConstruct (b)"), "appending an element"),
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
    out = ro.compile(load(saved(text, tmp_path)), device="reference")(feeds)
    np.testing.assert_array_equal(out["last"], feeds["h"])


def test_a_place_before_the_start_of_an_array_is_an_error_in_a_run(tmp_path: Path) -> None:
    """Counted from the end: -5 of three steps is not the second one."""
    for place in ("j = Add (m, i)", "j = Sub (m, i)"):
        text = rows(f"m = Constant <value_int = -5> () {place} xt = Gather (x, j)")
        model, feeds = read(text.replace("Gather (sizes, zero)", "Constant <value_int = 1> ()"), tmp_path, T=3)
        run = ro.compile(model.net)
        rejects(ro.TypeRuleError, lambda run=run, feeds=feeds: run(feeds), "an index is out of range")


def test_refused(tmp_path: Path) -> None:
    def check(name: str) -> None:
        text, problem = REFUSED[name]
        rejects(OnnxError, lambda: load(saved(text, tmp_path)), problem, "loop.onnx")

    check_each(REFUSED, check)
