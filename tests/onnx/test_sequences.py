"""Sequences that a file makes and reads: elements, joined arrays, lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from each import check_each
from loop_models import evaluate, loop_feeds, loop_model
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model

TWO = "(float[N, 2] x, float[N, 2] y)"
SPLIT = "(float[T, N, 2] x)"
NUMBERS = "zero = Constant <value_int = 0> () one = Constant <value_int = 1> () last = Constant <value_int = -1> ()"
TEXTS = {
    "elements": f"{TWO} => (float[N, 2] a, float[N, 2] b) {{ {NUMBERS} s = SequenceConstruct (x, y) "
    "a = SequenceAt (s, one) b = SequenceAt (s, last) }",
    "joined": f"{TWO} => (float[N, K] a) {{ s = SequenceConstruct (x, y, x) a = ConcatFromSequence <axis = 1> (s) }}",
    "stacked": f"{TWO} => (float[N, 2, 2] a, float[2, N, 2] b) {{ s = SequenceConstruct (x, y) "
    "a = ConcatFromSequence <axis = -1, new_axis = 1> (s) b = ConcatFromSequence <axis = 0, new_axis = 1> (s) }",
    "changed": f"{TWO} => (float[M, 2] a, int64 n) {{ {NUMBERS} s = SequenceConstruct (x, y) z = Add (x, y) "
    "s2 = SequenceInsert (s, z, zero) s3 = SequenceErase (s2, one) s4 = SequenceInsert (s3, x) s5 = Identity (s4) "
    "a = ConcatFromSequence <axis = 0> (s5) n = SequenceLength (s5) }",
    "steps": f"{SPLIT} => (float[N, 2] a, float[N, K] b, int64 n) {{ {NUMBERS} "
    "s = SplitToSequence <axis = 0, keepdims = 0> (x) a = SequenceAt (s, last) b = ConcatFromSequence <axis = 1> (s) "
    "n = SequenceLength (s) }",
    "steps with their axis": f"{SPLIT} => (float[T, 1, 2] a, float[T, N, 2] b) {{ {NUMBERS} "
    "s = SplitToSequence <axis = 1> (x) a = SequenceAt (s, one) b = ConcatFromSequence <axis = 1> (s) }",
    "pieces": f"{SPLIT} => (float[T, N, 1] a, int64 n) {{ {NUMBERS} s = SplitToSequence <axis = 2> (x, one) "
    "a = SequenceAt (s, zero) n = SequenceLength (s) }",
    "steps as PyTorch cuts them": f"{SPLIT} => (float[N, 2] a) {{ {NUMBERS} "
    "s = SplitToSequence <axis = 0, keepdims = 0> (x, one) a = SequenceAt (s, one) }",
    "pieces of sizes": "(float[N, 5] x) => (float[N, 3] a, float[N, 5] b) { sizes = Constant <value_ints = [2, 3]> () "
    "one = Constant <value_int = 1> () s = SplitToSequence <axis = 1> (x, sizes) a = SequenceAt (s, one) "
    "b = ConcatFromSequence <axis = 1> (s) }",
    "pieces of one size": "(float[N, 5] x) => (float[N, 1] a) { two = Constant <value_int = 2> () "
    "s = SplitToSequence <axis = 1> (x, two) a = SequenceAt (s, two) }",
    "an unknown element": "(float[N, 2] x, float[N, 2] y, int64 i) => (float[N, 2] a) { s = SequenceConstruct (x, y) "
    "a = SequenceAt (s, i) }",
    "by an If": f"(float[N, 2] x, bool c) => (float[N, 2] a) {{ {NUMBERS} s = SequenceConstruct (x, x) "
    "a = If (c) <then_branch = t () => (float[N, 2] r) { q = SequenceAt (s, one) r = Neg (q) }, "
    "else_branch = e () => (float[N, 2] r) { s2 = SequenceInsert (s, x) r = SequenceAt (s2, last) }> }",
}


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_values(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        path = tmp_path / "model.onnx"
        onnx.save(loop_model(TEXTS[name]), path)
        feeds = loop_feeds(onnx.load(path))
        model, wanted = load_model(path), evaluate(onnx.load(path), feeds)
        out = ro.compile(model.net, device=device)(model.params, feeds)
        for key, array in out.items():
            assert (array.shape, array.dtype) == (np.shape(wanted[key]), np.asarray(wanted[key]).dtype), key
            np.testing.assert_allclose(array, wanted[key], rtol=1e-6)
        export(model, tmp_path / "again.onnx")
        assert str(load(tmp_path / "again.onnx")) == str(model.net)

    check_each(TEXTS, check)


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

    def check(name: str) -> None:
        path = tmp_path / "model.onnx"
        onnx.save(loop_model(TEXTS[name]), path)
        feeds = loop_feeds(onnx.load(path))
        model = load_model(path)
        out = ro.compile(model.net, device="reference")(model.params, feeds)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for value, result in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(out[value.name], result, rtol=1e-6)

    check_each(TEXTS, check)


REFUSED = {
    "sizes that a run says": ("(float[N, 5] x, int64[2] k) => (float[N, 2] a) { i = Constant <value_int = 0> () "
                              "s = SplitToSequence <axis = 1> (x, k) a = SequenceAt (s, i) }",
                              "not known before a run"),
    "an axis that is not there": ("(float[N] x) => (float[N] a) { s = SequenceConstruct (x) "
                                  "a = ConcatFromSequence <axis = 3> (s) }", "the axis is out of range"),
    "an array as a sequence": ("(float[N] x) => (int64 a) { a = SequenceLength (x) }", "not a sequence"),
    "a sequence as an array": ("(float[N] x) => (float[N] a) { s = SequenceConstruct (x) a = Neg (s) }",
                               "is read as an array"),
    "a name twice": ("(float[N] x) => (int64 a) { s = SequenceConstruct (x) s = SequenceConstruct (x) "
                     "a = SequenceLength (s) }", "two values"),
    "the same in an array": ("(float[N] x) => (int64 a) { s = SequenceConstruct (x) s = Neg (x) "
                             "a = SequenceLength (s) }", "two values"),
}  # fmt: skip


def test_refused(tmp_path: Path) -> None:
    def check(name: str) -> None:
        text, problem = REFUSED[name]
        onnx.save(loop_model(text), tmp_path / "model.onnx")
        rejects(OnnxError, lambda: load(tmp_path / "model.onnx"), problem, "model.onnx")

    check_each(REFUSED, check)
