"""Sequences of arrays: no value of a net is one, so they are followed while a file is read.

A sequence is known by its parts: arrays one by one, and all steps of a Loop in one array `[steps, ...]`. What is read
of it (an element, all of them joined, its length) becomes ops on these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.import_if import appended, constant
from rnnops.onnx.package import NodeProto, helper
from rnnops.onnx.probes import fixed_dims
from rnnops.scopes import free_name

if TYPE_CHECKING:
    from rnnops.onnx.read_graph import GraphReader

FAR = 2**62  # beyond any end


@dataclass(frozen=True)
class Part:
    """Some elements of a sequence.

    Args:
        name: a value; is_run: whether it has many elements along its first axis, rather than being one.
    """

    name: str
    is_run: bool = False


Parts: TypeAlias = tuple[Part, ...]


def read_sequence(reader: GraphReader, proto: NodeProto, attributes: Mapping[str, tuple[int, Any]]) -> None:
    """Read a node that makes a sequence or reads one."""
    given = {name: value for name, (_, value) in attributes.items()}
    if not proto.output or not proto.output[0]:
        return
    if "" in proto.input[:1]:
        raise OnnxError("input 0 is missing")
    rule = SEQUENCE_OPS.get(proto.op_type, identity)
    result = rule(reader, proto, given)
    if isinstance(result, tuple):
        reader.add_sequence(proto.output[0], result)
    elif isinstance(result, str):
        reader.read_node(helper.make_node("Identity", [result], [proto.output[0]]))


Rule: TypeAlias = "Callable[[GraphReader, NodeProto, Mapping[str, Any]], Parts | str]"


def identity(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """The same sequence under another name."""
    return parts_of(reader, proto)


def empty(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """No elements."""
    return ()


def construct(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """The inputs as elements."""
    for name in proto.input:
        reader.blob(name)
    return tuple(Part(name) for name in proto.input)


def insert(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """One element more, at the end without a place."""
    parts = parts_of(reader, proto)
    reader.blob(proto.input[1])
    place = place_of(reader, proto, 2, len(parts))
    if place is None:
        return (*parts, Part(proto.input[1]))
    check_place(parts, place, len(parts) + 1, proto)
    at = place + len(parts) if place < 0 else place
    return (*parts[:at], Part(proto.input[1]), *parts[at:])


def erase(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """One element less, the last one without a place."""
    parts = parts_of(reader, proto)
    place = place_of(reader, proto, 1, len(parts))
    at = -1 if place is None else place
    check_place(parts, at, len(parts), proto)
    return tuple(part for i, part in enumerate(parts) if i != at % len(parts))


def check_place(parts: Parts, place: int, count: int, proto: NodeProto) -> None:
    """Raise OnnxError for a place that a sequence does not have, or of one whose length is open."""
    if any(part.is_run for part in parts):
        raise OnnxError("a place in a sequence that collects steps of a Loop is not supported", blob=proto.input[0])
    if not -len(parts) <= place < count:
        raise OnnxError("a sequence does not have this place", blob=proto.input[0], wanted=f"below {count}", came=place)


def place_of(reader: GraphReader, proto: NodeProto, i: int, length: int) -> int | None:
    """The place that an input says, None where it is left out."""
    if len(proto.input) <= i or not proto.input[i]:
        return None
    value = reader.known_value(proto.input[i])
    if value is None or value.size != 1:
        raise OnnxError("a place in a sequence that is not known before a run is not supported", blob=proto.input[i])
    return int(value.item())


def at(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """One element."""
    parts, place = parts_of(reader, proto), proto.input[1]
    value = reader.known_value(place)
    if value is not None and value.size == 1 and not any(part.is_run for part in parts):
        check_place(parts, int(value.item()), len(parts), proto)
        return parts[int(value.item())].name
    sizes = constant(reader, f"{proto.output[0]}/no_sizes", [])
    scalar = appended(reader, f"{proto.output[0]}/place", "Reshape", [place, sizes])
    return appended(reader, f"{proto.output[0]}/element", "Gather", [run_of(reader, parts, proto.output[0]), scalar])


def run_of(reader: GraphReader, parts: Parts, hint: str) -> str:
    """All elements in one array, along its first axis; they must be of one shape."""
    names = [part.name if part.is_run else with_axis(reader, part.name, 0, hint) for part in parts]
    if not names:
        raise OnnxError("an element of an empty sequence is read")
    return names[0] if len(names) == 1 else appended(reader, f"{hint}/run", "Concat", names, axis=0)


def with_axis(reader: GraphReader, name: str, axis: int, hint: str) -> str:
    """An array with one more axis."""
    axes = constant(reader, f"{hint}/axes", [axis]) if reader.model.opset >= 13 else ""
    if axes:
        return appended(reader, f"{hint}/wider", "Unsqueeze", [name, axes])
    return appended(reader, f"{hint}/wider", "Unsqueeze", [name], axes=[axis])


def length(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """How many elements there are, an int64 without axes."""
    parts, name = parts_of(reader, proto), proto.output[0]
    numbers = [constant(reader, f"{name}/single", [sum(not part.is_run for part in parts)])]
    for part in parts:
        if part.is_run:
            shape = appended(reader, f"{name}/shape", "Shape", [part.name])
            ends = [constant(reader, f"{name}/place", [end]) for end in (0, 1)]
            numbers.append(appended(reader, f"{name}/steps", "Slice", [shape, *ends]))
    total = reduce(lambda one, other: appended(reader, f"{name}/total", "Add", [one, other]), numbers)
    return appended(reader, f"{name}/number", "Reshape", [total, constant(reader, f"{name}/no_sizes", [])])


def concat(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """All elements joined along an axis, a new one where the node says so."""
    parts, name = parts_of(reader, proto), proto.output[0]
    axis, new = given.get("axis"), given.get("new_axis", 0)
    if not parts or not isinstance(axis, int) or new not in (0, 1):
        raise OnnxError("ConcatFromSequence joins one element or more along an axis", blob=proto.input[0])
    rank = rank_of(reader, parts[0]) + new
    if not -rank <= axis < rank:
        raise OnnxError("the axis is out of range", wanted=f"{-rank} to {rank - 1}", came=axis)
    join = stacked if new else joined
    names = [join(reader, part, axis % rank, name) for part in parts]
    return names[0] if len(names) == 1 else appended(reader, f"{name}/all", "Concat", names, axis=axis % rank)


def rank_of(reader: GraphReader, part: Part) -> int:
    """The number of axes of an element."""
    known = reader.known(reader.blob(part.name).name)
    if known is None or known[0].rank < part.is_run:
        raise OnnxError("the rank of an element of a sequence does not follow from the file", blob=part.name)
    return known[0].rank - part.is_run


def stacked(reader: GraphReader, part: Part, axis: int, hint: str) -> str:
    """The elements of a part along a new axis."""
    if not part.is_run:
        return with_axis(reader, part.name, axis, hint)
    return moved(reader, part, axis, hint)


def moved(reader: GraphReader, part: Part, axis: int, hint: str) -> str:
    """A run whose first axis is this one."""
    if axis == 0:
        return part.name
    perm = [*range(1, axis + 1), 0, *range(axis + 1, rank_of(reader, part) + 1)]
    return appended(reader, f"{hint}/moved", "Transpose", [part.name], perm=perm)


def joined(reader: GraphReader, part: Part, axis: int, hint: str) -> str:
    """The elements of a part along an axis that they have."""
    if not part.is_run:
        return part.name
    whole = moved(reader, part, axis, hint)
    sizes = appended(reader, f"{hint}/sizes", "Shape", [whole])
    first, steps, size, rest = (
        appended(reader, f"{hint}/part", "Slice", [sizes, *(constant(reader, f"{hint}/place", [k]) for k in ends)])
        for ends in ((0, axis), (axis, axis + 1), (axis + 1, axis + 2), (axis + 2, FAR))
    )
    both = appended(reader, f"{hint}/size", "Mul", [steps, size])
    shape = appended(reader, f"{hint}/joined_shape", "Concat", [first, both, rest], axis=0)
    return appended(reader, f"{hint}/joined", "Reshape", [whole, shape], allowzero=1)


def split(reader: GraphReader, proto: NodeProto, given: Mapping[str, Any]) -> Parts | str:
    """Pieces of an array along an axis."""
    name, rank = proto.input[0], rank_of(reader, Part(proto.input[0]))
    axis, keeps = given.get("axis", 0), given.get("keepdims", 1)
    if not isinstance(axis, int) or not -rank <= axis < rank or keeps not in (0, 1):
        raise OnnxError("the axis is out of range", wanted=f"{-rank} to {rank - 1}", came=axis)
    axis %= rank
    given_sizes = len(proto.input) > 1 and bool(proto.input[1])
    sizes = reader.known_value(proto.input[1]) if given_sizes else np.array(1)
    if sizes is None or sizes.ndim > 1 or sizes.size == 0 or int(sizes.min()) < 0:
        raise OnnxError("sizes of pieces that are not known before a run are not supported", blob=proto.input[1])
    if sizes.ndim == 0 and sizes.item() == 1:
        steps = first_axis(reader, name, axis, rank, proto.output[0])
        return (Part(with_axis(reader, steps, axis + 1, proto.output[0]) if keeps else steps, True),)
    return pieces(reader, name, axis, list_of_sizes(reader, name, axis, sizes), proto.output[0])


def first_axis(reader: GraphReader, name: str, axis: int, rank: int, hint: str) -> str:
    """An array with an axis in front of all others."""
    if axis == 0:
        return name
    perm = [axis, *(other for other in range(rank) if other != axis)]
    return appended(reader, f"{hint}/steps", "Transpose", [name], perm=perm)


def list_of_sizes(reader: GraphReader, name: str, axis: int, sizes: np.ndarray[Any, Any]) -> list[int]:
    """The sizes of all pieces; one number is the size of all but the last."""
    if sizes.ndim:
        return [int(size) for size in sizes]
    known = reader.known(reader.blob(name).name)
    whole, size = None if known is None else fixed_dims(known)[axis], int(sizes.item())
    if not isinstance(whole, int) or size < 1:
        raise OnnxError("how many pieces an array is cut into does not follow from the file", blob=name)
    return [min(size, whole - first) for first in range(0, whole, size)]


def pieces(reader: GraphReader, name: str, axis: int, sizes: Sequence[int], hint: str) -> Parts:
    """Slices of an array one after the other."""
    if len(sizes) > 10_000:
        raise OnnxError("an array is cut into too many pieces", blob=name, wanted="10000 at most", came=len(sizes))
    if not sizes:
        return ()
    names = [free_name(f"{hint}/piece", reader.taken) for _ in sizes]
    if reader.model.opset >= 13:
        node = helper.make_node("Split", [name, constant(reader, f"{hint}/sizes", sizes)], names, axis=axis)
    else:
        node = helper.make_node("Split", [name], names, axis=axis, split=sizes)
    reader.read_node(node)
    return tuple(map(Part, names))


def parts_of(reader: GraphReader, proto: NodeProto) -> Parts:
    """The parts of a node's first input. Raises OnnxError where that is no sequence."""
    parts = reader.sequence(proto.input[0])
    if parts is None:
        raise OnnxError("this is no sequence", blob=proto.input[0])
    return parts


SEQUENCE_OPS: dict[str, Rule] = {
    "ConcatFromSequence": concat,
    "SequenceAt": at,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
