"""The outline of a file, made only from its protobuf, also where rnnops cannot read the file as a net.

Nothing is computed and no tensor is read: sizes and element types are those that the file claims. Recurrences have
their kind, layer, directions, sizes, weights and branch; a layer's number says how many recurrences its data has gone
through, itself included.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import onnx

from rnnops.errors import OnnxError
from rnnops.onnx.functions import put_definitions_in_place, put_functions_in_place, with_loops
from rnnops.onnx.load import READABLE, opset_of
from rnnops.onnx.node import MAX_DEPTH, dtype_in_words, graphs_in, graphs_of, op_name
from rnnops.onnx.open_sizes import Dims, dims_of

CELLS = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
LOOPS = ("Scan", "Loop")
WEIGHTS = (1, 2, 3, 7)  # places of weights, biases and peepholes among a cell's inputs
Scope: TypeAlias = "ChainMap[str, Any]"


@dataclass(frozen=True)
class OutlineLayer:
    """A recurrence.

    Args:
        kind: its op; number: of the layer, 1 for one that reads no other recurrence.
        direction: `forward`, `reverse` or `bidirectional`; empty for loops.
        sizes: `96 -> 64`, features of input and state, `?` where the file does not say; of loops what they carry.
        weights: how many numbers, None where they are not in the file as they are.
        name: of the node; places: the branches and bodies that it lies in, the outermost first.
    """

    kind: str
    number: int
    direction: str
    sizes: str
    weights: int | None
    name: str
    places: tuple[str, ...]


@dataclass
class _RecurrenceWalk:
    """A walk over graphs that gathers recurrences in `found`."""

    found: list[OutlineLayer]

    def walk(self, graph: onnx.GraphProto, places: tuple[str, ...], depths: Scope, dims: Scope) -> int:
        """The largest layer among what a graph computes.

        Args:
            depths: value -> the layer that it comes from; dims: value -> sizes of a tensor of the file.
        """
        dims.update({tensor.name: tuple(tensor.dims) for tensor in graph.initializer})
        deepest = 0
        for node in graph.node:
            dims.update({name: tuple(tensor.dims) for name in node.output for tensor in constants_of(node)})
            depth = self.node(node, places, depths, dims)
            depths.update(dict.fromkeys(node.output, depth))
            deepest = max(deepest, depth)
        return deepest

    def node(self, node: onnx.NodeProto, places: tuple[str, ...], depths: Scope, dims: Scope) -> int:
        """The layer that a node's results come from."""
        depth = max((depths.get(name, 0) for name in node.input), default=0)
        if is_recurrent := node.op_type in (*CELLS, *LOOPS):
            depth += 1
            self.found.append(layer_of(node, depth, places, dims))
        for place, inner in placed_graphs(node, places):
            inside = self.walk(inner, place, depths.new_child(), dims.new_child())
            depth = depth if is_recurrent else max(depth, inside)
        return depth


def constants_of(node: onnx.NodeProto) -> list[onnx.TensorProto]:
    """The tensor of a Constant node, if it has one; nothing of other nodes."""
    found = node.attribute if node.op_type == "Constant" else ()
    return [attribute.t for attribute in found if attribute.type == onnx.AttributeProto.TENSOR]


def layer_of(node: onnx.NodeProto, number: int, places: tuple[str, ...], dims: Scope) -> OutlineLayer:
    """The recurrence of a node."""
    attributes, name = {attribute.name: attribute for attribute in node.attribute}, called(node)
    if node.op_type in LOOPS:
        return OutlineLayer(node.op_type, number, "", loop_sizes(node, attributes), None, name, places)
    direction = attributes["direction"].s.decode("utf-8", "replace") if "direction" in attributes else "forward"
    sizes = cell_sizes(node, attributes, dims)
    return OutlineLayer(node.op_type, number, direction, sizes, weights_of(node.input, dims), name, places)


def cell_sizes(node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto], dims: Scope) -> str:
    """`96 -> 64`: features of the input, from the weights, and of the state."""
    axis = 1 if node.op_type == "DynamicQuantizeLSTM" else 2  # of W: [directions, 4 H, D], or [directions, D, 4 H]
    w = dims.get(node.input[1], ()) if len(node.input) > 1 else ()
    features = w[axis] if len(w) == 3 else "?"
    return f"{features} -> {attributes['hidden_size'].i if 'hidden_size' in attributes else '?'}"


def loop_sizes(node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto]) -> str:
    """The number of values that a loop carries, and of ops in a step, as text."""
    scanned = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 0
    carried = len(node.input) - (scanned if node.op_type == "Scan" else 2)  # a Loop has its trip count and a condition
    steps = [f"{len(one.g.node)} ops a step" for one in node.attribute if one.type == onnx.AttributeProto.GRAPH]
    return ", ".join([f"{max(carried, 0)} states", *steps[:1]])


def weights_of(inputs: Sequence[str], dims: Scope) -> int | None:
    """How many numbers the weights, biases and peepholes of a cell have."""
    sizes = [dims.get(inputs[place]) for place in WEIGHTS if len(inputs) > place and inputs[place]]
    return None if None in sizes else sum(prod(max(size, 0) for size in one) for one in sizes if one is not None)


FIRST = 3  # names of nodes that are told of an op that is not supported
BYTES = {"complex128": 16, "complex64": 8}
BYTES |= dict.fromkeys(("int64", "uint64", "float64"), 8) | dict.fromkeys(("float32", "int32", "uint32"), 4)
BYTES |= dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2)
QUANTISED = ("int8", "uint8")
Places: TypeAlias = "tuple[str, ...]"  # the branches and bodies that a node lies in, the outermost first


@dataclass(frozen=True)
class Value:
    """An input or output: `dims` is None where the file does not say how many axes there are."""

    name: str
    dtype: str
    dims: Dims | None


@dataclass(frozen=True)
class TensorCounts:
    """Values that are in a file, of one element type: how many tensors, their numbers, and the bytes of these."""

    dtype: str
    tensors: int
    numbers: int
    nbytes: int


@dataclass(frozen=True)
class Unsupported:
    """An op that rnnops does not read.

    Args:
        op: its type, with its domain where that is not ONNX's own; domain: `ai.onnx` for that.
        count: of nodes; first: names of the first few, with the branch that they lie in.
    """

    op: str
    domain: str
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True)
class Outline:
    """The outline of a file.

    Args:
        nbytes: of the file; producer: the program that wrote it, and its version.
        opsets: domain -> version; functions: names of the model's own.
        layers: recurrences, those in branches and bodies too.
        parameters: tensors of floats and of bytes that have axes; others: all other tensors.
        ops: op -> number of its nodes, those in branches and bodies too.
    """

    nbytes: int
    ir_version: int
    producer: str
    opsets: tuple[tuple[str, int], ...]
    functions: tuple[str, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    layers: tuple[OutlineLayer, ...]
    parameters: tuple[TensorCounts, ...]
    others: tuple[TensorCounts, ...]
    ops: Counter[str]
    unsupported: tuple[Unsupported, ...]


def outline(model: onnx.ModelProto, nbytes: int) -> Outline:
    """The outline of a model. Raises OnnxError where graphs lie too deep inside each other."""
    graph = as_read(model).graph
    nodes = list(placed_nodes(graph))
    valued = {tensor.name for tensor in graph.initializer}
    (parameters, others), layers = tensors_of(graph), list[OutlineLayer]()
    _RecurrenceWalk(layers).walk(graph, (), ChainMap(), ChainMap())
    return Outline(
        nbytes=nbytes,
        ir_version=model.ir_version,
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        opsets=tuple((entry.domain or "ai.onnx", entry.version) for entry in model.opset_import),
        functions=tuple(f"{one.domain}::{one.name}" for one in model.functions),
        inputs=tuple(value_of(one) for one in graph.input if one.name not in valued),
        outputs=tuple(map(value_of, graph.output)),
        layers=tuple(layers),
        parameters=parameters,
        others=others,
        ops=Counter(op_name(node) for node, _ in nodes),
        unsupported=tuple(unsupported_of(nodes)),
    )


def placed_nodes(graph: onnx.GraphProto, places: Places = ()) -> Iterator[tuple[onnx.NodeProto, Places]]:
    """All nodes with the branches that they lie in. Raises OnnxError where graphs lie too deep inside each other."""
    if len(places) > MAX_DEPTH:
        raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
    for node in graph.node:
        yield node, places
        for place, inner in placed_graphs(node, places):
            yield from placed_nodes(inner, place)


def placed_graphs(node: onnx.NodeProto, places: Places) -> Iterator[tuple[Places, onnx.GraphProto]]:
    """The graphs in a node's attributes, each with the branches that it lies in, itself included."""
    for attribute in node.attribute:
        place = f"{attribute.name} of {node.op_type} '{called(node)}'"
        yield from (((*places, place), inner) for inner in graphs_in(attribute))


def called(node: onnx.NodeProto) -> str:
    """The name of a node, else that of its first result."""
    return str(node.name or next(filter(None, node.output), ""))


def value_of(value: onnx.ValueInfoProto) -> Value:
    """An input or output as the file describes it."""
    kind = value.type.WhichOneof("value") or "nothing said"
    if kind != "tensor_type":
        return Value(value.name, kind.removesuffix("_type"), None)
    return Value(value.name, dtype_in_words(value.type.tensor_type.elem_type), dims_of(value))


def tensors_of(graph: onnx.GraphProto) -> tuple[tuple[TensorCounts, ...], tuple[TensorCounts, ...]]:
    """Parameters, tensors of floats and bytes with axes, and other tensors, by dtype, those of inner graphs too."""
    found: defaultdict[tuple[bool, str], list[int]] = defaultdict(list)
    for tensor in all_tensors(graph):
        dtype = dtype_in_words(tensor.data_type)
        weighs = "float" in dtype or dtype in QUANTISED
        found[weighs and len(tensor.dims) > 0, dtype].append(prod(max(size, 0) for size in tensor.dims))
    rows = [
        (is_parameter, TensorCounts(dtype, len(sizes), sum(sizes), sum(sizes) * BYTES.get(dtype, 1)))
        for (is_parameter, dtype), sizes in found.items()
    ]
    return tuple(row for is_parameter, row in rows if is_parameter), tuple(row for other, row in rows if not other)


def all_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and values of Constant nodes, those of graphs inside a graph too."""
    yield from graph.initializer
    for node in graph.node:
        yield from constants_of(node)
        for inner in graphs_of(node):
            yield from all_tensors(inner)


def as_read(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with functions and definitions in their places and loops rolled up; as it is where that fails."""
    read = deepcopy(model)
    with suppress(OnnxError):  # the reader says what is wrong
        put_functions_in_place(read)
        put_definitions_in_place(read, opset_of(read), READABLE)
        read = with_loops(read, opset_of(read)) or read
    return read


def unsupported_of(nodes: list[tuple[onnx.NodeProto, Places]]) -> Iterator[Unsupported]:
    """The ops among nodes that rnnops does not read, by name."""
    found: defaultdict[tuple[str, str], list[tuple[onnx.NodeProto, Places]]] = defaultdict(list)
    for node, places in nodes:
        if op_name(node) not in READABLE:
            found[op_name(node), node.domain].append((node, places))
    for (op, domain), these in sorted(found.items(), key=lambda item: item[0]):
        first = tuple(" in ".join((f"'{called(node)}'", *reversed(places))) for node, places in these[:FIRST])
        yield Unsupported(op, domain or "ai.onnx", len(these), first)
