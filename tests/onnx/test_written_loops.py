"""Loops that write in carried arrays: values, gradients, what becomes a result of the recurrence, what is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from devices import DEVICES
from each import check_each
from loop_checks import check_gradients, check_runtime, check_values, check_written_again, read, saved
from loop_models import BODY, ROW, YES, H, T, X
from rejection import rejects
from written_loops import AROUND, AT_TRIP, CELL, FORMS, STATES, STEPS, ZEROS, written

import rnnops as ro
from rnnops.onnx import OnnxError, load
from rnnops.recurrent.recurrence import Recurrence

TEXTS = {**FORMS, **STATES}


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
def test_values(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        for sizes in ({}, {"T": 6, "N": 1}, {"T": 0, "N": 2}):
            check_values(TEXTS[name], tmp_path, device, **sizes)

    check_each(TEXTS, check)


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    check_each(TEXTS, lambda name: check_runtime(TEXTS[name], tmp_path))


def test_gradients(tmp_path: Path) -> None:
    check_each(
        [name for name in TEXTS if name != "numbers of trips"], lambda name: check_gradients(TEXTS[name], tmp_path)
    )


def test_written_again_it_is_the_same_net(tmp_path: Path) -> None:
    """Two Loops within each other that both read their trip's number get another name for one of them."""
    check_each(TEXTS.keys() - {"two places in a Loop"}, lambda name: check_written_again(TEXTS[name], tmp_path))


def test_arrays_that_are_not_read_are_no_states(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _ = read(TEXTS[name], tmp_path)
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
        model, feeds = read(text, tmp_path, B=3)
        feeds["o0"] = feeds["o0"][:3]
        run = DEVICES[device](model.net)
        rejects(ro.TypeRuleError, lambda run=run, feeds=feeds: run(feeds), "net 'g'", "all/steps")


def test_a_place_by_the_size_of_what_grows_is_refused(tmp_path: Path) -> None:
    """A carried value that gets longer has not the size of its first value at every trip."""
    text = f"""({X}, {H}) => ({STEPS} all) {{ {T} {YES} {AROUND} {ZEROS} g0 = Reshape (none, flat)
        last, g9, all = Loop (trips, go, h, g0, o) <body = s ({BODY}, {ROW} a, float[K] g, {STEPS} u) =>
            (bool c, {ROW} b, float[L] f, {STEPS} v) {{ {CELL} f = Concat <axis = 0> (g, g0) s = Shape (g)
            n = Gather (s, zero) m = Neg (n) k = Add (i, m) j = Reshape (k, flat) v = ScatterND (u, j, b) }}> }}"""
    rejects(OnnxError, lambda: load(saved(text, tmp_path)), "a carried value has another type")
