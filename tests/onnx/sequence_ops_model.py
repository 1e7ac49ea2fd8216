"""A model of ops around recurrences: norms, sums of products, look-ups, orders, frames of a signal."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper


def sequence_ops_model() -> Any:
    """Its inputs are a signal and features; all else is known."""
    nodes = [
        helper.make_node("HannWindow", ["eight"], ["window"]),
        helper.make_node("STFT", ["signal", "four", "window", "eight"], ["spectrum"], onesided=1),
        helper.make_node("ReduceSumSquare", ["spectrum"], ["power"], axes=[3], keepdims=0),
        helper.make_node("BatchNormalization", ["power", "scale", "scale", "scale", "scale"], ["normal"], epsilon=0.5),
        helper.make_node("Einsum", ["normal", "features"], ["joined"], equation="btf,fd->btd"),
        helper.make_node("InstanceNormalization", ["joined", "scale", "scale"], ["even"], epsilon=0.25),
        helper.make_node("LpNormalization", ["even"], ["rows"], axis=1, p=2),
        helper.make_node("Resize", ["rows", "", "scales"], ["wide"], mode="linear"),
        helper.make_node("TopK", ["wide", "three"], ["values", "places"], axis=2),
        helper.make_node("ScatterElements", ["wide", "places", "values"], ["put"], axis=2, reduction="add"),
        helper.make_node("GatherND", ["put", "pairs"], ["few"], batch_dims=0),
        helper.make_node("ScatterND", ["few", "pair", "few"], ["moved"], reduction="max"),
        helper.make_node("Hardmax", ["moved"], ["hot"], axis=-1),
        helper.make_node("EyeLike", ["hot"], ["eye"], k=1),
        helper.make_node("Add", ["hot", "eye"], ["both"]),
        helper.make_node("Compress", ["both", "mask"], ["y"], axis=0),
    ]
    tensors = {
        "four": np.array(4),
        "eight": np.array(8),
        "three": np.array([3]),
        "scale": np.array([0.5, 1.0, 1.5], "float32"),
        "scales": np.array([1, 1, 2], "float32"),
        "pairs": np.array([[0, 1], [1, -1]]),
        "pair": np.array([[1], [0]]),
        "mask": np.array([True, False]),
    }
    inputs = [
        helper.make_tensor_value_info("signal", 1, [2, 16, 1]),
        helper.make_tensor_value_info("features", 1, [5, 4]),
    ]
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    initializers = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "sequence_ops", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
