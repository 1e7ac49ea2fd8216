"""Tensors of ONNX files as arrays, and element types as dtypes; the bytes that are there must be those claimed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.package import TensorProto, helper
from rnnops.types import BOOL, FLOATS, INTEGERS, Array

RANK = 64  # NumPy has no arrays of more axes
ELEMENT_TYPES = {
    getattr(TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper())): name
    for name in (*FLOATS[1:], *INTEGERS, BOOL)
}
FIELDS = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}
FIELDS.update(dict.fromkeys(("uint32", "uint64"), "uint64_data"))


def element_dtype(element_type: int, what: str) -> str:
    """The dtype of an ONNX element type. Raises OnnxError for one that rnnops does not have, such as float16."""
    if element_type not in ELEMENT_TYPES:
        known = dict(zip(TensorProto.DataType.values(), TensorProto.DataType.keys(), strict=True))
        came = str(known.get(element_type, element_type)).lower()
        raise OnnxError(f"{what} has an element type that is not supported", wanted=", ".join(_names()), came=came)
    return ELEMENT_TYPES[element_type]


def element_type(dtype: str) -> int:
    """The ONNX element type of a dtype."""
    return next(int(number) for number, name in ELEMENT_TYPES.items() if name == dtype)


def read_tensor(tensor: TensorProto, what: str) -> Array:
    """The array of a tensor. Raises OnnxError where its bytes lie elsewhere, or are not those of its type and sizes."""
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise OnnxError(f"{what} lies in another file", hint="Save the model with its data in one file.")
    dtype, dims = element_dtype(tensor.data_type, what), tuple(tensor.dims)
    if len(dims) > RANK or min(dims, default=0) < 0 or tensor.HasField("segment"):
        raise OnnxError(f"{what} has no sizes that an array can have", came=list(dims[:RANK]))
    flat = _raw(tensor, dtype, what) if tensor.HasField("raw_data") else _listed(tensor, dtype, what)
    if flat.size != prod(dims):
        raise OnnxError(f"{what} does not hold what it claims", wanted=f"{prod(dims)} elements", came=flat.size)
    array = flat.reshape(dims)
    array.flags.writeable = False
    return array


def write_tensor(array: Array, name: str) -> TensorProto:
    """A tensor of this name with an array's bytes."""
    plain = np.asarray(array, order="C")
    data = plain.astype(plain.dtype.newbyteorder("<")).tobytes()
    return helper.make_tensor(name, element_type(plain.dtype.name), plain.shape, data, raw=True)


def _raw(tensor: TensorProto, dtype: str, what: str) -> Array:
    data, stored = tensor.raw_data, np.dtype("uint8" if dtype == BOOL else dtype).newbyteorder("<")
    if len(data) % stored.itemsize:
        raise OnnxError(f"{what} ends within an element", came=f"{len(data)} bytes of {dtype}")
    flat: Array = np.frombuffer(data, stored)
    return flat != 0 if dtype == BOOL else flat.astype(dtype, copy=False)


def _listed(tensor: TensorProto, dtype: str, what: str) -> Array:
    values: Any = getattr(tensor, FIELDS.get(dtype, "int32_data"))
    wide: Array = np.array(values, {"float32": "float32", "float64": "float64", "uint64": "uint64"}.get(dtype, "int64"))
    flat = wide.astype(dtype)
    if dtype not in FLOATS and not np.array_equal(flat, wide):
        raise OnnxError(f"{what} has elements out of range", wanted=dtype)
    return flat


def _names() -> list[str]:
    return list(ELEMENT_TYPES.values())
