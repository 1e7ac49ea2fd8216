"""Functions become the nodes that they stand for: those of a file, and ops that ONNX itself defines by simpler ones.

Such ops are Attention, LinearAttention (a Scan), CausalConvWithState, RotaryEmbedding, CastLike and others: the package
`onnx` says what they are for the types that they are given, and puts the nodes in. A file whose functions call each
other in a circle, or stand for more than `MOST_NODES`, is refused before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rnnops.onnx.errors import OnnxError
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
    inline_local_functions,
)
from rnnops.onnx.walk import OWN_DOMAINS, graphs_of, nodes_of, op_name

DEFINITIONS = "rnnops.definitions"  # the domain of ops that are about to be written out
MOST_NODES = 1_000_000  # of all functions of a file together, written out
DEEPEST = 4  # definitions in definitions: those of ONNX go two deep


def inline_functions(model: ModelProto, opset: int, known: Collection[str]) -> ModelProto:
    """A model without functions, and without ops that can be read only as what they stand for.

    Args:
        opset: version of the model's op set.
        known: names of the ops that can be read as they are.

    Raises OnnxError where functions cannot be written out. Ops without a definition stay.
    """
    if model.functions:
        model = written_out(model)
    for _ in range(DEEPEST):
        if not any(is_defined(node, opset, known) for node in nodes_of(model.graph)):
            break
        model = written_out(with_definitions(model, opset, known))
    return model


def written_out(model: ModelProto) -> ModelProto:
    """The model with the nodes of its functions in the place of their calls."""
    try:
        check_functions(model)
        inlined: ModelProto = inline_local_functions(model)
    except OnnxError:
        raise
    except Exception as error:  # of which class it is if a function does not fit, the package does not say
        raise OnnxError(f"its functions cannot be written out ({str(error)[:200]})") from error
    return inlined


def check_functions(model: ModelProto) -> None:
    """Raise OnnxError where functions stand for too many nodes, or for themselves; RecursionError where very deep."""
    functions = {(one.domain, one.name): one for one in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    open_ones: set[tuple[str, str]] = set()

    def size_of(node: NodeProto) -> int:
        key = node.domain, node.op_type
        if key not in functions or key in sizes:
            return sizes.get(key, 1)
        if key in open_ones:
            raise OnnxError("a function stands for itself", came="::".join(key))
        open_ones.add(key)
        sizes[key] = count(functions[key])
        return sizes[key]

    def count(nodes: FunctionProto | GraphProto) -> int:
        size = sum(map(size_of, nodes_of(nodes)))
        if size > MOST_NODES:
            raise OnnxError("its functions stand for too many nodes", wanted=f"at most {MOST_NODES}", came=size)
        return size

    count(model.graph)


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


def with_definitions(model: ModelProto, opset: int, known: Collection[str]) -> ModelProto:
    """The model with a function of its own for each op that is defined."""
    made, types = ModelProto(), types_of(model)
    made.CopyFrom(model)
    for number, node in enumerate([one for one in nodes_of(made.graph) if is_defined(one, opset, known)]):
        function = definition_of(node, opset, types)
        if function is None:
            continue
        function.domain, function.name = DEFINITIONS, f"{node.op_type}_{number}"
        del function.opset_import[:]
        function.opset_import.append(helper.make_opsetid("", opset))
        made.functions.append(function)
        node.attribute.extend(defaults_of(node, opset))
        node.domain, node.op_type = function.domain, function.name
    made.opset_import.append(helper.make_opsetid(DEFINITIONS, 1))
    return made


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


def types_of(model: ModelProto) -> dict[str, TypeProto]:
    """Types of all values, as far as they can be told; names are those of all graphs together."""
    found: dict[str, TypeProto] = {}
    try:
        pending = [infer_shapes(model).graph]
    except Exception:  # what it raises where shapes contradict each other is its own affair
        pending = [model.graph]
    while pending:
        graph = pending.pop()
        found.update((value.name, value.type) for value in (*graph.input, *graph.value_info, *graph.output))
        for tensor in graph.initializer:
            found.setdefault(tensor.name, helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)))
        pending += [inner for node in graph.node for inner in graphs_of(node)]
    return found
