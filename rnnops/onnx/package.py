"""The door to the package `onnx`: the rest of `rnnops.onnx` takes protobufs and their helpers from here."""

from __future__ import annotations

from rnnops.onnx.errors import MissingPackageError

try:
    from onnx import (
        AttributeProto as AttributeProto,
        FunctionProto as FunctionProto,
        GraphProto as GraphProto,
        ModelProto as ModelProto,
        NodeProto as NodeProto,
        TensorProto as TensorProto,
        TypeProto as TypeProto,
        ValueInfoProto as ValueInfoProto,
        checker as checker,
        helper as helper,
        numpy_helper as numpy_helper,
    )
    from onnx.defs import get_schema as get_schema, onnx_opset_version as onnx_opset_version
    from onnx.external_data_helper import load_external_data_for_tensor as load_external_data_for_tensor
    from onnx.shape_inference import infer_shapes as infer_shapes
except ImportError as error:
    raise MissingPackageError(
        "the package onnx is missing", hint="Install it by pip install 'rnnops[onnx]'."
    ) from error

OLDEST_OPSET, NEWEST_OPSET = 7, 28  # the versions of the op set whose meaning is implemented here
