"""If: one branch where sizes decide which, else both; names, sizes and parameters inside branches; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from devices import DEVICES
from each import check_each
from if_models import ALL, BY_CONSTANT, BY_DATA, BY_OPEN_SIZE, TO_A_SCALAR, model_of
from onnx.reference import ReferenceEvaluator
from rejection import rejects

import rnnops as ro
from rnnops.errors import RnnopsError
from rnnops.onnx import OnnxError, OnnxModel, export, load, load_model


def written(graph: str, folder: Path) -> Path:
    """A file with a graph."""
    path = folder / "model.onnx"
    onnx.save(model_of(graph), path)
    return path


def feeds_of(path: Path, flags: int, rows: int = 2) -> dict[str, np.ndarray[Any, Any]]:
    """Random numbers, and bits of `flags` for the bools."""
    random, sizes, feeds = np.random.default_rng(0), {"T": 4, "N": rows}, {}
    for value in onnx.load(path).graph.input:
        kind = value.type.tensor_type
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.BOOL:
            feeds[value.name] = np.full(shape, bool(flags & 1))
            flags >>= 1
        else:
            feeds[value.name] = random.normal(size=shape).astype("float32")
    return feeds


def read(name: str, folder: Path) -> tuple[Path, OnnxModel]:
    path = written(ALL[name], folder)
    return path, load_model(path)


@pytest.mark.parametrize("device", ["reference", "plain"])
def test_values(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        path, model = read(name, tmp_path)
        evaluator = ReferenceEvaluator(str(path))
        for flags in range(4):
            feeds = feeds_of(path, flags)
            out = DEVICES[device](model.net)(model.params, feeds)
            for key, wanted in zip(evaluator.output_names, evaluator.run(None, feeds), strict=True):
                assert out[key].shape == np.shape(wanted)
                np.testing.assert_allclose(out[key], wanted, rtol=1e-5, atol=1e-6)

    check_each(ALL, check)


def test_gradients(tmp_path: Path) -> None:
    def check(name: str) -> None:
        path, model = read(name, tmp_path)
        for flags in range(4):
            arrays = {**model.params, **feeds_of(path, flags)}
            wide = {key: array.astype("float64") if array.dtype.kind == "f" else array for key, array in arrays.items()}
            ro.testing.check_gradient(model.net, wide)

    check_each(ALL, check)


def test_written_again_they_are_the_same_nets(tmp_path: Path) -> None:
    def check(name: str) -> None:
        path, model = read(name, tmp_path)
        export(model, tmp_path / "again.onnx")
        if name != "a Scan inside":  # its body has names of values around it, which are not written twice
            assert str(load(tmp_path / "again.onnx")) == str(model.net)
        feeds = feeds_of(path, 1)
        again = ReferenceEvaluator(str(tmp_path / "again.onnx"))
        for one, other in zip(again.run(None, feeds), ReferenceEvaluator(str(path)).run(None, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)

    check_each(ALL, check)


def test_what_is_known_leaves_one_branch(tmp_path: Path) -> None:
    """The other one is not read: its weights are not parameters, its results are not computed."""
    for name in ("by a constant", "by a fixed size"):
        _, model = read(name, tmp_path)
        assert set(model.params) == {"w", "v"}
        assert "Tanh" not in {op.type for op in model.net.ops}
    net = load(written(BY_DATA, tmp_path), constants={"c": False})
    assert "v" not in net
    assert "Where" not in {op.type for op in net.ops}


def test_other_sizes_than_those_that_were_tried_are_refused(tmp_path: Path) -> None:
    for text in (BY_OPEN_SIZE, TO_A_SCALAR):
        path = written(text, tmp_path)
        net = load(path)
        for rows in (0, 2, 3) if text is BY_OPEN_SIZE else (2, 3):
            feeds = feeds_of(path, 0, rows)
            wanted = ReferenceEvaluator(str(path)).run(None, feeds)[0]
            np.testing.assert_array_equal(ro.compile(net, device="reference")(feeds)["y"], wanted)
        for device in ("reference", "plain"):
            with pytest.raises(RnnopsError, match="y/guarded"):
                DEVICES[device](net)(feeds_of(path, 0, 1))


def test_results_whose_sizes_differ_in_a_run_are_refused(tmp_path: Path) -> None:
    """Where would broadcast one of them."""
    text = """(float[N,3] x, bool c) => (float y) { size = Shape<start = 0, end = 1>(x)
        most = Constant<value_ints = [100]>() few = Min(size, most) one = Constant<value_floats = [1.0]>()
        y = If(c) <then_branch = t() => (float r) { r = Expand(one, few) },
                   else_branch = e() => (float r) { r = Expand(one, most) }> }"""
    net = load(written(text, tmp_path))
    x, c = np.ones((100, 3), "float32"), np.array(True)
    assert ro.compile(net, device="reference")(x=x, c=c)["y"].shape == (100,)
    with pytest.raises(RnnopsError, match="y/otherwise"):
        ro.compile(net, device="reference")(x=x[:1], c=c)


REFUSED = {
    "branches of two shapes": (
        BY_DATA.replace("r = Tanh(z2)", "r = ReduceMax(z2)"),
        "one dtype and one shape; got float32[?, 3] and float32[1, 1]",
    ),
    "branches of two dtypes": (BY_DATA.replace("r = Tanh(z2)", "r = Less(z, w)"), "branches give results of different"),
    "a condition that is a number": (BY_DATA.replace("bool c", "float c"), "one input, a bool"),
    "a condition of two": (BY_CONSTANT.replace("bool c = {1}", "bool[2] c = {1, 1}"), "must have one element"),
    "a branch with an input": (BY_DATA.replace("t()", "t(float[N,3] q)"), "graph 'then_branch' does not fit"),
    "a result too few": (BY_DATA.replace("y = If", "y, z = If"), "graph 'then_branch' does not fit"),
    "no branch": (BY_DATA.replace("else_branch", "other_branch"), "attribute 'else_branch' is not a graph"),
    "two values of a name": (
        BY_DATA.replace("z2 = Mul(z, v) r", "z2 = Mul(z, v) v = Neg(z2) r"),
        "two values have this name",
    ),
    "an op that is not read": (BY_DATA.replace("r = Tanh(z2)", "r = Det(z2)"), "has ops that rnnops does not have"),
    "a value of a branch behind it": (BY_DATA.replace("}> }", "}> q = Add(y, v) }"), "no earlier node makes"),
    "a value of the other branch": (BY_DATA.replace("r = Tanh(z2)", "r = Mul(z2, v)"), "no earlier node makes"),
}


def test_refused(tmp_path: Path) -> None:
    def check(name: str) -> None:
        text, problem = REFUSED[name]
        path = written(text, tmp_path)
        rejects(OnnxError, lambda: load(path), problem)

    check_each(REFUSED, check)
