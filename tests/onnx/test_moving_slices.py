"""Slices that begin where data say, of a size that the file says: `dynamic_slice` of JAX, `narrow` of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from each import check_each
from onnx.reference import ReferenceEvaluator
from rejection import rejects

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model

Array = np.ndarray[Any, Any]
LIST = "Constant <value_ints = [{0}]> ()".format
ONE = f"zero = {LIST(0)} s = Unsqueeze (k, zero)"
TEXTS = {
    "a constant added to all starts": f"""{ONE} one = {LIST(1)} starts = Concat <axis = 0> (s, zero, one)
        lengths = {LIST("2, 3, 2")} ends = Add (starts, lengths) axes = {LIST("0, 1, 2")}
        y = Slice (x, starts, ends, axes)""",
    "starts and ends one by one": f"""{ONE} three = {LIST(3)} e = Add (s, three) other = {LIST(-2)} end = {LIST(-1)}
        starts = Concat <axis = 0> (s, zero) ends = Concat <axis = 0> (e, three) axes = {LIST("1, 0")}
        y = Slice (x, starts, ends, axes)""",
    "one axis": f"{ONE} two = {LIST(2)} e = Add (two, s) y = Slice (x, s, e, zero)",
    "no axes given": f"{ONE} one = {LIST(1)} e = Add (s, one) y = Slice (x, s, e)",
    "steps beyond the end": f"{ONE} far = {LIST(1000000000)} y = Slice (x, s, far, zero, far)",
}


def model_of(text: str, folder: Path) -> Path:
    """A file with the nodes of a form."""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[5, 6, 4] x, int64 k) => (float[A, B, C] y)'
    onnx.save(onnx.parser.parse_model(f"{head} {{ {text} }}"), folder / "slice.onnx")
    return folder / "slice.onnx"


def test_values_gradients_and_what_is_written(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 6, 4))

    def check(name: str) -> None:
        path = model_of(TEXTS[name], tmp_path)
        model = load_model(path)
        export(model, tmp_path / "again.onnx")
        assert str(load(tmp_path / "again.onnx")) == str(model.net)
        for k in (0, 1, 3):
            feeds = {"x": x.astype("float32"), "k": np.array(k)}
            (wanted,) = ReferenceEvaluator(str(path)).run(None, feeds)
            np.testing.assert_array_equal(ro.compile(model.net)(feeds)["y"], wanted)
        ro.testing.check_gradient(model.net, {"x": x, "k": np.array(2)}, sample=6)

    check_each(TEXTS, check)


def test_a_place_outside_of_the_array_is_an_error_in_a_run(tmp_path: Path) -> None:
    net = load(model_of(TEXTS["one axis"], tmp_path))
    run, feeds = ro.compile(net, device="reference"), {"x": np.ones((5, 6, 4), "float32"), "k": np.array(4)}
    rejects(ro.TypeRuleError, lambda: run(feeds), "an index is out of range")


def test_a_place_that_goes_on_from_the_end_to_the_front_is_an_error_in_a_run(tmp_path: Path) -> None:
    """Ends from 0 on count from the front: a Slice from -1 to 0 takes nothing; in steps beyond the end it takes one."""
    x = np.random.default_rng(0).normal(size=(5, 6, 4)).astype("float32")

    def check(name: str) -> None:
        path = model_of(TEXTS[name], tmp_path)
        run = ro.compile(load(path), device="reference")
        for k in range(-5, 1):
            feeds = {"x": x, "k": np.array(k)}
            (wanted,) = ReferenceEvaluator(str(path)).run(None, feeds)
            if wanted.size:
                np.testing.assert_array_equal(run(feeds)["y"], wanted)
            else:
                rejects(ro.TypeRuleError, lambda feeds=feeds: run(feeds), "an index is out of range")

    check_each(["one axis", "no axes given", "starts and ends one by one", "steps beyond the end"], check)


def test_known_places_beside_others_are_cut_to_the_axis(tmp_path: Path) -> None:
    for first, last in ((4, 7), (-2, 0), (-1, 1), (-3, -1)):
        text = f"""{ONE} two = {LIST(2)} e = Add (s, two) first = {LIST(first)} last = {LIST(last)}
            starts = Concat <axis = 0> (s, first) ends = Concat <axis = 0> (e, last) y = Slice (x, starts, ends)"""
        path, feeds = model_of(text, tmp_path), {"x": np.ones((5, 6, 4), "float32"), "k": np.array(1)}
        (wanted,) = ReferenceEvaluator(str(path)).run(None, feeds)
        np.testing.assert_array_equal(ro.compile(load(path))(feeds)["y"], wanted)


def test_sizes_that_data_decide_are_refused(tmp_path: Path) -> None:
    for end in (f"two = {LIST(2)} e = Mul (s, two)", f"two = {LIST(4)} e = Identity (two)"):
        path = model_of(f"{ONE} {end} y = Slice (x, s, e, zero)", tmp_path)
        rejects(OnnxError, lambda path=path: load(path), "input 'starts' decides a shape")


def test_an_array_without_a_finite_number_is_no_parameter(tmp_path: Path) -> None:
    """`jnp.var` takes NaN where it has nothing to take a variance of: in a file, a table of NaN that Where may take."""
    text = """(float[2, 3] x, bool[2, 1] some) => (float[2, 3] y) <float[2, 1] none = {0, 0}, float[1, 3] w = {1, 2, 3}>
        { z = Mul (x, w) y = Where (some, z, none) }"""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full((2, 1), np.nan, "float32"), "none"))
    onnx.save(proto, tmp_path / "nan.onnx")
    model = load_model(tmp_path / "nan.onnx")
    assert set(model.params) == {"w"}
    export(model, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(model.net)
    out = ro.compile(model.net)(model.params, x=np.ones((2, 3), "float32"), some=np.array([[True], [False]]))
    np.testing.assert_array_equal(out["y"], np.array([[1, 2, 3], [np.nan] * 3], "float32"))
