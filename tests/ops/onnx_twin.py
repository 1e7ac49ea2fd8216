"""The ONNX model of a case, and what onnx.reference makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rnnops.net.op import Op
from rnnops.net.schema import Call, schema_of

Array = npt.NDArray[Any]
OPSET = 20
YOUNGER = {"CumProd": 26, "RMSNormalization": 23}


def onnx_results(call: Call, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
    """Run one op in onnx.reference, on the arrays of its inputs."""
    feeds = {name: array for name, array in zip(call.op.inputs, arrays, strict=True) if name and array is not None}
    names, constants = onnx_inputs(call)
    node = helper.make_node(call.op.type, names, list(call.op.outputs), **onnx_attributes(call))
    graph = helper.make_graph(
        [node],
        "case",
        [value_info(name, array) for name, array in feeds.items()],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in call.op.outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", YOUNGER.get(call.op.type, OPSET))])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return tuple(ReferenceEvaluator(model).run(None, feeds))


def value_info(name: str, array: Array) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def onnx_inputs(call: Call) -> tuple[list[str], dict[str, Array]]:
    """Names of the inputs; what stands in an attribute here becomes a constant input there."""
    names, constants = list(call.op.inputs), {}
    for i, port in enumerate(onnx_ports(call.op)):
        if port in call.op.attributes:
            value = call.op.attributes[port]
            names += [""] * (i + 1 - len(names))
            names[i] = f"static_{port}"
            floats = {"constant_value": call.output_types[0].dtype, "ratio": "float32"}
            number = value[0] if port == "depth" else [value] if port == "k" else value
            constants[names[i]] = np.array(number, floats.get(port, "int64"))
    return names, constants


def onnx_ports(op: Op) -> list[str]:
    """Names of inputs; those that are attributes alone here by the attribute's name."""
    others = {"CumProd": ["x", "axis"], "CumSum": ["x", "axis"], "Dropout": ["data", "ratio"], "TopK": ["X", "k"]}
    return others.get(op.type) or [port.rstrip("?*") for port in schema_of(op.type).inputs]


def onnx_attributes(call: Call) -> dict[str, Any]:
    own = {*onnx_ports(call.op), "dtype", "ordinal", "constant_value"}
    attributes = {name: value for name, value in call.op.attributes.items() if name not in own}
    if call.op.type == "Cast":
        attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(call.output_types[0].dtype))
    if call.op.type in ("Constant", "ConstantOfShape"):
        value = np.array(call.attr("value"), call.output_types[0].dtype)
        value = value.reshape(1) if call.op.type == "ConstantOfShape" else value
        attributes["value"] = numpy_helper.from_array(value)
    if call.op.type == "Split" and len(call.op.inputs) > 1:
        attributes.pop("num_outputs")
    return attributes
