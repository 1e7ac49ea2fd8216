"""ONNX Runtime: a model of one LSTM op with its weights inside, as a served model has them; forward only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.case import Entry
from bench.contender import Bench, Contender
from bench.layouts import ONNX_LSTM, reorder
from bench.problems import Array, Arrays, Problem

OPSET, IR_VERSION = 20, 9


def lstm(entry: Entry, bench: Bench) -> Contender:
    arrays = bench.data(entry.problem).sets[0].feeds
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = bench.settings.threads, 1
    model = lstm_model(arrays, entry.problem).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {"xs": arrays["xs"], "h0": arrays["h0"][None], "c0": arrays["c0"][None]}
    return Contender(lambda k: session.run(None, feeds), _named_results)


def lstm_model(arrays: Arrays, problem: Problem) -> Any:
    """`Y [T, 1, N, H]`, `Y_h` and `Y_c [1, N, H]` of the op LSTM."""
    T, N, H = problem.size.T, problem.size.N, problem.size.H
    bias = np.concatenate([reorder(arrays["b"], ONNX_LSTM), np.zeros(4 * H, np.float32)])
    weights = {"W": _rows(arrays["w_x"]), "R": _rows(arrays["w_h"]), "B": bias[None]}
    shapes = {"xs": (T, N, H), "h0": (1, N, H), "c0": (1, N, H), "Y": (T, 1, N, H), "Y_c": (1, N, H)}
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    node = helper.make_node("LSTM", ["xs", "W", "R", "B", "", "h0", "c0"], ["Y", "", "Y_c"], hidden_size=H)
    inputs, outputs = ([values[name] for name in names] for names in (("xs", "h0", "c0"), ("Y", "Y_c")))
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "lstm", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _rows(weight: Array) -> Array:
    """[D, 4H] as ONNX has it: [1, 4H, D]."""
    return np.ascontiguousarray(reorder(weight, ONNX_LSTM).T[None])


def _named_results(returned: Any) -> Arrays:
    y, c_last = returned
    return {"y": y[:, 0], "c_last": c_last}
