"""Models of one Scan in many forms, and a loop that runs its body in `onnx.reference` step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]

ROW, SEQ = "float[N, 2]", "float[T, N, 2]"  # what these words stand for in the texts
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
TEXTS = {
    "running sum": """g (ROW s, SEQ x) => (ROW last, SEQ all) {
        last, all = Scan <num_scan_inputs = 1, body = b (ROW a, ROW y) => (ROW z, ROW out)
            { z = Add(a, y) out = Tanh(z) }> (s, x) }""",
    "no rows in common": """g (float[2] s, float[T, 3] x) => (float[2] last, float[T, 3, 2] all) {
        last, all = Scan <num_scan_inputs = 1, body = b (float[2] a, float[3] y) => (float[2] z, float[3, 2] out)
            { m = ReduceMean <keepdims = 0> (y) z = Mul(a, m) c = Constant <value = float[3, 1] {1.0, 2.0, 0.5}> ()
              out = Mul(c, z) }> (s, x) }""",
    "one number": """g (float s, float[T] x) => (float last, float[T] all) {
        last, all = Scan <num_scan_inputs = 1, body = b (float a, float y) => (float z, float out)
            { z = Add(a, y) out = Exp(y) }> (s, x) }""",
    "one result twice": """g (ROW s, SEQ x) => (ROW last, SEQ all) {
        last, all = Scan <num_scan_inputs = 1, body = b (ROW a, ROW y) => (ROW z, ROW z)
            { z = Mul(a, y) }> (s, x) }""",
    "state handed through": """g (ROW s, SEQ x) => (ROW last, SEQ all) {
        last, all = Scan <num_scan_inputs = 1, body = b (ROW a, ROW y) => (ROW a, ROW out)
            { out = Mul(a, y) }> (s, x) }""",
    "reads around itself": """g (ROW s, SEQ x, float[2, 2] w) => (ROW last) {
        v = Tanh(w)
        last = Scan <num_scan_inputs = 1, body = b (ROW a, ROW y) => (ROW z)
            { p = MatMul(a, v) q = Add(p, y) z = Tanh(q) }> (s, x) }""",
    "backwards": """g (ROW s, SEQ x) => (ROW last, SEQ all) {
        last, all = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
            body = b (ROW a, ROW y) => (ROW z, ROW out)
            { h = Mul(a, y) z = Add(h, y) out = Sin(z) }> (s, x) }""",
    "backwards in, forwards out": """g (ROW s, SEQ x) => (ROW last, SEQ all) {
        last, all = Scan <num_scan_inputs = 1, scan_input_directions = [1],
            body = b (ROW a, ROW y) => (ROW z, ROW out)
            { h = Mul(a, y) z = Add(h, y) out = Sin(z) }> (s, x) }""",
    "both directions": """g (ROW s, SEQ x) => (ROW last, SEQ all, SEQ back) {
        last, all, back = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1], scan_output_directions = [0, 1],
            body = b (ROW a, ROW y, ROW r) => (ROW z, ROW out, ROW other)
            { h = Mul(a, y) z = Add(h, r) out = Sin(z) other = Cos(r) }> (s, x, x) }""",
    "other axes": """g (ROW s, float[N, T, 2] x) => (ROW last, float[N, 2, T] all, float[N, T, 2] more) {
        last, all, more = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1, 1],
            body = b (ROW a, ROW y) => (ROW z, ROW out, ROW twice)
            { z = Add(a, y) out = Tanh(z) twice = Add(y, y) }> (s, x) }""",
    "no state": """g (SEQ x, float[T, N, 1] y) => (SEQ all) {
        all = Scan <num_scan_inputs = 2, body = b (ROW p, float[N, 1] q) => (ROW out)
            { out = Mul(p, q) }> (x, y) }""",
    "only a state": """g (float[N, 2, 3] s, float[T, N, 2, 3] x) => (float[N, 2, 3] last) {
        last = Scan <num_scan_inputs = 1, body = b (float[N, 2, 3] a, float[N, 2, 3] y) => (float[N, 2, 3] z)
            { h = Tanh(a) z = Add(h, y) }> (s, x) }""",
    "scan in a scan": """g (ROW s, SEQ x, float[K, N, 2] u) => (ROW last, SEQ all) {
        last, all = Scan <num_scan_inputs = 1, body = b (ROW a, ROW y) => (ROW z, ROW out)
            { z = Scan <num_scan_inputs = 1, body = c (ROW d, ROW e) => (ROW f)
                { k = Mul(d, e) f = Add(k, y) }> (a, u)
              out = Tanh(z) }> (s, x) }""",
    "weights in the body": """g (ROW s, SEQ x) => (ROW last) {
        last = Scan <num_scan_inputs = 1, body = b (ROW a, ROW y) => (ROW z)
            { p = MatMul(a, w) q = Add(p, y) z = Tanh(q) }> (s, x) }""",
}  # fmt: skip
OPSET = 20  # at which nodes are evaluated; those here mean the same in 17
SIZES = {"T": 4, "N": 3, "K": 2}


def scan_text(name: str) -> str:
    """The text of a form's model."""
    return HEADER + TEXTS[name].replace("ROW", ROW).replace("SEQ", SEQ)


def scan_model(name: str) -> ModelProto:
    """The model of a form."""
    model = onnx.parser.parse_model(scan_text(name))
    if name == "weights in the body":
        (attribute,) = [a for a in model.graph.node[0].attribute if a.name == "body"]
        attribute.g.initializer.append(numpy_helper.from_array(np.array([[0.5, -0.4], [0.3, 0.9]], "float32"), "w"))
    return model


def scan_feeds(model: ModelProto) -> dict[str, Array]:
    """Random inputs of a model."""
    generator = np.random.Generator(np.random.PCG64(3))
    shapes = {
        v.name: [SIZES.get(d.dim_param, d.dim_value) for d in v.type.tensor_type.shape.dim] for v in model.graph.input
    }
    return {name: generator.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()}


def evaluate(model: ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """Outputs of a model: nodes other than Scan in `onnx.reference`, a Scan as a loop over its body."""
    return evaluate_graph(model.graph, dict(feeds))


def evaluate_graph(graph: Any, values: dict[str, Array]) -> dict[str, Array]:
    values.update({tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer})
    for node in graph.node:
        results = run_scan(node, values) if node.op_type == "Scan" else run_node(node, values)
        values.update(zip(node.output, results, strict=False))
    return {value.name: values[value.name] for value in graph.output} | {"": np.zeros(0)}


def run_node(node: Any, values: dict[str, Array]) -> list[Array]:
    names = list(dict.fromkeys(name for name in node.input if name))
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(values[n].dtype), None) for n in names]
    outputs = [helper.make_tensor_value_info(name, 0, None) for name in node.output]
    model = helper.make_model(
        helper.make_graph([node], "one", inputs, outputs), opset_imports=[helper.make_opsetid("", OPSET)]
    )
    return list(ReferenceEvaluator(model).run(None, {name: values[name] for name in names}))


def run_scan(node: Any, values: dict[str, Array]) -> list[Array]:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    body, m = given["body"], given["num_scan_inputs"]
    n = len(node.input) - m
    k = len(body.output) - n
    states = [values[name] for name in node.input[:n]]
    axes, turned = given.get("scan_input_axes", [0] * m), given.get("scan_input_directions", [0] * m)
    sequences = [np.moveaxis(values[name], axis, 0) for name, axis in zip(node.input[n:], axes, strict=True)]
    sequences = [x[::-1] if back else x for x, back in zip(sequences, turned, strict=True)]
    steps: list[list[Array]] = [[] for _ in range(k)]
    for t in range(len(sequences[0])):
        local = dict(values)
        local.update(zip([v.name for v in body.input], [*states, *(x[t] for x in sequences)], strict=True))
        evaluate_graph(body, local)
        results = [local[v.name] for v in body.output]
        states = results[:n]
        for collected, result in zip(steps, results[n:], strict=True):
            collected.append(result)
    out_axes, out_turned = given.get("scan_output_axes", [0] * k), given.get("scan_output_directions", [0] * k)
    stacked = [np.stack(x[::-1] if back else x) for x, back in zip(steps, out_turned, strict=True)]
    return [*states, *(np.moveaxis(x, 0, axis) for x, axis in zip(stacked, out_axes, strict=True))]
