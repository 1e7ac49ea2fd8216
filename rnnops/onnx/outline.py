"""What the protobuf of a file alone says of it, also where rnnops cannot read the file as a net.

Nothing is computed and no tensor is read: sizes and element types are those that the file claims.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import TypeAlias

from rnnops.onnx.definitions import put_definitions_in_place
from rnnops.onnx.errors import OnnxError
from rnnops.onnx.graphs import MAX_DEPTH, copied, graphs_of, op_name
from rnnops.onnx.load import READABLE
from rnnops.onnx.model_functions import put_functions_in_place
from rnnops.onnx.outline_layers import Layer, layers_of
from rnnops.onnx.package import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from rnnops.onnx.probes import Dims
from rnnops.onnx.read_model import MAX_BYTES, check_ops, opset_of, parse_model
from rnnops.onnx.tensors import ELEMENT_TYPES

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
class Tensors:
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
    """What a file says of itself.

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
    layers: tuple[Layer, ...]
    parameters: tuple[Tensors, ...]
    others: tuple[Tensors, ...]
    ops: Counter[str]
    unsupported: tuple[Unsupported, ...]


def read_proto(path: Path) -> tuple[ModelProto, int]:
    """A file's protobuf and its size in bytes. Raises OnnxError where it is no protobuf of a model."""
    if not path.is_file():
        raise OnnxError("it is no file" if path.exists() else "it does not exist")
    if path.stat().st_size > MAX_BYTES:
        raise OnnxError("it is larger than a protobuf can be", wanted=f"at most {MAX_BYTES} bytes")
    data = path.read_bytes()
    return parse_model(data), len(data)


def outline(model: ModelProto, nbytes: int) -> Outline:
    """The outline of a model. Raises OnnxError where graphs lie too deep inside each other."""
    graph = as_read(model).graph
    nodes = list(placed_nodes(graph))
    valued = {tensor.name for tensor in graph.initializer}
    parameters, others = tensors_of(graph)
    return Outline(
        nbytes=nbytes,
        ir_version=model.ir_version,
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        opsets=tuple((entry.domain or "ai.onnx", entry.version) for entry in model.opset_import),
        functions=tuple(f"{one.domain}::{one.name}" for one in model.functions),
        inputs=tuple(value_of(one) for one in graph.input if one.name not in valued),
        outputs=tuple(map(value_of, graph.output)),
        layers=tuple(layers_of(graph)),
        parameters=parameters,
        others=others,
        ops=Counter(op_name(node) for node, _ in nodes),
        unsupported=tuple(unsupported_of(nodes)),
    )


def placed_nodes(graph: GraphProto, places: Places = ()) -> Iterator[tuple[NodeProto, Places]]:
    """All nodes with the branches that they lie in. Raises OnnxError where graphs lie too deep inside each other."""
    if len(places) > MAX_DEPTH:
        raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
    for node in graph.node:
        yield node, places
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
                yield from placed_nodes(inner, (*places, f"{attribute.name} of {node.op_type} {called(node)}"))


def called(node: NodeProto) -> str:
    """What a node is called: its name, else that of its first result."""
    return f"'{node.name or next(filter(None, node.output), '')}'"


def value_of(value: ValueInfoProto) -> Value:
    """An input or output as the file describes it."""
    kind = value.type.WhichOneof("value") or "nothing said"
    if kind != "tensor_type":
        return Value(value.name, kind.removesuffix("_type"), None)
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return Value(value.name, dtype, None)
    dims = (dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim)
    return Value(value.name, dtype, tuple(dims))


def dtype_name(element_type: int) -> str:
    """An element type in words, also one that rnnops does not have."""
    known = dict(zip(TensorProto.DataType.values(), TensorProto.DataType.keys(), strict=True))
    return ELEMENT_TYPES.get(element_type) or str(known.get(element_type, f"type {element_type}")).lower()


def tensors_of(graph: GraphProto) -> tuple[tuple[Tensors, ...], tuple[Tensors, ...]]:
    """Parameters, tensors of floats and bytes with axes, and other tensors, by dtype, those of inner graphs too."""
    found: defaultdict[tuple[bool, str], list[int]] = defaultdict(list)
    for tensor in all_tensors(graph):
        dtype = dtype_name(tensor.data_type)
        weighs = "float" in dtype or dtype in QUANTISED
        found[weighs and len(tensor.dims) > 0, dtype].append(prod(max(size, 0) for size in tensor.dims))
    rows = {
        key: Tensors(key[1], len(sizes), sum(sizes), sum(sizes) * BYTES.get(key[1], 1)) for key, sizes in found.items()
    }
    return tuple(rows[key] for key in rows if key[0]), tuple(rows[key] for key in rows if not key[0])


def all_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Initializers and values of Constant nodes, those of graphs inside a graph too."""
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute if attribute.type == AttributeProto.TENSOR)
        for inner in graphs_of(node):
            yield from all_tensors(inner)


def as_read(model: ModelProto) -> ModelProto:
    """The model with functions and definitions in their places, as reading has it; as it is where they cannot be."""
    read: ModelProto = copied(model)
    with suppress(OnnxError):  # the reader says what is wrong
        put_functions_in_place(read)
        put_definitions_in_place(read, opset_of(read), READABLE)
    return read


def unsupported_of(nodes: list[tuple[NodeProto, Places]]) -> Iterator[Unsupported]:
    """The ops among nodes that rnnops does not read, by name."""
    found: defaultdict[tuple[str, str], list[tuple[NodeProto, Places]]] = defaultdict(list)
    for node, places in nodes:
        if not is_read(node.domain, node.op_type):
            found[op_name(node), node.domain].append((node, places))
    for (op, domain), these in sorted(found.items(), key=lambda item: item[0]):
        first = tuple(" in ".join((called(node), *reversed(places))) for node, places in these[:FIRST])
        yield Unsupported(op, domain or "ai.onnx", len(these), first)


@cache
def is_read(domain: str, op_type: str) -> bool:
    """Whether rnnops reads an op, as reading itself says of a model that has it alone."""
    model = ModelProto()
    node = model.graph.node.add()
    node.domain, node.op_type = domain, op_type
    try:
        check_ops(model, READABLE)
    except OnnxError:
        return False
    return True
