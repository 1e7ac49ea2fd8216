"""Products of quantised files, node by node: exact results, and sums of pairs that leave 16 bits."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, save
from onnx.reference import ReferenceEvaluator
from quantised_models import dense, in_seven_bits, lstm_node, lstm_weights, model_of
from saturating import MatMulInteger, saturated_product

from rnnops.kernels.cpu.processor import has_quads
from rnnops.onnx.compare import Session
from rnnops.onnx.outline import in_bytes, pairs_beyond, products_of_file, states_of_lstm, windows_of_conv

Array = np.ndarray[Any, Any]


def exactly(model: Any, feeds: dict[str, Array], *new_ops: Any) -> dict[str, Array]:
    """A model run by `onnx.reference`, perhaps with other ops."""
    made = ReferenceEvaluator(model, new_ops=new_ops or None).run(None, feeds)
    return dict(zip([value.name for value in model.graph.output], made, strict=True))


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(0)


def draw_bytes(draw: np.random.Generator, dtype: str, *shape: int) -> Array:
    """Large numbers of 8 bits, of both signs where there are two."""
    bounds = np.iinfo(dtype)
    ends = draw.choice([bounds.min + 20, bounds.max], shape)
    return np.asarray(ends - draw.integers(0, 20, shape), dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("inner", [1, 6, 7])
def test_pairs_are_counted_one_by_one(draw: np.random.Generator, dtype: str, inner: int) -> None:
    a, b = draw_bytes(draw, dtype, 9, inner), draw_bytes(draw, "int8", inner, 8)
    moved, beyond = a.astype(int) + (128 if dtype == "int8" else 0), 0
    for row, column, k in product(range(9), range(8), range(0, inner, 2)):
        total = sum(int(moved[row, at]) * int(b[at, column]) for at in range(k, min(k + 2, inner)))
        beyond += not -32768 <= total <= 32767
    assert pairs_beyond(a, b) == (beyond, 9 * 8 * ((inner + 1) // 2))
    assert beyond > 0 or inner == 1
    assert pairs_beyond(a, b.view("uint8")) == (0, 9 * 8 * ((inner + 1) // 2))


@pytest.mark.parametrize("shapes", [((5, 8), (8, 3)), ((2, 5, 8), (8, 3)), ((2, 5, 8), (2, 8, 3)), ((8,), (8, 3))])
def test_a_sum_that_stops_at_16_bits_is_found(draw: np.random.Generator, shapes: Any, tmp_path: Path) -> None:
    """It is the runtime's error by so many pairs; the exact one has no error and as many pairs."""
    weights = {"b": draw_bytes(draw, "int8", *shapes[1]), "a_zero": np.uint8(7)}
    feeds = {"a": draw_bytes(draw, "uint8", *shapes[0])}
    model = model_of([helper.make_node("MatMulInteger", ["a", "b", "a_zero"], ["y"], "fc")], feeds, ["y"], weights)
    save(model, tmp_path / "one.onnx")
    (exact,) = products_of_file(tmp_path / "one.onnx", feeds, exactly)
    (wrong,) = products_of_file(tmp_path / "one.onnx", feeds, lambda *given: exactly(*given, MatMulInteger))
    assert (exact.name, exact.op, exact.theirs, exact.ours) == ("fc", "MatMulInteger", 0, 0)
    assert wrong.theirs > 0 == wrong.ours
    assert exact.beyond == wrong.beyond > 0
    assert [one.saturates(1e-4) for one in (exact, wrong)] == [False, True]
    whole = saturated_product(feeds["a"], weights["b"], 7)
    right = (feeds["a"].astype(int) - 7) @ weights["b"].astype(int)
    assert wrong.theirs == np.abs(whole - right).max() / np.abs(right).max()


def test_each_product_reads_what_the_runtime_gives_it(draw: np.random.Generator, tmp_path: Path) -> None:
    """A node behind a wrong one is not wrong."""
    weights = {name: draw_bytes(draw, "int8", 8, 8) for name in "vw"} | {
        f"{name}_scale": np.float32(0.01) for name in "vw"
    }
    weights |= {f"{name}_zero": np.int8(0) for name in "vw"}
    weights["v"] //= 4
    x = draw.normal(size=(5, 8)).astype("float32")
    save(model_of([*dense("x", "w", "h"), *dense("h", "v", "y")], {"x": x}, ["y"], weights), tmp_path / "one.onnx")
    first, second = products_of_file(tmp_path / "one.onnx", {"x": x}, lambda *given: exactly(*given, MatMulInteger))
    assert first.theirs > 0 < first.beyond
    assert (second.theirs, second.beyond) == (0, 0)


@pytest.mark.parametrize("case", ["QLinearMatMul", "QLinearConv"])
def test_quantised_results(draw: np.random.Generator, case: str, tmp_path: Path) -> None:
    shapes = {"QLinearMatMul": ((5, 8), (8, 3)), "QLinearConv": ((2, 3, 9), (4, 3, 3))}[case]
    parts = {"b": draw_bytes(draw, "int8", *shapes[1]), "a_scale": np.float32(0.02), "a_zero": np.uint8(3)}
    parts |= {"b_scale": np.float32(0.01), "b_zero": np.int8(0), "y_scale": np.float32(0.5), "y_zero": np.uint8(90)}
    names = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
    feeds = {"a": draw_bytes(draw, "uint8", *shapes[0])}
    save(model_of([helper.make_node(case, names, ["y"])], feeds, ["y"], parts), tmp_path / "one.onnx")
    (found,) = products_of_file(tmp_path / "one.onnx", feeds, exactly)
    assert (found.theirs, found.ours) == (0, 0)
    assert 0 < found.beyond < found.pairs


@pytest.mark.parametrize("attributes", [{}, {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 3]}])
def test_windows_times_weights_are_a_convolution(draw: np.random.Generator, attributes: dict[str, Any]) -> None:
    x, w = draw_bytes(draw, "uint8", 2, 3, 9, 8), draw_bytes(draw, "int8", 4, 3, 3, 2)
    model = model_of([helper.make_node("ConvInteger", ["x", "w"], ["y"], **attributes)], {"x": x, "w": w}, ["y"])
    wanted = exactly(model, {"x": x, "w": w})["y"]
    inputs = [x, None, None, w]
    ((windows, weights),) = windows_of_conv(helper.make_node("QLinearConv", [], [], **attributes), inputs, {})
    rows = windows.astype("int64") @ weights.astype("int64")
    np.testing.assert_array_equal(np.moveaxis(wanted, 1, -1).reshape(-1, 4), rows)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_lstms_differ_only_by_what_they_round(
    draw: np.random.Generator, direction: str, given: bool, wide: bool, tmp_path: Path
) -> None:
    """Each one is the exact one of its kind, and no result of the file is needed for that.

    Where sums leave 16 bits, ONNX Runtime is wrong on a processor without VNNI, and is told to be.
    """
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    directions = 2 if direction == "bidirectional" else 1
    x, weights = draw.normal(size=(9, 3, 6)).astype("float32"), lstm_weights(draw, directions, 6, 8)
    weights.update(w_zero=np.zeros(directions, "int8"), r_zero=np.zeros(directions, "int8"))
    weights.update({name: draw.normal(size=(directions, 3, 8)).astype("float32") for name in ("h", "c")})
    weights = weights if wide else in_seven_bits(weights)
    node = lstm_node("x", ["", "y"], hidden_size=8, direction=direction)
    if given:
        node.input[5], node.input[6] = "h", "c"
    model = model_of([node], {"x": x}, ["y"], weights)
    model.graph.output[0].type.tensor_type.elem_type = 1
    model.opset_import[0].version, model.ir_version = 17, 8
    save(model, tmp_path / "one.onnx")
    runtime = lambda model, feeds: Session(tmp_path / "one.onnx", model)(feeds)  # noqa: E731
    (found,) = products_of_file(tmp_path / "one.onnx", {"x": x}, runtime)
    assert found.ours < 1e-5
    assert (found.beyond > 0) == wide
    is_wrong = wide and not has_quads(256) and not has_quads(512)
    assert found.saturates(1e-4) == is_wrong
    assert is_wrong or found.theirs < 2e-3  # one state rounded the other way
    assert found.pairs == directions * 3 * 32 * (9 * 3 + (8 + given) * 4)


def test_the_last_state_is_in_no_product(draw: np.random.Generator) -> None:
    """It is that of the first step where a direction begins with the last one."""
    weights, states = lstm_weights(draw, 2, 6, 8), draw.normal(size=(5, 2, 3, 8)).astype("float32")
    inputs = [draw.normal(size=(5, 3, 6)).astype("float32"), weights["w"], weights["r"], None, None, None]
    _, (forwards, _), _, (backwards, _) = states_of_lstm(lstm_node("x", ["y"]), inputs, {"y": states})
    for rows, before in ((forwards, states[:-1, 0]), (backwards, states[1:, 1])):
        np.testing.assert_array_equal(rows, np.concatenate([in_bytes(one).numbers for one in before]))
