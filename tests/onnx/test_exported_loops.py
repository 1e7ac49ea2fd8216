"""Loops as jax2onnx and tf2onnx write them: values, gradients, what becomes a step of a sequence, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from each import check_each
from exported_loops import LOOKUPS, TEXTS
from loop_checks import check_gradients, check_runtime, check_values, check_written_again, read, saved
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, load
from rnnops.recurrent.recurrence import Recurrence


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
def test_values(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        for sizes in ({}, {"T": 7, "N": 1}):
            check_values(TEXTS[name], tmp_path, device, **sizes)

    check_each(TEXTS, check)


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    check_each(TEXTS, lambda name: check_runtime(TEXTS[name], tmp_path))


def test_gradients(tmp_path: Path) -> None:
    check_each(TEXTS, lambda name: check_gradients(TEXTS[name], tmp_path))


def test_written_again_it_is_the_same_net(tmp_path: Path) -> None:
    check_each(TEXTS, lambda name: check_written_again(TEXTS[name], tmp_path))


def test_steps_that_are_read_in_order_are_sequences(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _ = read(TEXTS[name], tmp_path)
        (op,) = [op for op in model.net.ops if op.type == "RecurrentNetwork"]
        cell = Recurrence(op, model.net.name).cell
        assert any(op.type == "Gather" for op in cell.ops) == (name in LOOKUPS or "set" in name)
        ops = {op.type for op in cell.ops}
        assert not {"NonZero", "Less", "Max"} & ops
        assert ("Equal" in ops) == (name == "jax: a window")  # which must not go on from the end to the front

    check_each([name for name in TEXTS if name != "jax: a lookup"], check)


def test_a_place_outside_of_the_array_is_an_error_in_a_run(tmp_path: Path) -> None:
    """A Slice cuts such a place to the array, and JAX moves it inwards: nobody says which of them is meant."""
    model, feeds = read(TEXTS["jax: a lookup"], tmp_path)
    feeds["ids"] = np.array([0, 1, 0, 2])
    run = ro.compile(model.net, device="reference")
    rejects(ro.TypeRuleError, lambda: run(model.params, feeds), "an index is out of range")


def test_updates_that_data_may_leave_out_are_refused(tmp_path: Path) -> None:
    """`o.at[k].set(b)` where k is an input: the exporter leaves updates out that lie outside of the array."""
    text = (
        TEXTS["jax: at[i].set"].replace("float[3, 2] h,", "float[3, 2] h, int64 e,").replace("(i, begin)", "(e, begin)")
    )
    rejects(OnnxError, lambda: load(saved(text, tmp_path)), "which elements are not zero decides a shape")


def test_a_loop_that_data_end_is_refused(tmp_path: Path) -> None:
    """`lax.while_loop(lambda h: (h * h).sum() > 0.1, ...)`."""
    text = """(float[3, 2] h) => (float[3, 2] last) { go = Constant <value = bool {1}> ()
        last = Loop (, go, h) <body = s (int64 i, bool c, float[3, 2] a) => (bool d, float[3, 2] b) {
            half = Constant <value_float = 0.7> () b = Mul (a, half) q = Mul (b, b) s = ReduceSum <keepdims = 0> (q)
            low = Constant <value_float = 0.1> () d = Greater (s, low) }> }"""
    rejects(OnnxError, lambda: load(saved(text, tmp_path)), "a Loop may end before its last trip")
