"""A net as the main graph of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rnnops.errors import RnnopsError
from rnnops.infer import infer
from rnnops.net import Net
from rnnops.onnx.export_ops import write_op
from rnnops.onnx.export_scan import ScanWriter, is_final_squeeze
from rnnops.onnx.find_layers import Layer, find_layers
from rnnops.onnx.find_presets import find_preset, write_preset
from rnnops.onnx.graph_writer import GraphWriter, named_dims, value_info
from rnnops.onnx.package import GraphProto, ValueInfoProto, helper
from rnnops.onnx.probes import Dims, Sizes
from rnnops.onnx.tensors import write_tensor
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call
from rnnops.types import FLOAT, Array, Type

SMALL = ((24, 26), (6, 7))  # the first open size, twice


@dataclass
class Typed:
    """A net with the types of all its blobs, for two choices of the sizes that are open."""

    net: Net
    calls: tuple[Call, ...]
    types: tuple[dict[str, Type], dict[str, Type]]
    sizes: Sizes
    float_dtype: str


def typed(net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> Typed:
    """Infer all types, with smaller sizes where large ones are more than a table has, say.

    Raises TypeRuleError where shapes do not fit the net.
    """
    try:
        return typed_with(Sizes(), net, shapes, float_dtype)
    except RnnopsError:
        for first in SMALL:
            with suppress(RnnopsError):
                return typed_with(Sizes(first, (2, 2)), net, shapes, float_dtype)
        raise


def typed_with(sizes: Sizes, net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> Typed:
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


def inferred(net: Net, types: Mapping[str, Type], sizes: Sizes, float_dtype: str) -> dict[str, Call]:
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
    """What to do where made-up sizes, some of which have names, do not fit a net."""
    differ = f"Sizes of different names ({', '.join(names)}) differ: where two are one, give shapes={{...}}. "
    made_up = "Sizes that are open are made up here; those that must fit the net are given as numbers: shapes={...}."
    return differ * (len(names) > 1) + made_up


def write_graph(model: Typed, params: Mapping[str, Array], opset: int) -> GraphProto:
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
    weights = [write_tensor(params[spec.name], spec.name) for spec in net.input_specs if spec.name in params]
    return helper.make_graph(writer.nodes, net.name, inputs, outputs, weights)


def renamed(writer: GraphWriter, net: Net) -> dict[str, str]:
    """New names of blobs that have the name of an output which is another blob."""
    return {
        name: writer.fresh(name)
        for name, blob in net.output_blobs.items()
        if name != blob and name in net and name not in net.input_names
    }


def described(model: Typed, blob: str, name: str) -> ValueInfoProto:
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


def write_layer(writer: GraphWriter, call: Call, layer: Layer) -> None:
    """Write an LSTM, GRU or RNN that was found; its weights say the hidden size, but some runtimes want to read it."""
    inputs, outputs = ([writer.name(name) if name else "" for name in names] for names in (layer.inputs, layer.outputs))
    hidden = call.output_types[0].shape[-1]
    hidden_size = None if hidden in writer.open_sizes else hidden
    writer.node(layer.op, inputs, outputs, hidden_size=hidden_size, **layer.attributes)


def write_recurrence(writer: GraphWriter, call: Call, finals: Mapping[str, str]) -> None:
    """Write a recurrence as the op that its preset is, else as a Scan."""
    preset = find_preset(Recurrence(call.op, call.net), call)
    if preset is None:
        ScanWriter(writer, call, write_calls, finals).write()
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
