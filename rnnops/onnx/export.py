"""`export`: a net as an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.atomic_file import replaced
from rnnops.model import Model
from rnnops.net import Net
from rnnops.onnx.errors import OnnxError, about
from rnnops.onnx.export_graph import typed, write_graph
from rnnops.onnx.package import NEWEST_OPSET, ModelProto, checker, helper, onnx_opset_version
from rnnops.onnx.probes import Dims
from rnnops.onnx.unread import leave_out_unread
from rnnops.types import FLOAT, FLOATS, Array

OLDEST_WRITTEN = 18  # since then axes are inputs everywhere
PRODUCER = "rnnops"


def export(
    model: Any,
    path: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    opset: int = 20,
    dtype: str | None = None,
) -> None:
    """Write a net as an ONNX file: the whole file, or nothing and an error.

    Args:
        model: a net, a compiled `Model` (what it computes after `eval()`), or what has a net as `.net` and its
            parameters' values as `.get_params()`.
        path: of the file.
        params: input -> array; these become initializers, all others stay inputs of the graph.
        shapes: input -> its sizes, where neither `params` nor the net says them: numbers, names for those that differ
            from run to run (`("T", "N", 3)`), or None.
        opset: version of the op set, 18 or later.
        dtype: of float inputs, `"float32"` or `"float64"`; that of `params`, else float32, if left out.

    Raises:
        OnnxError: shapes are missing, names are unknown, two float dtypes meet, the file cannot be written, or ONNX
            cannot say what an op does.
        ModelError: a model that is not compiled.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> net = ro.Net("net")
        >>> h_all, h_last = ro.GRU(net, net.input("x"), None, None, 3, 4)
        >>> net.outputs(y=h_all)
        >>> with TemporaryDirectory() as folder:
        ...     ro.onnx.export(net, f"{folder}/gru.onnx", ro.init_params(net, 0), {"x": ("T", "N", 3)})
        ...     ro.onnx.load_model(f"{folder}/gru.onnx").shapes
        {'x': ('T', 'N', 3)}
    """
    net, values, known = parts_of(model, params, shapes)
    if not isinstance(path, str | os.PathLike):
        raise OnnxError("this is no path of a file", came=type(path).__name__)
    newest = min(NEWEST_OPSET, onnx_opset_version())
    if not isinstance(opset, int) or isinstance(opset, bool) or not OLDEST_WRITTEN <= opset <= newest:
        raise OnnxError("this op set cannot be written", wanted=f"opset={OLDEST_WRITTEN} to {newest}", came=repr(opset))
    float_dtype = float_dtype_of(net, values, dtype or getattr(model, "dtype", None))
    with about(os.fspath(path)):
        proto = model_of(net, values, known, opset, float_dtype)
        write(path, proto.SerializeToString())


def parts_of(
    model: Any, params: Mapping[str, Any] | None, shapes: Mapping[str, Any] | None
) -> tuple[Net, dict[str, Array], dict[str, Dims]]:
    """The net, its parameters' values, and the shapes of its inputs."""
    net, own, known = contents_of(model)
    given = {**known, **checked_table("shapes", shapes)}
    values = {
        name: checked_array(net, name, value) for name, value in {**own, **checked_table("params", params)}.items()
    }
    if unknown := sorted((given.keys() | values.keys()) - set(net.input_names)):
        raise OnnxError("params or shapes name no input of the net", net=net.name, came=", ".join(map(str, unknown)))
    return leave_out_unread(net), values, all_shapes(net, values, given)


def contents_of(model: Any) -> tuple[Net, Mapping[str, Any], Mapping[str, Dims]]:
    """A net, with the values and shapes that come with it. Raises OnnxError for what has none."""
    if isinstance(model, Net):
        return model, {}, {}
    if isinstance(model, Model):
        return forward_of(model)
    net = getattr(model, "net", None)
    if not isinstance(net, Net):
        wanted = "a ro.Net, a model, or what has .net and .get_params()"
        raise OnnxError("this is no net", wanted=wanted, came=type(model).__name__)
    return net, model.get_params(), getattr(model, "shapes", {})


def forward_of(model: Model) -> tuple[Net, Mapping[str, Any], Mapping[str, Dims]]:
    """What a compiled model computes after `eval()`, with the sizes that it was compiled for."""
    graph = model.graphs.get("forward")
    if graph is None:
        hint = "Compile it with placeholders for the arguments of forward."
        raise OnnxError(f"{type(model).__name__} was not compiled for forward", hint=hint)
    net = graph.traced.net
    values = {name: array for name, array in model.arrays.items() if name in net.input_names}
    return net, values, {name: kind.shape for name, kind in graph.types.items()}


def checked_table(argument: str, value: object) -> dict[Any, Any]:
    """An argument that is a dict or left out."""
    if value is not None and not isinstance(value, Mapping):
        raise OnnxError(f"{argument} is no dict", came=type(value).__name__)
    return dict(value or {})


def checked_array(net: Net, name: str, value: object) -> Array:
    """A parameter's value. Raises OnnxError for what is no array of its dtype."""
    array = np.asarray(value)
    wanted = net.dtype_of(name) if name in net else FLOAT
    fits = array.dtype.name in ("float32", "float64") if wanted == FLOAT else array.dtype.name == wanted
    if not fits:
        raise OnnxError(
            "a parameter's value has another dtype", net=net.name, blob=name, wanted=wanted, came=array.dtype
        )
    return array


def all_shapes(net: Net, values: Mapping[str, Array], given: Mapping[str, Any]) -> dict[str, Dims]:
    """The sizes of every input. Raises OnnxError that lists those of which nothing is known."""
    shapes: dict[str, Dims] = {}
    for spec in net.input_specs:
        if spec.name in values:
            shapes[spec.name] = values[spec.name].shape
        elif spec.name in given:
            shapes[spec.name] = checked_dims(net, spec.name, given[spec.name])
        elif spec.shape is not None:
            shapes[spec.name] = spec.shape
    if missing := [name for name in net.input_names if name not in shapes]:
        hint = f'Give shapes={{"{missing[0]}": ("T", "N", 3), ...}}, names for sizes that differ from run to run.'
        raise OnnxError("inputs in an ONNX file have shapes", net=net.name, blob=", ".join(missing), hint=hint)
    return shapes


def checked_dims(net: Net, name: str, value: Any) -> Dims:
    """Sizes as a tuple; those of an array are its own."""
    dims = value.shape if isinstance(value, np.ndarray) else value
    fits = isinstance(dims, tuple | list) and all(
        dim is None or (isinstance(dim, str) and dim) or (isinstance(dim, int) and dim >= 0) for dim in dims
    )
    if not fits:
        wanted = "a tuple of sizes, names of sizes and None, or an array"
        raise OnnxError("not a shape", net=net.name, blob=name, wanted=wanted, came=repr(value))
    return tuple(dims)


def float_dtype_of(net: Net, values: Mapping[str, Array], wanted: str | None) -> str:
    """The one float dtype of the file. Raises OnnxError where there are two."""
    dtypes = {array.dtype.name for name, array in values.items() if net.dtype_of(name) == FLOAT}
    dtypes |= set() if wanted is None else {wanted}
    if len(dtypes) > 1 or not dtypes <= set(FLOATS[1:]):
        raise OnnxError("a file has one float dtype", wanted="float32 or float64", came=" and ".join(sorted(dtypes)))
    return dtypes.pop() if dtypes else "float32"


def model_of(
    net: Net, values: Mapping[str, Array], shapes: Mapping[str, Dims], opset: int, float_dtype: str
) -> ModelProto:
    """The model of a net, which ONNX's own checker has passed."""
    graph = write_graph(typed(net, shapes, float_dtype), values, opset)
    opsets = [helper.make_opsetid("", opset)]
    ir_version = helper.find_min_ir_version_for(opsets)
    proto = helper.make_model(graph, opset_imports=opsets, producer_name=PRODUCER, ir_version=ir_version)
    checker.check_model(proto, full_check=True)
    return proto


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write the whole file, or leave what was there."""
    try:
        with replaced(path) as temporary:
            temporary.write_bytes(data)
    except (OSError, ValueError) as error:
        raise OnnxError(f"the file cannot be written ({error})") from error
