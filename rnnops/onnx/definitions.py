"""Ops that ONNX itself defines by simpler ones, in the places where they stand.

They are Attention, LinearAttention (a Scan), CausalConvWithState, RotaryEmbedding, CastLike and others: the package
`onnx` says what they stand for, given the types of their inputs. What cannot be told stays as it is.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnnops.onnx.graphs import OWN_DOMAINS, graphs_of, nodes_of, op_name
from rnnops.onnx.model_functions import put_functions_in_place
from rnnops.onnx.package import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    get_schema,
    helper,
    infer_shapes,
)

DEFINITIONS = "rnnops.definitions"  # the domain of ops that are about to be written out
DEEPEST = 4  # definitions in definitions: those of ONNX go two deep


def put_definitions_in_place(model: ModelProto, opset: int, known: Collection[str]) -> None:
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


def schema_of(node: NodeProto, opset: int) -> Any:
    """What ONNX says of an op of its own set; None of others."""
    if node.domain not in OWN_DOMAINS:
        return None
    try:
        return get_schema(node.op_type, opset, "")
    except Exception:  # there is none; the class of this is private to the package
        return None


def is_defined(node: NodeProto, opset: int, known: Collection[str]) -> bool:
    """Whether an op that is not known is one that ONNX says the nodes of."""
    schema = None if op_name(node) in known else schema_of(node, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def define(model: ModelProto, opset: int, known: Collection[str]) -> None:
    """Give a model a function of its own for each node that is not known, as far as ONNX says what it stands for."""
    around = types_around(graph_with_types(model))
    del model.functions[:]  # which are in place already
    for number, (node, types) in enumerate(zip(nodes_of(model.graph), around, strict=True)):
        function = definition_of(node, opset, types) if is_defined(node, opset, known) else None
        if function is None:
            continue
        function.domain, function.name = DEFINITIONS, f"{node.op_type}_{number}"
        del function.opset_import[:]
        function.opset_import.append(helper.make_opsetid("", opset))
        model.functions.append(function)
        node.attribute.extend(defaults_of(node, opset))
        node.domain, node.op_type = function.domain, function.name


def definition_of(node: NodeProto, opset: int, types: Mapping[str, TypeProto]) -> FunctionProto | None:
    """What a node stands for; None where ONNX does not say it for such inputs and attributes.

    The newest definition before the op set is taken: what its ops mean has not changed since, as far as they use it.
    """
    schema = schema_of(node, opset)
    given = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
    try:
        if schema.has_function:
            body = schema.get_function_with_opset_version(newest(schema.function_opset_versions, opset))
        else:
            make = schema.get_context_dependent_function_with_opset_version
            version = newest(schema.context_dependent_function_opset_versions, opset)
            body = make(version, node.SerializeToString(), given)
        return FunctionProto.FromString(body) if body else None
    except Exception:  # what it raises for attributes that do not fit is its own affair
        return None


def newest(versions: Iterable[int], opset: int) -> int:
    """The newest of some versions that is not after the op set."""
    return max(version for version in versions if version <= opset)


def defaults_of(node: NodeProto, opset: int) -> list[AttributeProto]:
    """Attributes that a node leaves out, where their op has defaults."""
    given = {attribute.name for attribute in node.attribute}
    attributes = schema_of(node, opset).attributes
    return [one.default_value for name, one in attributes.items() if name not in given and one.default_value.name]


def graph_with_types(model: ModelProto) -> GraphProto:
    """A model's graph with the types of its values, as far as they can be told."""
    try:
        return infer_shapes(model).graph
    except Exception:  # what it raises where shapes contradict each other is its own affair
        return model.graph


def types_around(graph: GraphProto, around: Sequence[dict[str, TypeProto]] = ()) -> Iterator[Mapping[str, TypeProto]]:
    """For each node, in the order of `nodes_of`, the types of the values that it can read.

    Args:
        around: those of each graph around this one, the nearest first.
    """
    values = [*graph.input, *graph.value_info, *graph.output]
    here = {tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in graph.initializer}
    scopes = [here | {value.name: value.type for value in values}, *around]
    for node in graph.node:
        yield ChainMap(*scopes)
        for inner in graphs_of(node):
            yield from types_around(inner, scopes)
