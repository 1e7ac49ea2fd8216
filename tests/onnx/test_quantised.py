"""Quantised ops: the numbers of integer arithmetic, weights as parameters, gradients where nothing is rounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from devices import DEVICES
from onnx import helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator
from quantised_models import MICROSOFT, dense, in_seven_bits, lstm_node, lstm_weights, model_of, quantised_tagger

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model

Array = np.ndarray[Any, Any]
DTYPES = ("uint8", "int8", "uint16", "int16")


def draw_integers(draw: np.random.Generator, dtype: str, *shape: int) -> Array:
    bounds = np.iinfo(dtype)
    return draw.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def read(model: Any, folder: Path, again: bool = True) -> Any:
    """A model that was read, which is written and read as the same net."""
    save(model, folder / "one.onnx")
    found = load_model(folder / "one.onnx")
    export(found, folder / "again.onnx", opset=21)
    assert not again or str(load(folder / "again.onnx")) == str(found.net)
    return found


def check(model: Any, feeds: dict[str, Array], folder: Path, wanted: list[Array] | None = None) -> Any:
    """Compare with `onnx.reference`, or with what is wanted, on two devices."""
    found = read(model, folder)
    wanted = ReferenceEvaluator(model).run(None, feeds) if wanted is None else wanted
    for device in ("reference", "plain"):
        out = DEVICES[device](found.net)(found.params, feeds)
        for (name, array), right in zip(out.items(), wanted, strict=True):
            assert (array.dtype, array.shape) == (right.dtype, right.shape), (name, device)
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6, err_msg=f"{name} {device}")
    return found


@pytest.mark.parametrize("kind", ["around 0", "above 0", "below 0", "zeros"])
def test_dynamic_quantize_linear(kind: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 7)).astype("float32")
    x = {"around 0": x, "above 0": np.abs(x) + 1, "below 0": -np.abs(x) - 1, "zeros": 0 * x}[kind]
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    check(model_of([node], {"x": x}, ["y", "scale", "zero"]), {"x": x}, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("fixed", [False, True])
def test_quantize_and_dequantize(dtype: str, axis: int | None, fixed: bool, tmp_path: Path) -> None:
    """Halves fall on even numbers, what is beyond the range on its ends; scales come with the run or the file."""
    draw = np.random.default_rng(1)
    count = () if axis is None else ((4, 3, 5)[axis],)
    x = (draw.integers(-9, 10, (4, 3, 5)) / 2).astype("float32")
    x[0, 0] = 1e9, -1e9, 0.5, 1.5, -2.5
    scales = {"scale": draw.choice([0.5, 1, 2], count).astype("float32"), "zero": draw_integers(draw, dtype, *count)}
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **attributes),
    ]
    feeds = {"x": x} if fixed else {"x": x, **scales}
    check(model_of(nodes, feeds, ["q", "y"], scales if fixed else None), feeds, tmp_path)


def test_blocks_of_an_axis(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    x, q = draw.normal(size=(2, 6, 3)).astype("float32"), draw_integers(draw, "int8", 2, 6, 3)
    parts = {"scale": draw.uniform(0.1, 1, (2, 2, 3)).astype("float32"), "zero": draw_integers(draw, "int8", 2, 2, 3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["a"], axis=1, block_size=3),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["b"], axis=1, block_size=3),
    ]
    feeds = {"x": x, "q": q, **parts}
    check(model_of(nodes, feeds, ["a", "b"]), feeds, tmp_path)
    wanted = ReferenceEvaluator(model_of(nodes, feeds, ["a", "b"])).run(None, feeds)
    found = check(model_of(nodes, {"x": x}, ["a", "b"], {"q": q, **parts}), {"x": x}, tmp_path, wanted)
    assert [array.dtype for array in found.params.values()].count(np.float32) == len(found.params)


def whole_product(a: Array, b: Array, a_zero: Any = 0, b_zero: Any = 0) -> Array:
    return ((a.astype("int64") - a_zero) @ (b.astype("int64") - b_zero)).astype("int32")


@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("shapes", [((3, 4), (4, 2)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((4,), (4, 2))])
@pytest.mark.parametrize("fixed", [False, True])
def test_matmul_integer(dtypes: Any, shapes: Any, fixed: bool, tmp_path: Path) -> None:
    """Zero points for all, left out, or one for each row and one for each column."""
    draw = np.random.default_rng(3)
    a, b = (draw_integers(draw, dtype, *shape) for dtype, shape in zip(dtypes, shapes, strict=True))
    zeros: list[dict[str, Array]] = [{}, {"a_zero": np.array(7, a.dtype), "b_zero": np.array([3], b.dtype)}]
    if a.ndim == b.ndim == 2:
        zeros.append({"a_zero": draw_integers(draw, dtypes[0], 3), "b_zero": draw_integers(draw, dtypes[1], 2)})
    for zero in zeros:
        node = helper.make_node("MatMulInteger", ["a", "b", *zero], ["y"])
        left = zero.get("a_zero", np.array(0)).astype("int64")
        wanted = whole_product(a, b, left[:, None] if left.size > 1 else left, zero.get("b_zero", np.int64(0)))
        weights, feeds = ({"b": b, **zero}, {"a": a}) if fixed else (None, {"a": a, "b": b, **zero})
        check(model_of([node], feeds, ["y"], weights), feeds, tmp_path, [wanted])


@pytest.mark.parametrize("terms", [258, 259, 1000])
@pytest.mark.parametrize("fixed", [False, True])
def test_long_sums_are_exact(terms: int, fixed: bool, tmp_path: Path) -> None:
    """Of the largest products, which float32 would round: they are summed up in pieces."""
    a, b = np.full((2, terms), 255, "uint8"), np.full((terms, 3), 255, "uint8")
    a[1, 1::2] = 254
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    model = model_of([node], {"a": a}, ["y"], {"b": b}) if fixed else model_of([node], {"a": a, "b": b}, ["y"])
    found = check(model, {"a": a} if fixed else {"a": a, "b": b}, tmp_path, [whole_product(a, b)])
    pieces = sum(op.type == "MatMul" for op in found.net.ops)
    assert pieces == -(-terms // 258)


def test_sums_of_open_length_are_refused(tmp_path: Path) -> None:
    ones = np.ones((2, 2), "uint8")
    model = model_of([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], {"a": ones, "b": ones}, ["y"])
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "K"
    save(model, tmp_path / "one.onnx")
    with pytest.raises(OnnxError, match="the number of summed products"):
        load(tmp_path / "one.onnx")


def test_products_that_weights_keep_small_are_one(tmp_path: Path) -> None:
    b = draw_integers(np.random.default_rng(4), "int8", 900, 3) // 4
    a = draw_integers(np.random.default_rng(5), "uint8", 2, 900)
    model = model_of([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], {"a": a}, ["y"], {"b": b})
    found = check(model, {"a": a}, tmp_path, [whole_product(a, b)])
    assert sum(op.type == "MatMul" for op in found.net.ops) == 1


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("columns", [False, True])
def test_qlinear_matmul(dtype: str, columns: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(6)
    wide = (5,) if columns else ()
    parts = {
        "b": draw_integers(draw, "int8", 4, 5),
        "a_scale": np.float32(0.02),
        "a_zero": np.array(3, dtype),
        "b_scale": draw.uniform(0.01, 0.02, wide).astype("float32"),
        "b_zero": np.zeros(wide, "int8"),
        "y_scale": np.float32(0.5),
        "y_zero": np.array(9, dtype),
    }
    names = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
    feeds = {"a": draw_integers(draw, dtype, 3, 4)}
    model = model_of([helper.make_node("QLinearMatMul", names, ["y"])], feeds, ["y"], parts)
    check(model, feeds, tmp_path)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("fixed", [False, True])
def test_an_lstm_is_one_with_the_weights_that_are_meant(
    columns: bool, directions: int, fixed: bool, tmp_path: Path
) -> None:
    draw = np.random.default_rng(7)
    weights = lstm_weights(draw, directions, 4, 3, columns)
    x = draw.normal(size=(5, 2, 4)).astype("float32")
    direction = "bidirectional" if directions == 2 else "forward"
    names, attributes = ["y", "y_h", "y_c"], {"direction": direction, "hidden_size": 3}
    found = quantised_lstm(weights, x, names, attributes, fixed, tmp_path)
    meant = {"b": weights["b"]}
    for key in ("w", "r"):
        zero, scale = (weights[f"{key}_{part}"].reshape(directions, 1, -1) for part in ("zero", "scale"))
        meant[key] = np.ascontiguousarray(((weights[key] - zero.astype("int64")) * scale).transpose(0, 2, 1))
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], names, **attributes)
    meant = {key: array.astype("float32") for key, array in meant.items()}
    save(model_of([node], {"x": x}, names, meant), tmp_path / "float.onnx")
    plain = load_model(tmp_path / "float.onnx")
    wanted = ro.compile(plain.net, device="reference")(plain.params, x=x)
    for device in DEVICES:
        feeds = {"x": x} if fixed else {"x": x, **weights}
        out = DEVICES[device](found.net)(found.params, feeds)
        for name in names:
            np.testing.assert_allclose(out[name], wanted[name], rtol=1e-5, atol=1e-6)
    if fixed:
        assert str(plain.net).replace(" w ", " w/float ").count("RecurrentNetwork") == directions
        assert {key.split("/")[0] for key in found.params} == {"w", "r", "b"}


def quantised_lstm(
    weights: dict[str, Array], x: Array, names: list[str], attributes: dict[str, Any], fixed: bool, folder: Path
) -> Any:
    node = lstm_node("x", names, **attributes)
    model = model_of([node], {"x": x} if fixed else {"x": x, **weights}, names, weights if fixed else None)
    return read(model, folder, again=fixed)  # else the ops before the LSTM have other names


def test_weights_are_parameters_and_tables_stay_bytes(tmp_path: Path) -> None:
    """No run computes with quantised weights again; the text of a net has no table of numbers."""
    found = read(quantised_tagger(), tmp_path)
    dtypes = {name: array.dtype.name for name, array in found.params.items()}
    assert dtypes.pop("table_quantized") == "uint8"
    assert set(dtypes) == {"w/float", "r/float", "b", "out/float", "out_scale"}
    assert set(dtypes.values()) == {"float32"}
    assert "table_quantized" not in [spec.name for spec in found.net.parameters]
    assert len(str(found.net)) < 9000
    words = np.array([[1, 8], [0, 3], [5, 5]])
    wanted = ro.compile(found.net, device="reference")(found.params, words=words)["scores"]
    for device in DEVICES:
        run = DEVICES[device](found.net)
        np.testing.assert_allclose(run(found.params, words=words)["scores"], wanted, rtol=1e-4, atol=1e-5)
        bound = run.bind(**found.params)
        np.testing.assert_allclose(bound(words=words)["scores"], wanted, rtol=1e-4, atol=1e-5)


def test_gradients_reach_weights_behind_integers_and_stop_at_rounding(tmp_path: Path) -> None:
    """Those of the product's weights are exact; the states before it are rounded, and what made them gets none."""
    found = read(quantised_tagger(), tmp_path)
    words = np.array([[1, 8], [0, 3], [5, 5]])
    wide = {name: array.astype("float64") if array.dtype.kind == "f" else array for name, array in found.params.items()}
    out, pullback = ro.compile(found.net, device="reference").vjp(wide, words=words)
    dy = np.random.default_rng(8).normal(size=out["scores"].shape)
    grads = pullback({"scores": dy})
    for name in ("out/float", "out_scale"):
        step = np.random.default_rng(9).normal(size=wide[name].shape)
        moved = [
            ro.compile(found.net, device="reference")({**wide, name: wide[name] + sign * 1e-6 * step}, words=words)
            for sign in (1, -1)
        ]
        slope = np.sum(dy * (moved[0]["scores"] - moved[1]["scores"])) / 2e-6
        np.testing.assert_allclose(np.sum(grads[name] * step), slope, rtol=1e-6)
        assert abs(slope) > 1e-3


def test_dequantised_weights_are_trained_as_floats(tmp_path: Path) -> None:
    draw = np.random.default_rng(10)
    weights = {"q": draw_integers(draw, "int8", 4, 3), "scale": draw.uniform(0.01, 0.02, 3).astype("float32")}
    nodes = [helper.make_node("DequantizeLinear", ["q", "scale"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    x = draw.normal(size=(2, 4)).astype("float32")
    found = check(model_of(nodes, {"x": x}, ["y"], weights), {"x": x}, tmp_path)
    np.testing.assert_allclose(found.params["q/float"], weights["q"] * weights["scale"], rtol=1e-6)
    wide = {name: array.astype("float64") for name, array in {**found.params, "x": x}.items()}
    assert ro.testing.check_gradient(found.net, wide).error < 1e-6


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_weights_of_integers_in_a_model_of_float64(op: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(11)
    shape, weight = {"MatMulInteger": ((2, 4), (4, 3)), "ConvInteger": ((2, 4, 5), (3, 4, 2))}[op]
    feeds = {"x": draw_integers(draw, "uint8", *shape), "b": draw.normal(size=1)}
    nodes = [
        helper.make_node(op, ["x", "w"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=onnx.TensorProto.DOUBLE),
        helper.make_node("Add", ["f", "b"], ["y"]),
    ]
    found = check(model_of(nodes, feeds, ["y"], {"w": draw_integers(draw, "int8", *weight)}), feeds, tmp_path)
    assert found.params["w/float"].dtype == "float64"


def test_weights_that_nobody_reads_stay(tmp_path: Path) -> None:
    weights = {"unread": np.ones((2, 3), "float32"), "bytes": np.ones((2, 3), "int8")}
    x = np.ones(3, "float32")
    found = check(model_of([helper.make_node("Tanh", ["x"], ["y"])], {"x": x}, ["y"], weights), {"x": x}, tmp_path)
    assert set(found.params) == set(weights)


def test_weights_that_nodes_share_are_one_parameter(tmp_path: Path) -> None:
    draw = np.random.default_rng(11)
    weights = {"w": draw_integers(draw, "int8", 4, 4), "w_scale": np.float32(0.01), "w_zero": np.int8(1)}
    x = draw.normal(size=(2, 4)).astype("float32")
    found = check(
        model_of([*dense("x", "w", "h"), *dense("h", "w", "y")], {"x": x}, ["y"], weights), {"x": x}, tmp_path
    )
    assert list(found.params) == ["w/float"]


def body_of(weights: dict[str, Any]) -> Any:
    """One step of a Scan: a state plus a quantised product of what comes in; and bytes that are looked up."""
    nodes = [
        *dense("x", "w", "y"),
        helper.make_node("Gather", ["table", "place"], ["row"]),
        helper.make_node("Cast", ["row"], ["row_f"], to=1),
        helper.make_node("Add", ["y", "row_f"], ["z"]),
        helper.make_node("Add", ["h", "z"], ["h_new"]),
        helper.make_node("Identity", ["h_new"], ["out"]),
    ]
    values = [helper.make_tensor_value_info(name, 1, [4]) for name in ("h", "x", "h_new", "out")]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    return helper.make_graph(nodes, "body", values[:2], values[2:], tensors)


@pytest.mark.parametrize("inside", [True, False])
def test_weights_in_and_around_the_body_of_a_scan(inside: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(14)
    weights = {"w": draw_integers(draw, "int8", 4, 4), "w_scale": np.float32(0.01), "w_zero": np.int8(2)}
    weights |= {"table": draw_integers(draw, "int8", 3, 4), "place": np.array(1)}
    body = body_of(weights if inside else {})
    node = helper.make_node("Scan", ["h0", "xs"], ["last", "all"], body=body, num_scan_inputs=1)
    feeds = {"h0": draw.normal(size=4).astype("float32"), "xs": draw.normal(size=(5, 4)).astype("float32")}
    found = read(model_of([node], feeds, ["last", "all"], {} if inside else weights), tmp_path)
    assert {name: array.dtype.name for name, array in found.params.items()} == {"w/float": "float32", "table": "int8"}
    h, states = feeds["h0"], []
    for x in feeds["xs"]:
        h = h + eight_bits(x) @ ((weights["w"] - 2.0) * np.float32(0.01)) + weights["table"][1]
        states.append(h)
    for device in DEVICES:
        out = DEVICES[device](found.net)(found.params, feeds)
        np.testing.assert_allclose(out["all"], np.stack(states), rtol=1e-5, atol=1e-4)


WRONG = {
    "scales of another length": ("DequantizeLinear", ["q", "long"], {"axis": 1}, "do not lie along the axis"),
    "an axis that is not there": ("DequantizeLinear", ["q", "wide"], {"axis": 2}, "do not lie along the axis"),
    "blocks that do not fit": ("DequantizeLinear", ["q", "table"], {"axis": 1, "block_size": 2**40}, "do not lie"),
    "numbers that are floats": ("DequantizeLinear", ["x", "one"], {}, "not an array of quantised numbers"),
    "a scale that is whole": ("DequantizeLinear", ["q", "q"], {}, "a scale is not a float"),
    "a zero point of another dtype": ("DequantizeLinear", ["q", "one", "bytes"], {}, "another dtype than its numbers"),
    "integers that are quantised": ("QuantizeLinear", ["q", "one"], {}, "numbers of this dtype cannot be quantised"),
    "a scale of 0": ("QuantizeLinear", ["x", "none"], {}, "a scale is missing or 0"),
    "results of 32 bits": ("QuantizeLinear", ["x", "one"], {"output_dtype": 6}, "cannot have this dtype"),
    "an axis of the run's operand that is not there": ("QuantizeLinear", ["x", "wide"], {"axis": 7}, "out of range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_meaning_is_refused(name: str, tmp_path: Path) -> None:
    op, inputs, attributes, message = WRONG[name]
    weights = {
        "q": np.ones((2, 3), "int8"),
        "long": np.ones(4, "float32"),
        "wide": np.ones(3, "float32"),
        "table": np.ones((2, 2), "float32"),
        "none": np.float32(0),
        "one": np.float32(1),
        "bytes": np.uint8(1),
    }
    model = model_of(
        [helper.make_node(op, inputs, ["y"], **attributes)], {"x": np.ones((2, 3), "float32")}, ["y"], weights
    )
    save(model, tmp_path / "one.onnx")
    with pytest.raises(OnnxError, match=message):
        load(tmp_path / "one.onnx")


def test_foreign_ops_are_counted_by_domain(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gelu", ["x"], ["a"], domain="org.example"),
        helper.make_node("Gelu", ["a"], ["b"], domain="org.example"),
        helper.make_node("Scaler", ["b"], ["y"], domain="ai.onnx.ml", offset=[0.0], scale=[1.0]),
        helper.make_node("Attention2", ["b"], ["z"], domain=MICROSOFT),
    ]
    save(model_of(nodes, {"x": np.ones(3, "float32")}, ["y", "z"]), tmp_path / "one.onnx")
    with pytest.raises(OnnxError) as error:
        load(tmp_path / "one.onnx")
    listed = "ai.onnx.ml::Scaler, com.microsoft::Attention2, org.example::Gelu (nodes of each: 1, 1, 2)"
    assert listed in str(error.value)


def eight_bits(x: Array) -> Array:
    """What numbers become that are rounded to 8 bits by their own range."""
    low, high = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
    scale = (high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.asarray((np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale)


def lstm_by_hand(x: Array, weights: dict[str, Array], rounded: Any) -> Array:
    """All states of a forward LSTM, whose operands of products are rounded somehow: x once, h at each step."""
    w, r = ((weights[key][0] - weights[f"{key}_zero"][0]) * weights[f"{key}_scale"][0] for key in ("w", "r"))
    bias = weights["b"][0].reshape(2, -1).sum(0)
    h = c = np.zeros((x.shape[1], r.shape[0]))
    states, from_x = [], rounded(x) @ w + bias
    for at in from_x:
        i, o, f, g = np.split(at + (rounded(h) if h.any() else h) @ r, 4, -1)
        i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = (o * np.tanh(c)).astype("float32")
        states.append(h)
    return np.stack(states)[:, None]


def test_onnxruntime_differs_by_its_rounding_of_states_alone(tmp_path: Path) -> None:
    """With it, plain loops give its numbers; without it, those of the net: the difference is the quantisation's."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    draw = np.random.default_rng(12)
    x, weights = draw.normal(size=(9, 3, 6)).astype("float32"), in_seven_bits(lstm_weights(draw, 1, 6, 8))
    weights.update(w_zero=np.zeros(1, "int8"), r_zero=np.zeros(1, "int8"))
    model = model_of([lstm_node("x", ["y"], hidden_size=8)], {"x": x}, ["y"], weights)
    model.graph.output[0].type.tensor_type.elem_type = 1
    model.opset_import[0].version, model.ir_version = 17, 8
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    theirs, found = session.run(None, {"x": x})[0], read(model, tmp_path)
    ours = ro.compile(found.net, device="reference")(found.params, x=x)["y"]
    np.testing.assert_allclose(theirs, lstm_by_hand(x, weights, eight_bits), atol=1e-6)
    np.testing.assert_allclose(ours, lstm_by_hand(x, weights, np.asarray), atol=1e-6)
    assert 1e-4 < np.abs(ours - theirs).max() < 0.02
