"""Ops that are functions of simpler ones, defined by ONNX or by a model, put in place.

**Ops that ONNX itself defines by simpler ones, in the places where they stand**. They are Attention, LinearAttention (a
Scan), CausalConvWithState, RotaryEmbedding, CastLike and others: the package `onnx` says what they stand for, given the
types of their inputs. What cannot be told stays as it is.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rnnops.net.text import free_name
from rnnops.onnx.node import MAX_BYTES, OWN_DOMAINS, graphs_in, graphs_of, nodes_of, op_name
from rnnops.onnx.package import OnnxError, about, get_schema, infer_shapes, onnx

DEFINITIONS = "rnnops.definitions"  # the domain of ops that are about to be written out
DEEPEST = 4  # definitions in definitions: those of ONNX go two deep


def put_definitions_in_place(model: onnx.ModelProto, opset: int, known: Collection[str]) -> None:
    """Replace ops that are not known by what ONNX says that they stand for; others stay.

    Args:
        opset: version of the model's op set.
        known: names of the ops that can be read as they are.
    """
    for _ in range(DEEPEST):
        if not any(is_defined(node, opset, known) for node in nodes_of(model.graph)):
            return
        define(model, opset, known)
        put_functions_in_place(model)


def schema_of(node: onnx.NodeProto, opset: int) -> Any:
    """ONNX's schema of an op of its own set; None for others."""
    is_there = node.domain in OWN_DOMAINS and onnx.defs.has(node.op_type, opset, "")
    return get_schema(node.op_type, opset, "") if is_there else None


def is_defined(node: onnx.NodeProto, opset: int, known: Collection[str]) -> bool:
    """True if an op that is not known is one that ONNX says the nodes of."""
    schema = None if op_name(node) in known else schema_of(node, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def define(model: onnx.ModelProto, opset: int, known: Collection[str]) -> None:
    """Give a model a function of its own for each node that is not known, as far as ONNX says what it stands for."""
    around = types_around(graph_with_types(model))
    del model.functions[:]  # which are in place already
    for number, (node, types) in enumerate(zip(nodes_of(model.graph), around, strict=True)):
        function = definition_of(node, opset, types) if is_defined(node, opset, known) else None
        if function is None:
            continue
        function.domain, function.name = DEFINITIONS, f"{node.op_type}_{number}"
        del function.opset_import[:]
        function.opset_import.append(onnx.helper.make_opsetid("", opset))
        model.functions.append(function)
        node.attribute.extend(defaults_of(node, opset))
        node.domain, node.op_type = function.domain, function.name


def definition_of(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> onnx.FunctionProto | None:
    """The function that defines a node; None if ONNX has none for its inputs and attributes.

    The newest definition before the op set is taken: what its ops mean has not changed since, as far as they use it.
    """
    schema = schema_of(node, opset)
    given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
    try:
        if schema.has_function:
            body = schema.get_function_with_opset_version(newest(schema.function_opset_versions, opset))
        else:
            make = schema.get_context_dependent_function_with_opset_version
            version = newest(schema.context_dependent_function_opset_versions, opset)
            body = make(version, node.SerializeToString(), given)
        return onnx.FunctionProto.FromString(body) if body else None
    except Exception:  # what it raises for attributes that do not fit is its own affair
        return None


def newest(versions: Iterable[int], opset: int) -> int:
    """The newest of some versions that is not after the op set."""
    return max(version for version in versions if version <= opset)


def defaults_of(node: onnx.NodeProto, opset: int) -> list[onnx.AttributeProto]:
    """Attributes that a node leaves out, where their op has defaults."""
    given = {attribute.name for attribute in node.attribute}
    attributes = schema_of(node, opset).attributes
    return [one.default_value for name, one in attributes.items() if name not in given and one.default_value.name]


def graph_with_types(model: onnx.ModelProto) -> onnx.GraphProto:
    """A model's graph with the types of its values, as far as they can be told."""
    try:
        return infer_shapes(model).graph
    except Exception:  # what it raises where shapes contradict each other is its own affair
        return model.graph


def types_around(
    graph: onnx.GraphProto, around: Sequence[dict[str, onnx.TypeProto]] = ()
) -> Iterator[Mapping[str, onnx.TypeProto]]:
    """For each node, in the order of `nodes_of`, the types of the values that it can read.

    Args:
        around: those of each graph around this one, the nearest first.
    """
    values = [*graph.input, *graph.value_info, *graph.output]
    here = {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in graph.initializer
    }
    scopes = [here | {value.name: value.type for value in values}, *around]
    for node in graph.node:
        yield ChainMap(*scopes)
        for inner in graphs_of(node):
            yield from types_around(inner, scopes)


MAX_NODES = 2**17  # of a graph in which all functions are in place
MAX_CALLS = 32  # of functions from inside each other

Key: TypeAlias = tuple[str, str, str]  # domain, name, overload


def put_functions_in_place(model: onnx.ModelProto) -> None:
    """Replace calls of a model's functions by their nodes. Raises OnnxError for one that calls itself."""
    if not model.functions:
        return
    functions = {key_of(function, function.name): function for function in model.functions}
    versions = {entry.version for entry in model.opset_import if entry.domain in OWN_DOMAINS}
    for function in functions.values():
        own = {entry.version for entry in function.opset_import if entry.domain in OWN_DOMAINS}
        if not own <= versions:
            problem = f"its function '{function.name}' is of another op set"
            raise OnnxError(problem, wanted=sorted(versions), came=sorted(own))
    check_count(NodeCount(functions).of(model.graph.node))
    FunctionInliner(functions, set(prefixes(names_in(model.graph)))).fill(model.graph)


def key_of(proto: Any, name: str) -> Key:
    """The key of a function; its overload since IR version 10."""
    return ("" if proto.domain in OWN_DOMAINS else proto.domain), name, getattr(proto, "overload", "")


def names_in(graph: onnx.GraphProto) -> set[str]:
    """Names of values in a graph, and in graphs inside it."""
    names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return names | names_made(graph.node)


def names_made(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Names of the values that nodes make, and of those in graphs inside them."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.output)
        for inner in graphs_of(node):
            names |= names_in(inner)
    return names


def prefixes(names: Iterable[str]) -> Iterator[str]:
    """The parts of names before a slash, and the names."""
    for name in names:
        parts = name.split("/")
        yield from ("/".join(parts[:k]) for k in range(1, len(parts) + 1))


def check_count(nodes: int, nbytes: int = 0) -> None:
    """Raises OnnxError where nodes, or their bytes, are too many."""
    if nodes > MAX_NODES or nbytes > MAX_BYTES:
        came = f"{nodes} nodes" + (f" of {nbytes} bytes" if nbytes else "")
        wanted = f"at most {MAX_NODES}, of {MAX_BYTES} bytes"
        raise OnnxError("its functions make too many nodes", wanted=wanted, came=came)


@dataclass
class NodeCount:
    """How many nodes there will be, calls included, before any is made; graphs that a call hands on are not counted.

    Args:
        known: the numbers of nodes of functions.
    """

    functions: Mapping[Key, Any]
    known: dict[Key, int] = field(default_factory=dict)
    inside: list[Key] = field(default_factory=list)

    def of(self, nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(1 + self._inside(node) for node in nodes)

    def _inside(self, node: onnx.NodeProto) -> int:
        """The number of nodes that take a node's place."""
        key = key_of(node, node.op_type)
        if key not in self.functions:
            return sum(self.of(graph.node) for graph in graphs_of(node))
        if key not in self.known:
            check_call(key, self.inside)
            self.inside.append(key)
            self.known[key] = self.of(self.functions[key].node)
            self.inside.pop()
        return self.known[key]


def check_call(key: Key, inside: Sequence[Key]) -> None:
    """Raises OnnxError for a call, inside calls, that would not end."""
    if key in inside or len(inside) >= MAX_CALLS:
        problem = f"a function of the model calls itself, or calls lie too deep inside each other: '{key[1]}'"
        raise OnnxError(problem, wanted=f"at most {MAX_CALLS} calls inside each other")


@dataclass
class FunctionInliner:
    """Puts functions in place.

    Args:
        taken: names, and what stands in front of slashes in them.
    """

    functions: Mapping[Key, Any]
    taken: set[str]
    nodes: int = 0
    nbytes: int = 0
    inside: list[Key] = field(default_factory=list)

    def fill(self, graph: onnx.GraphProto) -> None:
        """Replace the calls in a graph, and in graphs inside it."""
        nodes = [new for node in graph.node for new in self._nodes(node)]
        del graph.node[:]
        graph.node.extend(nodes)

    def _nodes(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A node, or what it becomes."""
        self.nodes, self.nbytes = self.nodes + 1, self.nbytes + node.ByteSize()
        check_count(self.nodes, self.nbytes)
        key = key_of(node, node.op_type)
        if key not in self.functions:
            for inner in graphs_of(node):
                self.fill(inner)
            return [node]
        with about(f"node {node.name or next(iter(node.output), '')!r} ({node.op_type})"):
            return self._called(node, key)

    def _called(self, node: onnx.NodeProto, key: Key) -> list[onnx.NodeProto]:
        """The nodes of a function under the names of a call."""
        check_call(key, self.inside)
        function = self.functions[key]
        name = node.name or next(filter(None, node.output), node.op_type)
        call = FunctionCall(node, function, free_name(name, self.taken))
        self.taken.update(prefixes(map(call.named, names_made(function.node))))
        self.inside.append(key)
        found = [new for inner in function.node for new in self._nodes(call.placed(inner))]
        self.inside.pop()
        return [*found, *call.handed_through()]


class FunctionCall:
    """A call of a function: what its names and attributes stand for."""

    def __init__(self, node: onnx.NodeProto, function: Any, prefix: str) -> None:
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise OnnxError("inputs and outputs do not fit the function", came=f"{len(node.input)} inputs")
        self.prefix = prefix
        given = [*node.input, *[""] * (len(function.input) - len(node.input))]
        self.names = dict(zip(function.input, given, strict=True))
        self.copies: list[tuple[str, str]] = []  # of outputs that are an input or another output
        for own, name in zip(function.output, node.output, strict=False):
            if name and self.names.setdefault(own, name) != name:
                self.copies.append((own, name))
        self.attributes = {one.name: one for one in (*function.attribute_proto, *node.attribute)}

    def named(self, name: str) -> str:
        """The name that a value of the function has where it is called."""
        return self.names.get(name, f"{self.prefix}/{name}") if name else ""

    def placed(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node of the function."""
        found = deepcopy(node)
        found.name = f"{self.prefix}/{node.name}" if node.name else ""
        for values in (found.input, found.output):
            values[:] = list(map(self.named, values))
        attributes = [new for attribute in node.attribute for new in self._attribute(attribute)]
        del found.attribute[:]
        found.attribute.extend(attributes)
        return found

    def _attribute(self, attribute: onnx.AttributeProto) -> Iterator[onnx.AttributeProto]:
        """An attribute, or the one of the call that it refers to; nothing where that is left out."""
        if not attribute.ref_attr_name:
            found = deepcopy(attribute)
            for graph in graphs_in(found):
                self._rename(graph)
            yield found
        elif attribute.ref_attr_name in self.attributes:
            found = deepcopy(self.attributes[attribute.ref_attr_name])
            found.name = attribute.name
            yield found

    def _rename(self, graph: onnx.GraphProto) -> None:
        """Give names to what is in a graph inside the function."""
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = self.named(value.name)
        nodes = list(map(self.placed, graph.node))
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)

    def handed_through(self) -> Iterator[onnx.NodeProto]:
        """Nodes for outputs that are an input or another output."""
        for own, name in self.copies:
            yield onnx.helper.make_node("Identity", [self.names[own]], [name])
