"""Small models with quantised ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"


def model_of(
    nodes: Sequence[Any], feeds: Mapping[str, Array], outputs: Sequence[str], weights: Mapping[str, Any] | None = None
) -> Any:
    """A model whose inputs have the types of these feeds."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, 0, None) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "quantised", inputs, results, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def dense(x: str, weight: str, y: str) -> list[Any]:
    """The nodes that a dynamically quantised product of floats is: `y = x @ weight`, which has a scale and a zero."""
    return [
        helper.make_node("DynamicQuantizeLinear", [x], [f"{x}_q", f"{x}_scale", f"{x}_zero"]),
        helper.make_node("MatMulInteger", [f"{x}_q", weight, f"{x}_zero", f"{weight}_zero"], [f"{y}_whole"]),
        helper.make_node("Mul", [f"{x}_scale", f"{weight}_scale"], [f"{y}_by"]),
        helper.make_node("Cast", [f"{y}_whole"], [f"{y}_cast"], to=1),
        helper.make_node("Mul", [f"{y}_cast", f"{y}_by"], [y]),
    ]


def quantised_tagger() -> Any:
    """Embeddings as bytes, a quantised LSTM, a quantised product: what ONNX Runtime's tools make of a tagger."""
    draw = np.random.default_rng(0)
    weights = {
        "table_quantized": draw.integers(0, 256, (9, 6)).astype("uint8"),
        "table_scale": np.float32(0.01),
        "table_zero": np.uint8(120),
        **lstm_weights(draw, 2, 6, 5),
        "out": draw.integers(-127, 128, (10, 3)).astype("int8"),
        "out_scale": draw.uniform(0.01, 0.02, 3).astype("float32"),
        "out_zero": np.int8(0),
        "rows": np.array([0, 0, 10], "int64"),
    }
    nodes = [
        helper.make_node("Gather", ["table_quantized", "words"], ["rows_q"]),
        helper.make_node("DequantizeLinear", ["rows_q", "table_scale", "table_zero"], ["x"]),
        lstm_node("x", ["states", "", ""], direction="bidirectional", hidden_size=5),
        helper.make_node("Transpose", ["states"], ["by_step"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["by_step", "rows"], ["h"]),
        *dense("h", "out", "scores"),
    ]
    model = model_of(nodes, {"words": np.zeros((4, 2), "int64")}, ["scores"], weights)
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim, ("T", "N"), strict=True):
        dim.dim_param = name
    return model


def quantised_layers() -> Any:
    """Two quantised products, the second of weights with a scale for each column, and half precision."""
    draw = np.random.default_rng(1)
    weights = {
        "w": draw.integers(-127, 128, (6, 4)).astype("int8"),
        "w_scale": np.float32(0.01),
        "w_zero": np.int8(2),
        "v": draw.integers(0, 256, (4, 3)).astype("uint8"),
        "v_scale": draw.uniform(0.01, 0.02, 3).astype("float32"),
        "v_zero": draw.integers(100, 150, 3).astype("uint8"),
        "half": draw.normal(size=3).astype("float16"),
    }
    nodes = [
        *dense("x", "w", "h"),
        helper.make_node("DequantizeLinear", ["v", "v_scale", "v_zero"], ["meant"], axis=1),
        helper.make_node("MatMul", ["h", "meant"], ["product"]),
        helper.make_node("Cast", ["half"], ["whole"], to=1),
        helper.make_node("Add", ["product", "whole"], ["sum"]),
    ]
    return model_of(nodes, {"x": np.zeros((3, 6), "float32")}, ["h", "sum"], weights)


def lstm_node(x: str, outputs: Sequence[str], **attributes: Any) -> Any:
    """A DynamicQuantizeLSTM with the weights of `lstm_weights`."""
    names = ["w", "r", "b", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    return helper.make_node("DynamicQuantizeLSTM", [x, *names], list(outputs), domain=MICROSOFT, **attributes)


def in_seven_bits(weights: Any) -> Any:
    """Weights of bytes of which no pair of products leaves 16 bits: ONNX Runtime is right on every processor."""
    return {name: array // 2 if array.dtype == np.int8 else array for name, array in weights.items()}


def lstm_weights(draw: np.random.Generator, directions: int, size: int, hidden: int, columns: bool = False) -> Any:
    """Its weights; scales and zero points for each direction, or for each column of each."""
    wide = (directions, 4 * hidden) if columns else (directions,)
    return {
        "w": draw.integers(-127, 128, (directions, size, 4 * hidden)).astype("int8"),
        "r": draw.integers(-127, 128, (directions, hidden, 4 * hidden)).astype("int8"),
        "b": draw.normal(size=(directions, 8 * hidden)).astype("float32") * 0.1,
        "w_scale": draw.uniform(0.004, 0.008, wide).astype("float32"),
        "w_zero": np.zeros(wide, "int8") if columns else draw.integers(-3, 4, wide).astype("int8"),
        "r_scale": draw.uniform(0.004, 0.008, wide).astype("float32"),
        "r_zero": np.zeros(wide, "int8") if columns else draw.integers(-3, 4, wide).astype("int8"),
    }
