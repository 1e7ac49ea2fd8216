"""Reads If nodes and sequences of arrays.

**If nodes are read in place**. If sizes decide the branch, one branch is read. Else both are read, and a Where chooses
each result. A condition that depends on constants and fixed sizes is known. A condition that depends on open sizes is
evaluated at sizes that are large and differ. If the rest of the file does not fit that branch, the other branch is
read. A Reshape refuses a run whose sizes take another branch than the one that was read. Inside a branch that data
decide, such a run is refused only if the data take that branch. Both branches are computed, even one that the sizes do
not fit.

A branch becomes nodes of the surrounding graph, and its values get new names. So everything that is known around an If
is known inside, and sizes that its values decide can be known too. No node that a branch may hold has side effects, so
computing both branches is harmless. But a run also refuses what it would refuse in the branch that is not taken.

**Sequences of arrays** are followed while a file is read, because no value of a net is a sequence. A sequence is a list
of parts: single arrays, and arrays `[steps, ...]` that hold all steps of a Loop. Reads of a sequence (an element, all
of them joined, its length) become ops on the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx

from rnnops.errors import OnnxError
from rnnops.net.blob import Blob
from rnnops.net.op import free_name
from rnnops.onnx.node import Attributes, Node, Rule, attributes_of, graphs_of, names_read
from rnnops.onnx.open_sizes import Known, OpenBranch, fixed_dims
from rnnops.ops.indexing import gather
from rnnops.ops.movement import concat, reshape, transpose, unsqueeze
from rnnops.ops.shapes import shape
from rnnops.types import BOOL

if TYPE_CHECKING:
    from rnnops.onnx.read_graph import GraphReader

Operand: TypeAlias = str | int | Sequence[int]  # the name of a value, or integers that become a constant
Condition: TypeAlias = "int | str | tuple[Condition, ...]"
BRANCHES = {True: "then_branch", False: "else_branch"}
MOST_OPS = 8  # depth of the tree of ops that is compared to tell whether two conditions are equal


def read_if(reader: GraphReader, proto: onnx.NodeProto, attributes: Attributes) -> None:
    """Reads an If node into the surrounding graph."""
    branches = {taken: branch_of(attributes, name, len(proto.output)) for taken, name in BRANCHES.items()}
    if unread := set(attributes) - set(BRANCHES.values()):
        raise OnnxError("these attributes are not supported", came=", ".join(sorted(unread)))
    if len(proto.input) != 1 or reader.dtype_of(proto.input[0]) != BOOL:
        raise OnnxError("an If has one input, a bool", came=", ".join(proto.input))
    known = reader.known_value(proto.input[0])
    likely = reader.likely_value(proto.input[0]) if known is None else known
    if known is None:
        name = proto.name or next(filter(None, proto.output), "")  # errors name it
        source = reader.sizes.source(reader.blob(proto.input[0]).name)
        reader.model.branches.append(OpenBranch(f"If '{name}'", source))
    if likely is None:
        return read_both(reader, proto, branches)
    if likely.size != 1:
        raise OnnxError("a condition must have one element", blob=proto.input[0], came=list(likely.shape))
    taken = bool(likely.item()) if known is not None else choice(reader, proto.input[0], bool(likely.item()))
    return read_one(reader, proto, branches, taken, certain=known is not None)


def choice(reader: GraphReader, name: str, likely: bool) -> bool:
    """The branch to read if open sizes decide: the likely one, or the other one if reading that has failed."""
    condition, is_negated = condition_of(reader, name, MOST_OPS), False
    if not is_open(condition):
        return likely
    while isinstance(condition, tuple) and condition[0] == "Not":
        condition, is_negated = condition[1], not is_negated
    return reader.model.choices.setdefault(condition, likely != is_negated) != is_negated


def condition_of(reader: GraphReader, name: str, most: int) -> Condition:
    """A condition as a tree of ops on both choices of made-up sizes. Two conditions that are computed alike are equal.

    Args:
        most: depth to which ops are followed. Deeper values are known by name only.
    """
    op = next((op for op in reversed(reader.net.ops) if name in op.outputs), None)
    if op is None or reader.dtype_of(name) != BOOL or not op.inputs:
        return reader.likely_numbers(name) or name
    return (op.type, *(condition_of(reader, source, most - 1) for source in op.inputs if source)) if most else name


def is_open(condition: Condition) -> bool:
    """True if a condition reads a number that differs between the two choices of made-up sizes."""
    if isinstance(condition, tuple) and isinstance(condition[0], int):
        return condition[0] != condition[1]
    return isinstance(condition, tuple) and any(map(is_open, condition))


def read_one(
    reader: GraphReader, proto: onnx.NodeProto, branches: Mapping[bool, onnx.GraphProto], taken: bool, certain: bool
) -> None:
    """Reads the branch that is taken. If open sizes decide it, a run whose sizes take the other branch is refused."""
    guard, fits = "", None if certain else reader.fits
    if fits is not None:
        condition = scalar_condition(reader, proto)
        fits.append(condition if taken else negated(reader, condition))
    elif not certain:
        guard = guard_of(reader, proto, taken)
    results = read_branch(reader, proto, branches[taken], BRANCHES[taken], fits is not None)
    for name, result in zip(proto.output, results, strict=True):
        if name and guard:
            shape = appended(reader, f"{name}/shape", "Shape", [result])
            sizes = appended(reader, f"{name}/guarded_shape", "Concat", [guard, shape], axis=0)
            guarded = appended(reader, f"{name}/guarded", "Reshape", [result, sizes], allowzero=1)
            known = reader.known(reader.blob(result).name)
            reader.read_node(onnx.helper.make_node("Reshape", [guarded, shape], [name], allowzero=1))
            reader.probes.give(reader.blob(name).name, known)  # the made-up sizes may take the other branch
        elif name:
            reader.read_node(onnx.helper.make_node("Identity", [result], [name]))


def negated(reader: GraphReader, condition: str) -> str:
    """The name of a bool that is the opposite of the condition."""
    return appended(reader, f"{condition}/not", "Not", [condition])


def cut_to_one(reader: GraphReader, node: onnx.NodeProto) -> onnx.NodeProto:
    """A Squeeze that first picks place 0 of its axes, as they may be longer if its branch is not taken.

    Other nodes stay.
    """
    axes = reader.known_value(node.input[1]) if len(node.input) > 1 else attributes_of(node).get("axes", (0, None))[1]
    if node.op_type != "Squeeze" or axes is None:
        return node
    found = deepcopy(node)
    for axis in axes:
        found.input[0] = appended(reader, f"{node.output[0]}/first", "Gather", [found.input[0], [0]], axis=int(axis))
    return found


def guard_of(reader: GraphReader, proto: onnx.NodeProto, taken: bool) -> str:
    """A size 1 if the condition is as assumed, else a number that no Reshape accepts as a size."""
    prefix = next(filter(None, proto.output), proto.op_type)
    condition, numbers = scalar_condition(reader, proto), ([1], [-7]) if taken else ([-7], [1])
    return appended(reader, f"{prefix}/guard", "Where", [condition, *numbers])


def appended(reader: GraphReader, name: str, op: str, inputs: Iterable[Operand], **attributes: Any) -> str:
    """Appends a node to the graph. Returns the name of its result. Integer inputs become constants."""
    prefix = name.rpartition("/")[0]
    names = [given if isinstance(given, str) else constant(reader, prefix, given) for given in inputs]
    free = free_name(name, reader.taken)
    reader.read_node(onnx.helper.make_node(op, names, [free], **attributes))
    return free


def unsqueezed(reader: GraphReader, hint: str, name: str, axis: int) -> str:
    """A value with one more axis of size 1."""
    if reader.model.opset >= 13:
        return appended(reader, f"{hint}/wider", "Unsqueeze", [name, [axis]])
    return appended(reader, f"{hint}/wider", "Unsqueeze", [name], axes=[axis])


def constant(reader: GraphReader, prefix: str, value: int | Sequence[int]) -> str:
    """Appends a constant: an integer or a list of integers. Returns its name."""
    return appended(
        reader, f"{prefix}/constant", "Constant", [], value=onnx.numpy_helper.from_array(np.array(value, "int64"))
    )


def branch_of(attributes: Attributes, name: str, outputs: int) -> onnx.GraphProto:
    """A branch. It must have as many results as the node."""
    graph = attributes.get(name, (0, None))[1]
    if not isinstance(graph, onnx.GraphProto):
        raise OnnxError(f"attribute '{name}' is not a graph")
    if len(graph.output) != outputs or graph.input or graph.sparse_initializer:
        raise OnnxError(f"the graph '{name}' does not fit the node", wanted=f"no inputs and {outputs} outputs")
    return graph


def read_both(reader: GraphReader, proto: onnx.NodeProto, branches: Mapping[bool, onnx.GraphProto]) -> None:
    """Reads both branches, and a Where for each two results. The two must have one type."""
    undecided, condition = reader.model.branches[-1], scalar_condition(reader, proto)
    (then, otherwise), place = read_guarded(reader, proto, branches, condition)
    for name, one, other in zip(proto.output, then, otherwise, strict=True):
        inputs = [condition, one, of_one_shape(reader, name, one, other)] if name else []
        if name and place:
            chosen = unsqueezed(reader, name, appended(reader, f"{name}/chosen", "Where", inputs), 0)
            reader.read_node(onnx.helper.make_node("Gather", [chosen, place], [name], axis=0))
        elif name:
            reader.read_node(onnx.helper.make_node("Where", inputs, [name]))
    if undecided.source is not None:  # both branches are read, so this If cannot be what fails later
        reader.model.branches.remove(undecided)


def read_guarded(
    reader: GraphReader, proto: onnx.NodeProto, branches: Mapping[bool, onnx.GraphProto], condition: str
) -> tuple[list[list[str]], str]:
    """The results of both branches, and a place:

    0 if sizes fit the branch that is taken, else a place that no array has.
    """
    prefix = next(filter(None, proto.output), proto.op_type)
    around, results, fit = reader.fits, [], ""
    for taken in (True, False):
        reader.fits = []
        results.append(read_branch(reader, proto, branches[taken], BRANCHES[taken]))
        untaken = negated(reader, condition) if taken and reader.fits else condition
        for name in reader.fits:
            fits = appended(reader, f"{prefix}/fits", "Or", [untaken, name])
            fit = appended(reader, f"{prefix}/fits", "And", [fit, fits]) if fit else fits
    reader.fits = around
    if around is not None:
        around += [fit] if fit else []
        return results, ""
    return results, appended(reader, f"{prefix}/branch_for_other_sizes", "Where", [fit, 0, -7]) if fit else ""


def scalar_condition(reader: GraphReader, proto: onnx.NodeProto) -> str:
    """The condition without axes, so that it broadcasts to all results of the branches."""
    name = str(proto.input[0])
    if reader.dims(name) == ():
        return name
    return appended(reader, f"{name}/scalar", "Reshape", [name, []])


def of_one_shape(reader: GraphReader, name: str, then: str, otherwise: str) -> str:
    """The result of one branch in the shape of the other branch's result. A run refuses a result of another size."""
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
    """A type for people to read. Open sizes are question marks."""
    if known is None:
        return "a type that does not follow from the file"
    return f"{known[0].dtype}[{', '.join('?' if size is None else str(size) for size in fixed_dims(known))}]"


def read_branch(
    reader: GraphReader, proto: onnx.NodeProto, graph: onnx.GraphProto, word: str, any_size: bool = False
) -> list[str]:
    """Reads a branch into the surrounding graph. Returns the names of its results there.

    Args:
        any_size: True if the branch is computed even at sizes that it does not fit.
    """
    prefix = f"{next(filter(None, proto.output), proto.op_type)}/{word}"
    check_names(graph)
    names = {
        name: free_name(f"{prefix}/{name}" if name in reader.taken or reader.has(name) else name, reader.taken)
        for name in own_names(graph)
    }
    nodes = [renamed(node, names) for node in graph.node]
    results = [names.get(value.name, value.name) for value in graph.output]
    reader.look_ahead(nodes, results)
    reader.read_names.update(results, *map(names_read, nodes))
    for tensor in map(deepcopy, graph.initializer):
        tensor.name = names[tensor.name]
        reader.read_initializer(tensor)
    for node in nodes:
        reader.read_node(cut_to_one(reader, node) if any_size else node)
    return results


def check_names(graph: onnx.GraphProto) -> None:
    """Raise OnnxError if two values of a graph have one name."""
    names = list(own_names(graph))
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise OnnxError("two values have this name", blob=twice)


def own_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the values that a graph defines itself."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of a node with other names for the values that it and its inner graphs read and make."""
    found = deepcopy(node)
    rename(found, names)
    return found


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Changes names of values in a node. Names that inner graphs define themselves stay."""
    for values in (node.input, node.output):
        values[:] = [names.get(name, name) for name in values]
    for graph in graphs_of(node):
        own = set(own_names(graph))
        outer = {name: new for name, new in names.items() if name not in own}
        for inner in graph.node:
            rename(inner, outer)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)


@dataclass(frozen=True)
class SequencePart:
    """Some elements of a sequence.

    Args:
        name: a value; is_run: True if it has many elements along its first axis, False if it is one element.
    """

    name: str
    is_run: bool = False


Parts: TypeAlias = tuple[SequencePart, ...]


def read_sequence(reader: GraphReader, proto: onnx.NodeProto, attributes: Attributes) -> None:
    """Reads a node that makes a sequence."""
    given = {name: value for name, (_, value) in attributes.items()}
    if not proto.output or not proto.output[0]:
        return
    if "" in proto.input[:1]:
        raise OnnxError("input 0 is missing")
    reader.add_sequence(proto.output[0], SEQUENCE_MAKERS[proto.op_type](reader, proto, given))


SequenceRule: TypeAlias = "Callable[[GraphReader, onnx.NodeProto, Mapping[str, Any]], Parts]"


def identity(reader: GraphReader, proto: onnx.NodeProto, given: Mapping[str, Any]) -> Parts:
    """The same sequence, under another name."""
    return parts_of(reader, proto.input[0])


def empty(reader: GraphReader, proto: onnx.NodeProto, given: Mapping[str, Any]) -> Parts:
    """A sequence without elements."""
    return ()


def construct(reader: GraphReader, proto: onnx.NodeProto, given: Mapping[str, Any]) -> Parts:
    """A sequence of the inputs."""
    for name in proto.input:
        reader.blob(name)
    return tuple(SequencePart(name) for name in proto.input)


def insert(reader: GraphReader, proto: onnx.NodeProto, given: Mapping[str, Any]) -> Parts:
    """Adds an element, at the end if no place is given."""
    parts = parts_of(reader, proto.input[0])
    reader.blob(proto.input[1])
    place = place_of(reader, proto, 2)
    if place is None:
        return (*parts, SequencePart(proto.input[1]))
    check_place(parts, place, len(parts) + 1, proto.input[0])
    at = place + len(parts) if place < 0 else place
    return (*parts[:at], SequencePart(proto.input[1]), *parts[at:])


def erase(reader: GraphReader, proto: onnx.NodeProto, given: Mapping[str, Any]) -> Parts:
    """Removes an element, the last one if no place is given."""
    parts = parts_of(reader, proto.input[0])
    place = place_of(reader, proto, 1)
    at = -1 if place is None else place
    check_place(parts, at, len(parts), proto.input[0])
    return tuple(part for i, part in enumerate(parts) if i != at % len(parts))


def check_place(parts: Parts, place: int, count: int, name: str) -> None:
    """Raise OnnxError for a place that a sequence does not have, and for any place in a sequence of open length."""
    if any(part.is_run for part in parts):
        raise OnnxError("a place in a sequence that collects steps of a Loop is not supported", blob=name)
    if not -len(parts) <= place < count:
        raise OnnxError("a sequence does not have this place", blob=name, wanted=f"below {count}", came=place)


def place_of(reader: GraphReader, proto: onnx.NodeProto, i: int) -> int | None:
    """The place that an input gives. None if the input is left out."""
    if len(proto.input) <= i or not proto.input[i]:
        return None
    value = reader.known_value(proto.input[i])
    if value is None or value.size != 1:
        raise OnnxError("a place in a sequence that is not known before a run is not supported", blob=proto.input[i])
    return int(value.item())


def at(node: Node) -> Sequence[Blob]:
    """One element."""
    parts, place = elements_of(node), node.known_value(1)
    if place is not None and place.size == 1 and not any(part.is_run for part in parts):
        check_place(parts, int(place.item()), len(parts), node.names[0])
        return (node.outer_blob(parts[int(place.item())].name),)
    if not parts:
        node.fail("an element of an empty sequence is read")
    blobs = [(part.is_run, node.outer_blob(part.name)) for part in parts]
    run = joined([blob if is_run else unsqueeze(blob, [0]) for is_run, blob in blobs], 0)
    return (gather(run, reshape(node.input(1), [])),)


def length(node: Node) -> Sequence[Blob]:
    """The number of elements, an int64 without axes."""
    parts = elements_of(node)
    counts = [shape(node.outer_blob(part.name), 0, 1) for part in parts if part.is_run]
    singles = node.net.constant([sum(not part.is_run for part in parts)], "int64")
    return (reshape(sum(counts, singles), []),)


def concat_from(node: Node) -> Sequence[Blob]:
    """All elements, joined along an axis. The node says if it is a new one."""
    parts, axis, new = elements_of(node), node.attr("axis", "int"), node.attr("new_axis", "int", 0)
    if not parts or axis is None or new not in (0, 1):
        node.fail("ConcatFromSequence joins one element or more along an axis", blob=node.names[0])
    rank = rank_of(node.reader, parts[0]) + new
    if not -rank <= axis < rank:
        node.fail("the axis is out of range", wanted=f"{-rank} to {rank - 1}", came=axis)
    return (joined([with_elements_along(node, part, axis % rank, new) for part in parts], axis % rank),)


def with_elements_along(node: Node, part: SequencePart, axis: int, new: int) -> Blob:
    """The elements of a part, laid along an axis: a new axis, or one of their own."""
    blob = node.outer_blob(part.name)
    if not part.is_run:
        return unsqueeze(blob, [axis]) if new else blob
    perm = [*range(1, axis + 1), 0, *range(axis + 1, node.rank(blob))]
    whole = transpose(blob, perm) if axis else blob
    if new:
        return whole
    size = shape(whole, axis, axis + 1) * shape(whole, axis + 1, axis + 2)
    return reshape(whole, concat([shape(whole, 0, axis), size, shape(whole, axis + 2)], axis=0), allowzero=1)


def joined(blobs: list[Blob], axis: int) -> Blob:
    """Joins arrays one after the other."""
    return blobs[0] if len(blobs) == 1 else concat(blobs, axis=axis)


def elements_of(node: Node) -> Parts:
    """The parts of a node's first input. Raises OnnxError if the input is not a sequence."""
    if not node.names or not node.names[0]:
        node.fail("input 0 is missing")
    return parts_of(node.reader, node.names[0])


def rank_of(reader: GraphReader, part: SequencePart) -> int:
    """The number of axes of an element."""
    dims = reader.dims(part.name)
    if dims is None or len(dims) < part.is_run:
        raise OnnxError("the rank of an element of a sequence does not follow from the file", blob=part.name)
    return len(dims) - part.is_run


def split(reader: GraphReader, proto: onnx.NodeProto, given: Mapping[str, Any]) -> Parts:
    """Pieces of an array along an axis."""
    name, rank = proto.input[0], rank_of(reader, SequencePart(proto.input[0]))
    axis, keeps = given.get("axis", 0), given.get("keepdims", 1)
    if not isinstance(axis, int) or not -rank <= axis < rank or keeps not in (0, 1):
        raise OnnxError("the axis is out of range", wanted=f"{-rank} to {rank - 1}", came=axis)
    axis %= rank
    given_sizes = len(proto.input) > 1 and bool(proto.input[1])
    sizes = reader.known_value(proto.input[1]) if given_sizes else np.array(1)
    if sizes is None or sizes.ndim > 1 or sizes.size == 0 or int(sizes.min()) < 0:
        raise OnnxError("sizes of pieces that are not known before a run are not supported", blob=proto.input[1])
    if sizes.ndim == 0 and sizes.item() == 1:
        return (SequencePart(steps_of(reader, name, axis, rank, keeps, proto.output[0]), True),)
    return pieces(reader, name, axis, list_of_sizes(reader, name, axis, sizes), proto.output[0])


def steps_of(reader: GraphReader, name: str, axis: int, rank: int, keeps: int, hint: str) -> str:
    """The array with the cut axis moved to the front.

    If the pieces keep the axis, an axis of size 1 stays in its place.
    """
    if axis:
        perm = [axis, *(other for other in range(rank) if other != axis)]
        name = appended(reader, f"{hint}/steps", "Transpose", [name], perm=perm)
    return unsqueezed(reader, hint, name, axis + 1) if keeps else name


def list_of_sizes(reader: GraphReader, name: str, axis: int, sizes: np.ndarray[Any, Any]) -> list[int]:
    """The sizes of all pieces. A single number is the size of all but the last."""
    if sizes.ndim:
        return [int(size) for size in sizes]
    dims, size = reader.dims(name), int(sizes.item())
    whole = None if dims is None else dims[axis]
    if not isinstance(whole, int) or size < 1:
        raise OnnxError("the number of pieces of an array does not follow from the file", blob=name)
    return [min(size, whole - first) for first in range(0, whole, size)]


def pieces(reader: GraphReader, name: str, axis: int, sizes: Sequence[int], hint: str) -> Parts:
    """Slices of an array, one after the other."""
    if len(sizes) > 10_000:
        raise OnnxError("an array is cut into too many pieces", blob=name, wanted="10000 at most", came=len(sizes))
    if not sizes:
        return ()
    names = [free_name(f"{hint}/piece", reader.taken) for _ in sizes]
    if reader.model.opset >= 13:
        node = onnx.helper.make_node("Split", [name, constant(reader, hint, sizes)], names, axis=axis)
    else:
        node = onnx.helper.make_node("Split", [name], names, axis=axis, split=sizes)
    reader.read_node(node)
    return tuple(map(SequencePart, names))


def parts_of(reader: GraphReader, name: str) -> Parts:
    """The parts of a value. Raises OnnxError if it is not a sequence."""
    parts = reader.sequence(name)
    if parts is None:
        raise OnnxError("this is not a sequence", blob=name)
    return parts


SEQUENCE_MAKERS: dict[str, SequenceRule] = {
    "Identity": identity,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SplitToSequence": split,
}
SEQUENCE_RULES: dict[str, Rule] = {"ConcatFromSequence": concat_from, "SequenceAt": at, "SequenceLength": length}
