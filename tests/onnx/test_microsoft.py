"""Ops of the domain `com.microsoft`: beside formulas written out here, and beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from onnx import helper, save
from quantised_models import MICROSOFT, model_of

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model
from rnnops.onnx.import_groups import MICROSOFT_RULES
from rnnops.onnx.import_quantised import QUANTISED_RULES

Array = np.ndarray[Any, Any]
DRAW = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return DRAW.normal(size=shape).astype("float32")


def whole(dtype: str, *shape: int) -> Array:
    bounds = np.iinfo(dtype)
    return DRAW.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2))))


def fast_gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def normalized(x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    rows = x - x.mean(-1, keepdims=True)
    return np.asarray(rows / np.sqrt((rows**2).mean(-1, keepdims=True) + epsilon) * scale + bias)


def meant(q: Array, scale: float, zero: int) -> Array:
    return np.asarray((q.astype("float64") - zero) * scale)


def quantised(y: Array, scale: float, zero: Any) -> Array:
    bounds = np.iinfo(zero.dtype)
    return np.clip(np.rint(y / scale) + zero, bounds.min, bounds.max).astype(zero.dtype)


@dataclass
class Form:
    """A node: inputs, of which those named as weights stand in the file, and what comes out of them."""

    op: str
    inputs: dict[str, Any]
    wanted: Callable[..., Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    weights: tuple[str, ...] = ()


def byte_form(op: str, dtype: str, wanted: Callable[..., Any], weights: tuple[str, ...] = ()) -> Form:
    """Of two quantised arrays."""
    inputs = {
        "a": whole(dtype, 3, 4),
        "a_s": np.float32(0.0213),  # of these scales, no result lies between two whole numbers
        "a_z": np.array(5, dtype),
        "b": whole(dtype, 4),
        "b_s": np.float32(0.0317),
        "b_z": np.array(9, dtype),
        "y_s": np.float32(0.0609),
        "y_z": np.array(7, dtype),
    }
    names = ("a_s", "a_z", "b_s", "b_z", "y_s", "y_z", *weights)
    return Form(
        op,
        inputs,
        lambda a, s, z, b, t, u, v, w: quantised(wanted(meant(a, s, z), meant(b, t, u)), v, w),
        weights=names,
    )


def convolved(x: Array, w: Array) -> Array:
    """Along one axis, without pads."""
    size = w.shape[2]
    windows = np.stack([x[:, :, k : x.shape[2] - size + 1 + k] for k in range(size)], -1)
    return np.asarray(np.einsum("nctk,ock->not", windows, w))


def one_form(op: str, shape: tuple[int, ...], wanted: Callable[..., Any], **attributes: Any) -> Form:
    """Of one quantised array."""
    inputs = {"a": whole("uint8", *shape), "a_s": np.float32(0.02), "a_z": np.uint8(120)}
    inputs |= {"y_s": np.float32(0.004), "y_z": np.uint8(3)}
    return Form(
        op, inputs, lambda a, s, z, v, w: quantised(wanted(meant(a, s, z)), v, w), attributes, weights=tuple(inputs)[1:]
    )


def product(a: Array, b: Array, s: Any, t: Any, z: Any, u: Any, bias: Any = 0.0) -> Array:
    return meant(a, s, z) @ meant(b, t, u) + bias


def dynamic(a: Array, b: Array, t: Any, u: Any, bias: Any = 0.0) -> Array:
    low, high = min(a.min(), 0), max(a.max(), 0)
    scale = (high - low) / np.float32(255)
    zero = np.rint(-low / scale)
    return ((np.clip(np.rint(a / scale) + zero, 0, 255) - zero) * scale) @ meant(b, t, u) + bias


PRODUCT = {
    "a": whole("uint8", 3, 4),
    "b": whole("int8", 4, 5) // 2,  # so that ONNX Runtime is right without VNNI, too
    "a_s": np.float32(0.02),
    "b_s": np.abs(floats(5)) + 0.1,
    "a_z": np.uint8(100),
    "b_z": np.zeros(5, "int8"),
    "bias": floats(5),
}
FORMS = {
    "BiasGelu": Form("BiasGelu", {"x": floats(3, 4), "b": floats(4)}, lambda x, b: gelu(x + b)),
    "DynamicQuantizeMatMul": Form(
        "DynamicQuantizeMatMul",
        {"x": floats(3, 4), **{name: PRODUCT[name] for name in ("b", "b_s", "b_z", "bias")}},
        dynamic,
        weights=("b", "b_s", "b_z", "bias"),
    ),
    "FastGelu": Form("FastGelu", {"x": floats(3, 4)}, fast_gelu),
    "FastGelu with a bias": Form("FastGelu", {"x": floats(3, 4), "b": floats(4)}, lambda x, b: fast_gelu(x + b)),
    "FusedConv": Form(
        "FusedConv",
        {"x": floats(2, 3, 6), "w": floats(4, 3, 2), "b": floats(4)},
        lambda x, w, b: np.tanh(convolved(x, w) + b[:, None]),
        {"activation": "Tanh"},
    ),
    "FusedConv of a sum": Form(
        "FusedConv",
        {"x": floats(2, 3, 5, 6), "w": floats(4, 3, 1, 1), "b": floats(4), "z": floats(2, 4, 5, 6)},
        lambda x, w, b, z: np.maximum(np.einsum("nchw,oc->nohw", x, w[..., 0, 0]) + b[:, None, None] + z, 0),
        {"activation": "Relu"},
    ),
    "FusedGemm": Form(
        "FusedGemm",
        {"a": floats(3, 4), "b": floats(5, 4), "c": floats(5)},
        lambda a, b, c: np.maximum(y := 0.5 * a @ b.T + 2 * c, 0.3 * y),
        {"alpha": 0.5, "beta": 2.0, "transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    "FusedMatMul": Form(
        "FusedMatMul",
        {"a": floats(2, 4, 3), "b": floats(2, 5, 4)},
        lambda a, b: 0.5 * a.swapaxes(1, 2) @ b.swapaxes(1, 2),
        {"alpha": 0.5, "transA": 1, "transB": 1},
    ),
    "Gelu": Form("Gelu", {"x": floats(3, 4)}, gelu),
    "MatMulIntegerToFloat": Form("MatMulIntegerToFloat", PRODUCT, product, weights=("b", "b_s", "b_z", "bias")),
    "QLinearAdd": byte_form("QLinearAdd", "uint8", np.add),
    "QLinearAdd of a weight": byte_form("QLinearAdd", "int8", np.add, ("b",)),
    "QLinearAveragePool": one_form(
        "QLinearAveragePool", (1, 2, 6), lambda x: (x[..., :-1] + x[..., 1:]) / 2, kernel_shape=[2]
    ),
    "QLinearGlobalAveragePool": one_form(
        "QLinearGlobalAveragePool", (1, 2, 6), lambda x: x.mean(-1, keepdims=True), channels_last=0
    ),
    "QLinearConcat": Form(
        "QLinearConcat",
        {
            "y_s": np.float32(0.03),
            "y_z": np.uint8(4),
            "a": whole("uint8", 3, 4),
            "a_s": np.float32(0.02),
            "a_z": np.uint8(5),
            "b": whole("uint8", 3, 2),
            "b_s": np.float32(0.04),
            "b_z": np.uint8(6),
        },
        lambda v, w, a, s, z, b, t, u: quantised(np.concatenate([meant(a, s, z), meant(b, t, u)], 1), v, w),
        {"axis": 1},
        weights=("y_s", "y_z", "a_s", "a_z", "b_s", "b_z"),
    ),
    "QLinearLeakyRelu": one_form("QLinearLeakyRelu", (3, 4), lambda x: np.where(x < 0, 0.25 * x, x), alpha=0.25),
    "QLinearMul": byte_form("QLinearMul", "uint8", np.multiply),
    "QLinearSigmoid": one_form("QLinearSigmoid", (3, 4), sigmoid),
    "QuickGelu": Form("QuickGelu", {"x": floats(3, 4)}, lambda x: x * sigmoid(1.5 * x), {"alpha": 1.5}),
    "SkipLayerNormalization": Form(
        "SkipLayerNormalization",
        {"x": floats(2, 3, 4), "skip": floats(2, 3, 4), "gamma": floats(4), "beta": floats(4), "bias": floats(4)},
        lambda x, skip, scale, shift, bias: (normalized(x + skip + bias, scale, shift, 1e-3), x + skip + bias),
        {"epsilon": 1e-3},
        outputs=("y", "", "", "total"),
    ),
}


OF_FLOATS = ("BiasGelu", "FusedConv", "FusedGemm", "FusedMatMul", "QuickGelu", "SkipLayerNormalization")


def written(form: Form) -> Any:
    node = helper.make_node(form.op, list(form.inputs), list(form.outputs), domain=MICROSOFT, **form.attributes)
    weights = {name: form.inputs[name] for name in form.weights}
    model = model_of([node], fed(form), [name for name in form.outputs if name], weights)
    model.opset_import[0].version, model.ir_version = 17, 8
    return model


def fed(form: Form) -> dict[str, Array]:
    return {name: np.asarray(array) for name, array in form.inputs.items() if name not in form.weights}


def compare(got: Any, wanted: Any) -> None:
    """Floats closely; quantised numbers but for one that lay between two, by the order of operations."""
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        else:
            difference = np.abs(one.astype(int) - other)
            assert difference.max() <= 1
            assert np.count_nonzero(difference) <= 1


def test_every_op_has_a_form() -> None:
    ops = {name.removeprefix(f"{MICROSOFT}::") for name in {**MICROSOFT_RULES, **QUANTISED_RULES} if "::" in name}
    elsewhere = {"DequantizeLinear", "DynamicQuantizeLSTM", "QLinearConv", "QuantizeLinear"}
    assert {form.op for form in FORMS.values()} == ops - elsewhere


@pytest.mark.parametrize("name", FORMS)
def test_it_is_its_formula(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    save(written(form), tmp_path / "one.onnx")
    model = load_model(tmp_path / "one.onnx")
    export(model, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(model.net)
    wanted = form.wanted(*form.inputs.values())
    for device in DEVICES:
        compare(
            DEVICES[device](model.net)(model.params, fed(form)).values(),
            wanted if isinstance(wanted, tuple) else [wanted],
        )


@pytest.mark.parametrize("name", FORMS)
def test_it_is_onnxruntimes(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    form = FORMS[name]
    model = written(form)
    save(model, tmp_path / "one.onnx")
    read = load_model(tmp_path / "one.onnx")
    ours = ro.compile(read.net, device="reference")(read.params, fed(form))
    for value in model.graph.output:
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(ours[value.name].dtype)
    try:
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except runtime.capi.onnxruntime_pybind11_state.NotImplemented:
        pytest.skip(f"ONNX Runtime has no {form.op} for processors")
    compare(ours.values(), session.run(None, fed(form)))


@pytest.mark.parametrize(
    "name", ["BiasGelu", "FusedConv", "FusedGemm", "FusedMatMul", "QuickGelu", "SkipLayerNormalization"]
)
def test_gradients(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    save(written(form), tmp_path / "one.onnx")
    feeds = {name: array.astype("float64") for name, array in fed(form).items()}
    assert ro.testing.check_gradient(load(tmp_path / "one.onnx"), feeds).error < 1e-6


WRONG = {
    "batches that change places": ("FusedMatMul", {"transBatchA": 1}, ["x", "x"], "attribute 'transBatchA'"),
    "no such activation": ("FusedGemm", {"activation": "Swoosh"}, ["x", "x"], "unknown activation"),
    "numbers of 16 bits": ("MatMulIntegerToFloat", {}, ["q", "q", "s", "s"], "not an array of numbers of 8 bits"),
    "an attribute that is not known": ("QuickGelu", {"beta": 1.0}, ["x"], "attributes are not supported"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_meaning_is_refused(name: str, tmp_path: Path) -> None:
    op, attributes, inputs, message = WRONG[name]
    feeds = {"x": np.ones((3, 3), "float32"), "q": np.ones((3, 3), "int16"), "s": np.ones(1, "float32")}
    save(
        model_of([helper.make_node(op, inputs, ["y"], domain=MICROSOFT, **attributes)], feeds, ["y"]),
        tmp_path / "a.onnx",
    )
    with pytest.raises(OnnxError, match=message):
        load(tmp_path / "a.onnx")
