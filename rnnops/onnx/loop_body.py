"""Follows the values of a Loop's body from trip to trip: counters, constants, steps read, arrays written.

Values are sums. Their roots are `TRIP`, the number of the trip, which starts at 0, and integers of the surrounding
graph.

**The number of trips** follows from the trip count, and from comparisons of counters with numbers that stay. The
condition that a trip computes decides if another trip follows. So a Loop that begins makes at least one trip. If the
condition is `D = base - slope * trip > 0`, the Loop makes `1 + ceil(base / slope)` trips.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn

import numpy as np
import onnx

from rnnops.errors import OnnxError
from rnnops.net.op import free_name
from rnnops.onnx.loop_elements import (
    ARITHMETIC,
    TRIP,
    VIEWS,
    Around,
    Cut,
    Elements,
    LinearSum,
    combined,
    cuts_of,
    each,
    is_number,
    whole_number,
)
from rnnops.onnx.node import attributes_of, constant_value, names_read, read_tensor
from rnnops.types import Array

# ops and the attributes that they may have
SCATTERS = {"ScatterND": {"reduction"}, "ScatterElements": {"axis", "reduction"}}
SAME_SIZES = ("Identity", *SCATTERS)  # the results of these ops have the sizes of their first input
SIZES = ("Shape", "Size")
WHOLE = (onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
MOVABLE = (
    *(*SIZES, "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Transpose", "Concat"),
    *("Cast", "Add", "Sub", "Mul"),
)


@dataclass(frozen=True)
class Read:
    """A step of an outer array that a body reads at each trip.

    Args:
        data: the array; axis: the axis of its steps; place: number of the step; keeps_axis: True if an axis of size 1
            stays.
    """

    data: str
    axis: int
    place: LinearSum
    keeps_axis: bool

    @property
    def key(self) -> tuple[object, ...]:
        return self.data, self.axis, self.place.number, tuple(sorted(self.place.factors.items()))


@dataclass(frozen=True)
class Write:
    """What a body writes into a carried array at each trip.

    Args:
        node: the node that writes.
        step: the step that is written, if each trip writes the next step; its array is the first value. Else None.
        ones: axes of the node's updates that a step does not have.
    """

    node: onnx.NodeProto
    step: Read | None = None
    ones: tuple[int, ...] = ()

    @property
    def read(self) -> list[str]:
        """The values of the body that are written, and their places if they are not steps."""
        return [*self.node.input[2:], *(self.node.input[1:2] if self.step is None else ())]


class LoopBody:
    """A body, and all that is found out about its values.

    Args:
        initial: for each carried value the name of its first value, outside of the Loop.
    """

    def __init__(self, graph: onnx.GraphProto, around: Around, initial: Sequence[str]) -> None:
        self.reader, self.graph, self.around = around.reader, graph, around
        self.trip, self.condition, *carried = (value.name for value in graph.input)
        self.initial: dict[str, str] = dict(zip(carried, initial, strict=True))
        nexts = (value.name for value in graph.output[1:])
        self.results = dict(zip(carried, nexts, strict=False))  # carried value -> its value at the next trip
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.tensors = {tensor.name: tensor for tensor in graph.initializer}
        self.own = {value.name for value in graph.input} | set(self.makers) | set(self.tensors)
        self.unchanged = {
            name: start for name, start in self.initial.items() if self.handed_on(self.results[name]) == name
        }
        # value that is the same at every trip -> the same value computed before the Loop
        self.moved: dict[str, str] = {}
        self.writes: dict[str, Write] = {}  # carried array that trips only write into -> how they write
        self._asked: set[str] = set()
        # parts of outer arrays that are cut out before the Loop
        self._parts: dict[tuple[str, tuple[object, ...]], str] = {}
        self._elements: Elements | None = None  # set when a bound of the number of trips is known
        # carried value -> (its first number, the number that each trip adds)
        self.counters: dict[str, tuple[LinearSum, int]] = {}
        for name in self.initial:
            self._look_for_counter(name)

    def _look_for_counter(self, name: str) -> None:
        """Notes a carried integer to which each trip adds one constant."""
        if name in self.unchanged or self.is_sequence(self.initial[name]):
            return
        if not self.around.is_integer(self.initial[name]):
            return
        first, after = (
            self.around.sum_of(self.initial[name]),
            self.sum_of(self.results[name], {name: LinearSum(0, {name: 1})}),
        )
        if first is None or after is None:
            return
        added = after.plus(LinearSum(0, {name: 1}), -1)
        if not added.factors and first.rank == self.around.rank(self.initial[name]):
            self.counters[name] = (first, added.number)

    def is_sequence(self, name: str) -> bool:
        """True if an outer value is a sequence of arrays."""
        return self.reader.sequence(name) is not None

    def handed_on(self, name: str, ops: Container[str] = ("Identity",)) -> str:
        """Follows nodes that hand a value on (by default Identity). Returns the name of the value at their start."""
        for _ in range(len(self.makers) + 1):
            node = self.makers.get(name)
            if node is None or node.op_type not in ops or not node.input:
                break
            name = node.input[0]
        return name

    def outer(self, name: str) -> str | None:
        """The outer value that this value equals at every trip. None if there is none."""
        name = self.handed_on(name)
        if name in self.unchanged:
            return self.unchanged[name]
        if name in self.makers:
            return self._moved_out(name)
        return None if name in self.own or not self.reader.has(name) else name

    def _moved_out(self, name: str) -> str | None:
        """Moves a node that makes the same value at every trip before the Loop.

        Returns the new value, or None for other nodes.
        """
        if name not in self._asked:
            self._asked.add(name)
            node = self.makers[name]
            if node.op_type in MOVABLE and len(node.output) == 1:
                around_of = self._sizes_around if node.op_type in SIZES else self._around_of
                inputs = [around_of(source) if source else "" for source in node.input]
                if None not in inputs:
                    self.moved[name] = self._append(node, inputs)  # type: ignore[arg-type]
        return self.moved.get(name)

    def _around_of(self, name: str) -> str | None:
        """The outer value that a node reads at every trip. Constants of the body become outer values."""
        around = self.outer(name)
        value = self.constant(name) if around is None else None
        # a float array may be a parameter, and stays one
        if value is None or (value.dtype.kind == "f" and value.size > 1):
            return around
        return self.around.append("Constant", [], value=onnx.numpy_helper.from_array(np.asarray(value)))

    def _sizes_around(self, name: str) -> str | None:
        """An outer value with the sizes that a value of the body has at every trip."""
        carried = self.handed_on(name, SAME_SIZES)
        if carried in self.initial and self.handed_on(self.results[carried], SAME_SIZES) == carried:
            return self.initial[carried]
        return self._around_of(name)

    def _append(self, node: onnx.NodeProto, inputs: list[str]) -> str:
        """Appends a node of the body to the graph around the Loop."""
        moved = deepcopy(node)
        moved.input[:] = inputs
        moved.output[0] = free_name(f"{node.output[0]}/around", self.reader.taken)
        self.reader.read_node(moved)
        return str(moved.output[0])

    def constant(self, name: str) -> Array | None:
        """The value of a small constant of the body, or of the surrounding graph."""
        name = self.handed_on(name)
        if name in self.tensors:
            tensor = self.tensors[name]
            return read_tensor(tensor, f"initializer '{name}'") if len(tensor.dims) < 2 else None
        node = self.makers.get(name)
        if node is not None:
            if node.op_type != "Constant":
                return None
            return constant_value(attributes_of(node), self.reader.model.float_dtype)
        around = self.outer(name)
        if around is None or self.is_sequence(around):
            return None
        return self.reader.known_value(around)

    def sum_of(self, name: str, known: dict[str, LinearSum] | None = None, depth: int = 0) -> LinearSum | None:
        """The value at each trip as a sum. None if it is not a sum.

        Args:
            known: sums for inputs of the body.
        """
        name = self.handed_on(name)
        if known and name in known:
            return known[name]
        if name == self.trip:
            return LinearSum(0, {TRIP: 1})
        if name in self.counters:
            first, added = self.counters[name]
            return first.plus(LinearSum(0, {TRIP: added} if added else {}))
        value = self.constant(name)
        if value is not None:
            return whole_number(value)
        outer = self.outer(name)
        if outer is not None:
            return None if self.is_sequence(outer) else self.around.sum_of(outer)
        node = self.makers.get(name)
        return None if node is None or depth > 50 else self._through(node, known, depth + 1)

    def look_closer(self, trips: LinearSum | None) -> None:
        """Compares numbers with each other from now on. `trips` is an upper bound of the number of trips."""
        self._elements = Elements(self, trips)
        self._look_for_writes(self._elements)

    def fixed(self, name: str) -> Array | None:
        """A small computed array of integers or bools that is the same at every trip. None for other values."""
        found = None if self._elements is None or self.constant(name) is not None else self._elements.of(name)
        if found is None or not found.size:
            return None
        if all(isinstance(element, bool) for element in found.flat):
            return found.astype(bool)
        whole = all(is_number(element) for element in found.flat)
        return each(lambda element: element.number, found).astype(np.int64) if whole else None

    def _chosen(self, name: str) -> LinearSum | None:
        """The one number that Where, Max, Min, Concat or Gather gives."""
        found = None if self._elements is None else self._elements.of(name)
        if found is None or found.size != 1 or found.ndim > 1 or not isinstance(found.item(), LinearSum):
            return None
        return LinearSum(found.item().number, found.item().factors, found.ndim)

    def _through(self, node: onnx.NodeProto, known: dict[str, LinearSum] | None, depth: int) -> LinearSum | None:
        """The sum that a node makes of its inputs."""
        if node.op_type in ARITHMETIC:
            return combined(node.op_type, *(self.sum_of(name, known, depth) for name in node.input))
        if node.op_type in ("Where", "Max", "Min", "Concat", "Gather"):
            return self._chosen(node.output[0])
        if node.op_type not in ("Cast", "Squeeze", "Unsqueeze", "Reshape") or not node.input:
            return None
        found = self.sum_of(node.input[0], known, depth)
        if found is None or node.op_type == "Cast":
            return found if found and attributes_of(node).get("to", (0, 0))[1] in WHOLE else None
        rank = self._rank_after(node, found)
        return None if rank is None else LinearSum(found.number, found.factors, rank)

    def _rank_after(self, node: onnx.NodeProto, found: LinearSum) -> int | None:
        """Number of axes (0 or 1) after Squeeze, Unsqueeze or Reshape of one number. None for more axes."""
        if node.op_type == "Squeeze":
            return 0
        if node.op_type == "Unsqueeze":
            return found.rank + 1 if found.rank == 0 else None
        shape = self.constant(node.input[1]) if len(node.input) == 2 else None
        return None if shape is None or shape.ndim != 1 or shape.size > 1 else int(shape.size)

    # -- steps of arrays ------------------------------------------------------------------------------------------

    def read_of(self, node: onnx.NodeProto) -> Read | None:
        """The step of an outer array that a node reads. None unless the trips read the steps in order."""
        if node.op_type == "Gather":
            found = self._gathered(node)
        elif node.op_type == "Slice" and len(node.input) > 2:
            found = self._sliced(node)
        else:
            return None
        return found if found is not None and found.place.factors.get(TRIP) in (1, -1) else None

    def _gathered(self, node: onnx.NodeProto) -> Read | None:
        data, place = self.outer(node.input[0]), self.sum_of(node.input[1])
        if data is None or place is None or self.is_sequence(data):
            return None
        return self._read(data, attributes_of(node).get("axis", (0, 0))[1], place, bool(place.rank))

    def _sliced(self, node: onnx.NodeProto) -> Read | None:
        """The step that a Slice reads."""
        data = self.outer(node.input[0])
        if data is None or self.is_sequence(data) or self._elements is None:
            return None
        cuts = cuts_of(self._elements, node)
        moving = [cut for cut in cuts if cut.moves]
        rest = tuple(cut for cut in cuts if not cut.moves and not cut.is_whole(self._size(data, cut.axis)))
        if len(moving) != 1 or not moving[0].is_one or not all(cut.is_fixed for cut in rest):
            return None
        if moving[0].ends_before_it_begins(self._elements.trips):
            return None
        return self._read(self._part(data, rest), moving[0].axis, moving[0].start, True)

    def _part(self, data: str, cuts: tuple[Cut, ...]) -> str:
        """Cuts out, before the Loop, the part of an outer array that each trip cuts out. Returns its name."""
        numbers = tuple((cut.start.number, cut.end.number, cut.axis, cut.step.number) for cut in cuts)
        if cuts and (data, numbers) not in self._parts:
            self._parts[data, numbers] = self.around.append("Slice", [data, *zip(*numbers, strict=True)])
        return self._parts[data, numbers] if cuts else data

    def _size(self, data: str, axis: int) -> int | str | None:
        """One size of an outer array. None if it is open."""
        sizes = self.reader.dims(data) or ()
        return sizes[axis] if -len(sizes) <= axis < len(sizes) else None

    def _read(self, data: str, axis: int, place: LinearSum, keeps_axis: bool) -> Read | None:
        rank = self.around.rank(data)
        return None if rank is None or not -rank <= axis < rank else Read(data, axis % rank, place, keeps_axis)

    def sizes_of_step(self, node: onnx.NodeProto) -> tuple[int, ...] | None:
        """The sizes of the step that a node reads, if they are fixed. None for other nodes."""
        read = self.read_of(node)
        if read is None or self.reader.value(read.data) is not None:
            return None
        dims = self.reader.dims(read.data)
        sizes = list(dims or ())
        sizes[read.axis : read.axis + 1] = [1] if read.keeps_axis else []
        found = tuple(size for size in sizes if isinstance(size, int))
        return found if dims is not None and len(found) == len(sizes) else None

    # -- carried arrays that are written --------------------------------------------------------------------------

    def _look_for_writes(self, elements: Elements) -> None:
        """Notes carried arrays that trips only write into. They may also read sizes, which are the first value's."""
        nodes = [node for node in self.graph.node if node.op_type not in SIZES]
        found = {name: write for name in self.initial if (write := self._write_of(name, elements)) is not None}
        while len(found) != len(self.writes):
            self.writes = found
            results = {value.name for value in self.graph.output[1 + len(self.initial) :]}
            results.update(self.results[name] for name in self.initial if name not in found)
            results.update(name for write in found.values() for name in write.read)
            _, read = self.needed(nodes, results)
            found = {name: write for name, write in found.items() if not read & {name, write.node.output[0]}}
        for name, write in found.items():
            self.unchanged[name] = self.moved[write.node.output[0]] = self.initial[name]

    def _write_of(self, name: str, elements: Elements) -> Write | None:
        """How a trip writes into a carried array. None if it does anything else with the array."""
        node = self.makers.get(self.handed_on(self.results[name]))
        if node is None or node.op_type not in SCATTERS or self.handed_on(node.input[0]) != name:
            return None
        step, is_nd, given = None, node.op_type == "ScatterND", attributes_of(node)
        made = self.makers.get(self.handed_on(node.input[1]))
        is_larger = made is not None and made.op_type == "Expand" and not is_nd
        places = elements.of(made.input[0] if made is not None and is_larger else node.input[1])
        place = places.item() if places is not None and places.size == 1 and places.ndim >= is_nd else None
        is_plain = given.keys() <= SCATTERS[node.op_type] and given.get("reduction", (0, "none"))[1] == "none"
        if is_plain and isinstance(place, LinearSum) and place.factors.get(TRIP) in (1, -1):
            step = self._read(self.initial[name], given.get("axis", (0, 0))[1], place, not is_nd)
        if step is not None and places is not None:
            return Write(node, step, tuple(range(places.ndim - 1)) if is_nd else (step.axis,))
        return Write(node) if is_nd else None

    # -- what is needed -------------------------------------------------------------------------------------------

    def needed(self, nodes: list[onnx.NodeProto], results: set[str]) -> tuple[list[onnx.NodeProto], set[str]]:
        """The nodes that results depend on, and all names that these nodes read."""
        names, found = set(results), list[onnx.NodeProto]()
        for node in reversed(nodes):
            if names.intersection(node.output) and not self.moved.keys() & set(node.output):
                names.update(filter(None, names_read(node)))
                found.append(node)
        return found[::-1], names


ENDLESS = 2**31  # trip counts from here on mean that the condition ends the Loop
ORDER = {"Less": (1, 0, 0), "Greater": (0, 1, 0), "LessOrEqual": (1, 0, 1), "GreaterOrEqual": (0, 1, 1)}
OPPOSITE = {"Less": "GreaterOrEqual", "Greater": "LessOrEqual", "LessOrEqual": "Greater", "GreaterOrEqual": "Less"}
HINT = "If it is the same in all runs, give the input that it follows from: load(path, constants={...})."


@dataclass
class Trips:
    """Finds the number of trips.

    Args:
        count, condition: names of the Loop's first two inputs, empty if left out.
        most: an upper bound of the number of trips, which `number` finds.
    """

    body: LoopBody
    count: str
    condition: str
    most: LinearSum | None = None

    def number(self) -> int | str:
        """The number of trips, or the name of an int64 in the surrounding graph. Raises OnnxError if data decide it."""
        count = self._count()
        limits = self._limits(self.body.graph.output[0].name, True)
        first = self._first_condition()
        if first is False:
            return 0
        if count is None and not limits:
            self._fail_endless()
        begins = first is True or self._is_first_of(limits)
        numbers = [self._trips(limit, begins and first is not True) for limit in limits]
        self.most = self._most(count, limits if begins and first is not True else [])
        if count is not None:
            numbers.append(self.body.around.node("Max", self._computed(count), 0))
        number = reduce(lambda one, other: self.body.around.node("Min", one, other), numbers)
        return number if begins else self._if_begun(number)

    def _most(self, count: LinearSum | None, limits: list[LinearSum]) -> LinearSum | None:
        """An upper bound of the number of trips: the trip count, or a limit of the condition; None without both."""
        found = [before_first(limit) for limit in limits if limit.factors[TRIP] == -1]
        return next((total for total in (count, *found) if total is not None), None)

    def _count(self) -> LinearSum | None:
        """The trip count. None if it is left out, or is `ENDLESS` or more."""
        if not self.count:
            return None
        value = self.body.reader.known_value(self.count)
        if value is not None and value.size == 1:
            return None if value.item() >= ENDLESS else LinearSum(max(int(value.item()), 0))
        found = self.body.around.sum_of(self.count)
        if found is None:
            raise OnnxError("the trip count of a Loop is not one known integer", blob=self.count)
        return found

    def _fail_endless(self) -> NoReturn:
        if self.count:
            came = self.body.reader.known_value(self.count)
            problem = "a Loop whose condition is always true makes too many trips"
            raise OnnxError(problem, blob=self.count, wanted=f"a trip count below {ENDLESS}", came=came)
        raise OnnxError("a Loop without a trip count, whose condition is always true, never ends")

    def _first_condition(self) -> bool | None:
        """The condition before the first trip. None if it is not known."""
        value = self.body.reader.known_value(self.condition) if self.condition else None
        return True if not self.condition else None if value is None or value.size != 1 else bool(value.item())

    def _limits(self, name: str, wanted: bool, depth: int = 0) -> list[LinearSum]:
        """Sums that are all above 0 exactly if the condition has the wanted value after a trip."""
        name = self.body.handed_on(name)
        value, node = self.body.constant(name), self.body.makers.get(name)
        if (name == self.body.condition and wanted) or (
            value is not None and value.size == 1 and value.all() == wanted
        ):
            return []
        if node is None or depth > 50:
            self._fail(name)
        if node.op_type == "And" and wanted:
            return [limit for part in node.input for limit in self._limits(part, True, depth + 1)]
        if node.op_type == "Not":
            return self._limits(node.input[0], not wanted, depth + 1)
        if node.op_type in VIEWS and (node.op_type != "Cast" or self._is_bool(node)):
            return self._limits(node.input[0], wanted, depth + 1)
        limit = compared(
            node.op_type if wanted else OPPOSITE.get(node.op_type, ""), list(map(self.body.sum_of, node.input))
        )
        if limit is None or limit.factors.get(TRIP, 0) >= 0:
            self._fail(name)
        return [limit]

    def _is_bool(self, node: onnx.NodeProto) -> bool:
        """True if a Cast reads a value that is a bool already."""
        name = self.body.handed_on(node.input[0])
        made = self.body.makers.get(name)
        return name == self.body.condition or (made is not None and made.op_type in (*ORDER, "And", "Not"))

    def _fail(self, name: str) -> NoReturn:
        node = self.body.makers.get(name)
        raise OnnxError(
            "a Loop may end before its last trip",
            blob=name,
            wanted="a condition that is always true, or that compares a counter with a number that stays",
            came=f"the result of {node.op_type}" if node is not None else "an unknown value",
        )

    def _is_first_of(self, limits: list[LinearSum]) -> bool:
        """True if the condition before the first trip is the comparison after each trip, with its first numbers."""
        op = self.body.around.maker(self.body.reader.blob(self.condition).name) if self.condition else None
        if op is None or len(limits) != 1:
            return False
        first = compared(op.type, [self.body.around.sum_of(name) for name in op.inputs])
        return first is not None and first.equals(before_first(limits[0]))

    def _trips(self, limit: LinearSum, may_be_none: bool) -> int | str:
        """The number of trips until a sum is 0 or less."""
        slope = -limit.factors[TRIP]
        base = before_first(limit) if may_be_none else without_trip(limit)
        number = self.body.around.node("Max", self._computed(base), 0)
        if slope > 1:
            number = self.body.around.node("Div", self.body.around.node("Add", number, slope - 1), slope)
        return number if may_be_none else self.body.around.node("Add", number, 1)

    def _computed(self, total: LinearSum) -> int | str:
        """A sum as nodes. Raises OnnxError if it depends on data."""
        for name in total.factors:
            source = self.body.around.reader.unknown_source(name)
            if source is not None:
                raise OnnxError(
                    "data decide how many trips a Loop makes",
                    blob=name,
                    wanted="a number that follows from constants and sizes of arrays",
                    came=f"what follows from '{source}'",
                    hint=HINT,
                )
        return self.body.around.computed(total)

    def _if_begun(self, number: int | str) -> str:
        """The number of trips, or 0 if the condition before the first trip is false."""
        source = self.body.around.reader.unknown_source(self.condition)
        if source is not None:
            came = f"what follows from '{source}'"
            raise OnnxError("data decide whether a Loop begins", blob=self.condition, came=came, hint=HINT)
        condition = self.body.around.append("Reshape", [self.condition, []])
        return self.body.around.append("Where", [condition, number, 0])


def compared(op: str, sides: list[LinearSum | None]) -> LinearSum | None:
    """A sum that is above 0 exactly if a comparison of whole numbers is true."""
    if op not in ORDER or len(sides) != 2 or sides[0] is None or sides[1] is None:
        return None
    small, large, equal = ORDER[op]
    one, other = (sides[0], sides[1]) if small > large else (sides[1], sides[0])
    return other.plus(one, -1).plus(LinearSum(equal))


def without_trip(limit: LinearSum) -> LinearSum:
    """The value of a sum at the first trip."""
    return limit.plus(LinearSum(0, {TRIP: limit.factors[TRIP]}), -1)


def before_first(limit: LinearSum) -> LinearSum:
    """The value that a sum would have one trip before the first."""
    return without_trip(limit).plus(LinearSum(-limit.factors[TRIP]))
