"""If nodes, read in place: one branch where sizes decide which, else both, and Where takes one of each two results.

A condition that follows from constants and fixed sizes is known. One that follows from sizes that the file leaves open
is taken for what it is at sizes that are large and differ; a run at whose sizes it is not is refused by a Reshape.

A branch becomes nodes of the graph around it, its values under names that nothing else has. So all that is known around
an If is known inside, and sizes that its values decide can be known as well. Nothing that a branch may hold has an
effect beside its results, so computing both is harmless; what a run refuses in the branch that is not taken, it refuses
all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.graphs import copied, graphs_of
from rnnops.onnx.open_sizes import OpenBranch
from rnnops.onnx.package import GraphProto, NodeProto, TensorProto, helper
from rnnops.onnx.probes import Known, fixed_dims
from rnnops.scopes import free_name
from rnnops.types import BOOL

if TYPE_CHECKING:
    from rnnops.onnx.read_graph import GraphReader

BRANCHES = {True: "then_branch", False: "else_branch"}


@dataclass
class Branch:
    """A branch as part of the graph around it: its constants, its nodes, and what its results are called there."""

    tensors: list[TensorProto]
    nodes: list[NodeProto]
    results: list[str]


def read_if(reader: GraphReader, proto: NodeProto, attributes: Mapping[str, tuple[int, Any]]) -> None:
    """Read an If node into the graph around it."""
    branches = {taken: branch_of(attributes, name, len(proto.output)) for taken, name in BRANCHES.items()}
    if unread := set(attributes) - set(BRANCHES.values()):
        raise OnnxError("attributes are not supported", came=", ".join(sorted(unread)))
    if len(proto.input) != 1 or reader.dtype_of(proto.input[0]) != BOOL:
        raise OnnxError("an If has one input, a bool", came=", ".join(proto.input))
    known = reader.known_value(proto.input[0])
    likely = reader.likely_value(proto.input[0]) if known is None else known
    if known is None:
        reader.model.branches.append(open_branch(reader, proto))
    if likely is None:
        return read_both(reader, proto, branches)
    if likely.size != 1:
        raise OnnxError("a condition is one element", blob=proto.input[0], came=list(likely.shape))
    return read_one(reader, proto, branches, bool(likely.item()), certain=known is not None)


def read_one(
    reader: GraphReader, proto: NodeProto, branches: Mapping[bool, GraphProto], taken: bool, certain: bool
) -> None:
    """The branch that is taken; where that follows from open sizes, a run at which it is not is refused."""
    guard = "" if certain else guard_of(reader, proto, taken)
    results = read_branch(reader, proto, branches[taken], BRANCHES[taken])
    for name, result in zip(proto.output, results, strict=True):
        if name and guard:
            shape = appended(reader, f"{name}/shape", "Shape", [result])
            sizes = appended(reader, f"{name}/guarded_shape", "Concat", [guard, shape], axis=0)
            guarded = appended(reader, f"{name}/guarded", "Reshape", [result, sizes], allowzero=1)
            reader.read_node(helper.make_node("Reshape", [guarded, shape], [name], allowzero=1))
        elif name:
            reader.read_node(helper.make_node("Identity", [result], [name]))


def guard_of(reader: GraphReader, proto: NodeProto, taken: bool) -> str:
    """1 where the condition is what it is taken for, else a number that no size can be: no Reshape accepts that."""
    prefix = next(filter(None, proto.output), proto.op_type)
    numbers = [constant(reader, f"{prefix}/{word}", [number]) for word, number in (("fits", 1), ("does_not_fit", -7))]
    condition = scalar_condition(reader, proto)
    return appended(reader, f"{prefix}/guard", "Where", [condition, *(numbers if taken else reversed(numbers))])


def constant(reader: GraphReader, name: str, values: Sequence[int]) -> str:
    """A constant of the graph, a list of integers; its name."""
    return appended(
        reader, name, "Constant", [], value=helper.make_tensor("", TensorProto.INT64, [len(values)], values)
    )


def appended(reader: GraphReader, name: str, op: str, inputs: Sequence[str], **attributes: Any) -> str:
    """One more node of the graph; the name of its result."""
    free = free_name(name, reader.taken)
    reader.read_node(helper.make_node(op, inputs, [free], **attributes))
    return free


def branch_of(attributes: Mapping[str, tuple[int, Any]], name: str, outputs: int) -> GraphProto:
    """A branch, which has as many results as the node."""
    graph = attributes.get(name, (0, None))[1]
    if not isinstance(graph, GraphProto):
        raise OnnxError(f"attribute '{name}' is no graph")
    if len(graph.output) != outputs or graph.input or graph.sparse_initializer:
        raise OnnxError(f"the graph '{name}' does not fit the node", wanted=f"no inputs and {outputs} outputs")
    return graph


def read_both(reader: GraphReader, proto: NodeProto, branches: Mapping[bool, GraphProto]) -> None:
    """Both branches, and Where between each two results, which must have one type."""
    undecided, condition = reader.model.branches[-1], scalar_condition(reader, proto)
    one, other = (read_branch(reader, proto, branches[taken], BRANCHES[taken]) for taken in (True, False))
    for name, then, otherwise in zip(proto.output, one, other, strict=True):
        if name:
            otherwise = of_one_shape(reader, name, then, otherwise)
            reader.read_node(helper.make_node("Where", [condition, then, otherwise], [name]))
    if undecided.source is not None:  # it has been read, whatever comes
        reader.model.branches.remove(undecided)


def open_branch(reader: GraphReader, proto: NodeProto) -> OpenBranch:
    """An If whose condition is not known, for errors to tell of."""
    source = reader.sizes.source(reader.blob(proto.input[0]).name)
    return OpenBranch(f"If '{proto.name or next(filter(None, proto.output), '')}'", source)


def scalar_condition(reader: GraphReader, proto: NodeProto) -> str:
    """The condition without axes, so that it broadcasts to whatever the branches give."""
    name = str(proto.input[0])
    if is_rank(reader.known(reader.blob(name).name), 0):
        return name
    return appended(reader, f"{name}/scalar", "Reshape", [name, constant(reader, f"{name}/no_sizes", [])])


def is_rank(known: Known | None, rank: int) -> bool:
    """Whether a blob is known to have so many axes."""
    return known is not None and known[0].rank == rank


def of_one_shape(reader: GraphReader, name: str, then: str, otherwise: str) -> str:
    """The result of the one branch in the shape of the other's; a run refuses it where it has another size."""
    kinds = [reader.known(reader.blob(result).name) for result in (then, otherwise)]
    if None in kinds or kinds[0] != kinds[1]:
        raise OnnxError(
            "the condition is not known before a run, and the branches give results of different types",
            blob=name,
            wanted="two branches whose results have one dtype and one shape",
            came=" and ".join(map(in_words, kinds)),
        )
    if reader.is_certain(then) and reader.is_certain(otherwise):
        return otherwise
    shape = appended(reader, f"{name}/shape", "Shape", [then])
    return appended(reader, f"{name}/otherwise", "Reshape", [otherwise, shape], allowzero=1)


def in_words(known: Known | None) -> str:
    """A type as people read it, open sizes as question marks."""
    if known is None:
        return "a type that does not follow from the file"
    return f"{known[0].dtype}[{', '.join('?' if size is None else str(size) for size in fixed_dims(known))}]"


def read_branch(reader: GraphReader, proto: NodeProto, graph: GraphProto, word: str) -> list[str]:
    """Read a branch into the graph around it; the names of its results there."""
    prefix = f"{next(filter(None, proto.output), proto.op_type)}/{word}"
    branch = in_place(graph, reader, prefix)
    reader.look_ahead(branch.nodes, branch.results)
    reader.read_names.update(name for node in branch.nodes for name in all_inputs(node))
    reader.read_names.update(branch.results)
    for tensor in branch.tensors:
        reader.read_initializer(tensor)
    for node in branch.nodes:
        reader.read_node(node)
    return branch.results


def in_place(graph: GraphProto, reader: GraphReader, prefix: str) -> Branch:
    """A branch with names that differ from all around it."""
    names: dict[str, str] = {}
    for name in own_names(graph):
        if name in names:
            raise OnnxError("two values have this name", blob=name)
        taken = name in reader.taken or reader.has(name)
        names[name] = free_name(f"{prefix}/{name}" if taken else name, reader.taken)
    tensors = [copied(tensor) for tensor in graph.initializer]
    for tensor in tensors:
        tensor.name = names[tensor.name]
    nodes = [renamed(node, names) for node in graph.node]
    return Branch(tensors, nodes, [names.get(value.name, value.name) for value in graph.output])


def own_names(graph: GraphProto) -> Iterator[str]:
    """Names that a graph gives to values of its own."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy of a node that reads and makes values by other names, in graphs inside it as well."""
    found: NodeProto = copied(node)
    rename(found, names)
    return found


def rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Change names of values in a node, but not those that graphs inside it have of their own."""
    for values in (node.input, node.output):
        values[:] = [names.get(name, name) for name in values]
    for graph in graphs_of(node):
        own = set(own_names(graph))
        outer = {name: new for name, new in names.items() if name not in own}
        for inner in graph.node:
            rename(inner, outer)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)


def all_inputs(node: NodeProto) -> Iterable[str]:
    """Names that a node reads, and those that graphs inside it read or give out."""
    yield from node.input
    for graph in graphs_of(node):
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from all_inputs(inner)
