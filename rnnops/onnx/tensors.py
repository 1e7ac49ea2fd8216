"""Tensors of ONNX files as arrays, and element types as dtypes; the bytes that are there must be those claimed.

Numbers of half precision, float16 and bfloat16, are read as the net's float: each of them is a float32.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.package import TensorProto, helper
from rnnops.ops.bfloat16 import numbers_of
from rnnops.types import BOOL, FLOAT, FLOATS, INTEGERS, Array

RANK = 64  # NumPy has no arrays of more axes
ELEMENT_TYPES = {
    getattr(TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper())): name
    for name in (*FLOATS[1:], *INTEGERS, BOOL)
}
HALVES = {int(TensorProto.FLOAT16): "float16", int(TensorProto.BFLOAT16): "bfloat16"}
LIMITS = {"float16": 65520.0, "bfloat16": 2.0**128 - 2.0**119}  # from here on numbers become infinite as such
FIELDS = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}
FIELDS.update(dict.fromkeys(("uint32", "uint64"), "uint64_data"))


def element_dtype(element_type: int, what: str) -> str:
    """The dtype of an ONNX element type, or the name of a half precision; nets say `"float"` for that.

    Raises OnnxError for one that rnnops does not have, such as a string.
    """
    if element_type in HALVES:
        return HALVES[element_type]
    if element_type not in ELEMENT_TYPES:
        known = dict(zip(TensorProto.DataType.values(), TensorProto.DataType.keys(), strict=True))
        came = str(known.get(element_type, element_type)).lower()
        raise OnnxError(f"{what} has an element type that is not supported", wanted=", ".join(_names()), came=came)
    return ELEMENT_TYPES[element_type]


def dtype_in_net(name: str, float_dtype: str) -> str:
    """An element type as nets have it: the file's own float dtype, and half precision, is `"float"`."""
    return FLOAT if name == float_dtype or name in LIMITS else name


def element_type(dtype: str) -> int:
    """The ONNX element type of a dtype."""
    return next(int(number) for number, name in ELEMENT_TYPES.items() if name == dtype)


def read_tensor(tensor: TensorProto, what: str, float_dtype: str = "float32") -> Array:
    """The array of a tensor. Raises OnnxError where its bytes lie elsewhere, or are not those of its type and sizes.

    Args:
        float_dtype: what numbers of half precision become.
    """
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise OnnxError(f"{what} lies in another file", hint="Save the model with its data in one file.")
    name, dims = element_dtype(tensor.data_type, what), tuple(tensor.dims)
    dtype = "uint16" if name in LIMITS else name
    if len(dims) > RANK or min(dims, default=0) < 0 or tensor.HasField("segment"):
        raise OnnxError(f"{what} has no sizes that an array can have", came=list(dims[:RANK]))
    flat = _raw(tensor, dtype, what) if tensor.HasField("raw_data") else _listed(tensor, dtype, what)
    if flat.size != prod(dims):
        raise OnnxError(f"{what} does not hold what it claims", wanted=f"{prod(dims)} elements", came=flat.size)
    array = (flat if name == dtype else from_bits(flat, name, float_dtype)).reshape(dims)
    array.flags.writeable = False
    return array


def from_bits(bits: Array, name: str, float_dtype: str) -> Array:
    """The numbers that bits of half precision stand for."""
    with np.errstate(invalid="ignore"):  # some NaN are signals to processors
        return (bits.view(np.float16) if name == "float16" else numbers_of(bits)).astype(float_dtype)


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
    return [*HALVES.values(), *ELEMENT_TYPES.values()]
