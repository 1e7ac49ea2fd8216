"""`export`: a net as an ONNX file.

**Unread results of recurrences are left out before a net is written**.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnops.errors import RnnopsError
from rnnops.model import Model
from rnnops.net.infer import infer
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import Call, schema_of
from rnnops.onnx.export_ops import GraphWriter, named_dims, value_info, write_op
from rnnops.onnx.export_scan import OnnxScanWriter, is_final_squeeze
from rnnops.onnx.find_layers import FoundLayer, find_layers, find_preset, write_preset
from rnnops.onnx.open_sizes import Dims, MadeUpSizes
from rnnops.onnx.package import NEWEST_OPSET, OnnxError, about, onnx, onnx_opset_version
from rnnops.recurrent.recurrence import Recurrence
from rnnops.types import FLOAT, FLOATS, Array, Type
from rnnops.util import replaced


def leave_out_unread(net: Net) -> Net:
    """Blank the unread outputs, where an op can leave outputs out; in cells likewise.

    rewrite: `h_all, h_last = RecurrentNetwork(...); return h_all`  -->  `h_all, _ = RecurrentNetwork(...)`
    """
    read = {name for op in net.ops for name in op.inputs} | set(net.output_blobs.values())
    return net.with_ops([_without_unread(op, read) for op in net.ops]).snapshot()


def _without_unread(op: Op, read: set[str]) -> Op:
    if not schema_of(op.type).may_omit_outputs or "cell" not in op.attributes:
        return op
    outputs = tuple(name if name in read else "" for name in op.outputs)
    attributes = {**op.attributes, "cell": leave_out_unread(op.attributes["cell"])}
    return op if not any(outputs) else replace(op, outputs=outputs, attributes=attributes)


SMALL = ((24, 26), (6, 7))  # the first open size, twice


@dataclass
class Typed:
    """A net with the types of all its blobs, for two choices of the sizes that are open."""

    net: Net
    calls: tuple[Call, ...]
    types: tuple[dict[str, Type], dict[str, Type]]
    sizes: MadeUpSizes
    float_dtype: str


def typed(net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> Typed:
    """Infer all types, with smaller sizes where large ones are more than a table has, say.

    Raises TypeRuleError where shapes do not fit the net.
    """
    try:
        return typed_with(MadeUpSizes(), net, shapes, float_dtype)
    except RnnopsError:
        for first in SMALL:
            with suppress(RnnopsError):
                return typed_with(MadeUpSizes(first, (2, 2)), net, shapes, float_dtype)
        raise


def typed_with(sizes: MadeUpSizes, net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> Typed:
    """Infer all types twice."""
    calls = []
    types: tuple[dict[str, Type], dict[str, Type]] = ({}, {})
    pairs = {name: [sizes.pair(dim) for dim in dims] for name, dims in shapes.items()}
    for k, found in enumerate(types):
        for spec in net.input_specs:
            dtype = float_dtype if spec.dtype == FLOAT else spec.dtype
            found[spec.name] = Type(dtype, tuple(pair[k] for pair in pairs[spec.name]))
        by_key = inferred(net, found, sizes, float_dtype)
        for call in by_key.values():
            found.update(zip(call.op.outputs, call.output_types, strict=True))
        calls.append(tuple(by_key[op.key] for op in net.ops))
    return Typed(net, calls[0], types, sizes, float_dtype)


def inferred(net: Net, types: Mapping[str, Type], sizes: MadeUpSizes, float_dtype: str) -> dict[str, Call]:
    """All calls of a net. Raises what they raise, with a hint where sizes are made up."""
    try:
        return infer(net, types, float_dtype)
    except RnnopsError as error:
        if error.hint or not sizes.made_up:
            raise
        told = error.again()
        told.hint = size_hint(sorted(sizes.named().values()))
        raise told.again() from error


def size_hint(names: Sequence[str]) -> str:
    """A hint for made-up sizes that do not fit a net; some have names."""
    differ = f"Sizes of different names ({', '.join(names)}) differ: where two are one, give shapes={{...}}. "
    made_up = "Sizes that are open are made up here; those that must fit the net are given as numbers: shapes={...}."
    return differ * (len(names) > 1) + made_up


def write_graph(model: Typed, params: Mapping[str, Array], opset: int) -> onnx.GraphProto:
    """The graph of a net; inputs that have values are initializers."""
    net = model.net
    names = {*net.blob_names, *net.output_blobs}
    writer = GraphWriter(opset, model.float_dtype, names, frozenset(model.sizes.made_up))
    writer.names.update(renamed(writer, net))
    write_calls(writer, net, model.calls)
    for name, blob in net.output_blobs.items():
        if writer.name(blob) != name:
            writer.node("Identity", [writer.name(blob)], [name])
    inputs = [described(model, spec.name, spec.name) for spec in net.input_specs if spec.name not in params]
    outputs = [described(model, blob, name) for name, blob in net.output_blobs.items()]
    weights = [onnx.numpy_helper.from_array(params[name], name) for name in net.input_names if name in params]
    return onnx.helper.make_graph(writer.nodes, net.name, inputs, outputs, weights)


def renamed(writer: GraphWriter, net: Net) -> dict[str, str]:
    """New names of blobs that have the name of an output which is another blob."""
    return {
        name: writer.fresh(name)
        for name, blob in net.output_blobs.items()
        if name != blob and name in net and name not in net.input_names
    }


def described(model: Typed, blob: str, name: str) -> onnx.ValueInfoProto:
    """A graph's input or output with its type."""
    first, second = (types[blob] for types in model.types)
    return value_info(name, first.dtype, named_dims((first.shape, second.shape), model.sizes.named()))


def write_calls(writer: GraphWriter, net: Net, calls: Sequence[Call]) -> None:
    """Write the ops of a net: layers as one node, other recurrences as Scan, the rest one by one."""
    layers = find_layers(net)
    members = {key for layer in layers for key in layer.members}
    anchors = {layer.anchor: layer for layer in layers}
    finals = final_squeezes(net)
    for call in calls:
        key = call.op.key
        if layer := anchors.get(key):
            write_layer(writer, call, layer)
        elif key in members or key in writer.done:
            continue
        elif call.op.type == "RecurrentNetwork":
            write_recurrence(writer, call, finals)
        else:
            write_op(writer, call)


def write_layer(writer: GraphWriter, call: Call, layer: FoundLayer) -> None:
    """Write an LSTM, GRU or RNN that was found; its weights say the hidden size, but some runtimes want to read it."""
    inputs, outputs = ([writer.name(name) if name else "" for name in names] for names in (layer.inputs, layer.outputs))
    hidden = call.output_types[0].shape[-1]
    hidden_size = None if hidden in writer.open_sizes else hidden
    writer.node(layer.op, inputs, outputs, hidden_size=hidden_size, **layer.attributes)


def write_recurrence(writer: GraphWriter, call: Call, finals: Mapping[str, str]) -> None:
    """Write a recurrence as the op that its preset is, else as a Scan."""
    preset = find_preset(Recurrence(call.op, call.net), call)
    if preset is None:
        OnnxScanWriter(writer, call, write_calls, finals).write()
    else:
        write_preset(writer, call, preset)


def final_squeezes(net: Net) -> dict[str, str]:
    """Blob -> the blob that a Squeeze of its first axis makes of it, where nothing else reads it."""
    readers: dict[str, list[object]] = {}
    for op in net.ops:
        for name in op.inputs:
            readers.setdefault(name, []).append(op)
    kept = set(net.output_blobs.values())
    return {
        op.inputs[0]: op.outputs[0]
        for op in net.ops
        if is_final_squeeze(op) and len(readers[op.inputs[0]]) == 1 and op.inputs[0] not in kept
    }


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
        raise OnnxError("this is not a path of a file", came=type(path).__name__)
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
        raise OnnxError("this is not a net", wanted=wanted, came=type(model).__name__)
    return net, model.get_params(), getattr(model, "shapes", {})


def forward_of(model: Model) -> tuple[Net, Mapping[str, Any], Mapping[str, Dims]]:
    """The net of a compiled model after `eval()`, with the sizes that it was compiled for."""
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
        raise OnnxError(f"{argument} is not a dict", came=type(value).__name__)
    return dict(value or {})


def checked_array(net: Net, name: str, value: object) -> Array:
    """A parameter's value. Raises OnnxError for what is not an array of its dtype."""
    array = np.asarray(value)
    wanted = net.dtype_of(name) if name in net else FLOAT
    fits = array.dtype.name in ("float32", "float64") if wanted == FLOAT else array.dtype.name == wanted
    if not fits:
        raise OnnxError(
            "a parameter's value has another dtype", net=net.name, blob=name, wanted=wanted, came=array.dtype
        )
    return array


def all_shapes(net: Net, values: Mapping[str, Array], given: Mapping[str, Any]) -> dict[str, Dims]:
    """The sizes of every input. Raises OnnxError that lists inputs without known sizes."""
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
) -> onnx.ModelProto:
    """The model of a net, which ONNX's own checker has passed."""
    graph = write_graph(typed(net, shapes, float_dtype), values, opset)
    opsets = [onnx.helper.make_opsetid("", opset)]
    ir_version = onnx.helper.find_min_ir_version_for(opsets)
    proto = onnx.helper.make_model(graph, opset_imports=opsets, producer_name=PRODUCER, ir_version=ir_version)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write the whole file, or leave what was there."""
    try:
        with replaced(path) as temporary:
            temporary.write_bytes(data)
    except (OSError, ValueError) as error:
        raise OnnxError(f"the file cannot be written ({error})") from error
