"""Reads Loop nodes as Scans, which become recurrences.

If the number of trips follows from sizes, a Loop becomes a Scan:

- a carried value becomes a state. Counters are computed from the trip's number instead, and values that never change
  are read from outside of the loop;
- an array that each trip reads at its own step becomes a scan input;
- values that trips write into a carried array, without reading it, become a scan output;
- a sequence that gets an element at each trip becomes a scan output.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from rnnops.errors import OnnxError
from rnnops.net.op import free_name
from rnnops.onnx.import_if import Operand, SequencePart, appended, check_names, renamed
from rnnops.onnx.loop_body import LoopBody, Read, Trips, Write, without_trip
from rnnops.onnx.loop_elements import TRIP, Around, LinearSum
from rnnops.onnx.node import Attributes, element_type, nodes_of

if TYPE_CHECKING:
    from rnnops.onnx.read_graph import GraphReader

TAKEN_AS_FIXED = {"NonZero": (0,), "Slice": (2, 4)}  # inputs that decide sizes, by op
Rows = tuple[
    tuple[int, ...], ...
]  # for both choices of open sizes: a list with the size of the first axis, which is empty without an axis


def read_loop(reader: GraphReader, proto: onnx.NodeProto, attributes: Attributes) -> None:
    """Read a Loop node."""
    graph = attributes.get("body", (0, None))[1]
    carried = len(proto.input) - 2
    if reader.model.opset < 11:
        raise OnnxError("a Loop of this op set is not supported", hint="Convert the model to op set 11 or later.")
    if not isinstance(graph, onnx.GraphProto) or len(attributes) != 1 or graph.sparse_initializer or carried < 0:
        raise OnnxError("a Loop has two inputs or more and a body, and no other attributes")
    if len(graph.input) != carried + 2 or not carried + 1 <= len(graph.output) == len(proto.output) + 1:
        raise OnnxError("inputs and outputs of the body do not fit the node", came=f"{len(graph.input)} body inputs")
    if "" in proto.input[2:]:
        raise OnnxError("a carried value has no first value")
    LoopReader(reader, proto, graph).read()


@dataclass
class Plan:
    """The Scan that a body becomes.

    Args:
        nodes: nodes of the new body; states: carried values that are states.
        scanned: pairs: a value of the body, and the name of all its steps.
        reads: name of a step in the body -> the step of an outer array that it reads.
        collected: triples: a sequence, its first value, and all steps of the elements that it collects.
        written: carried array -> names of all steps of the values that are written into it, and of their places if the
            body computes these.
        turned: names of all steps of values that are written from the last place to the first.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    scanned: list[tuple[str, str]] = field(default_factory=list)
    reads: dict[str, Read] = field(default_factory=dict)
    collected: list[tuple[str, str, str]] = field(default_factory=list)
    written: dict[str, list[str]] = field(default_factory=dict)
    turned: set[str] = field(default_factory=set)


class LoopReader:
    """Reads one Loop into the surrounding graph."""

    def __init__(self, reader: GraphReader, proto: onnx.NodeProto, graph: onnx.GraphProto) -> None:
        self.reader, self.proto, self.graph = reader, proto, graph
        self.prefix = next(filter(None, proto.output), "Loop")
        self.around = Around(reader, self.prefix)
        self.steps = LoopSteps(self.around)
        check_names(graph)
        check_sources(reader, proto)
        self.body = LoopBody(graph, self.around, proto.input[2:])
        self.carried = list(self.body.initial)
        self.finals = dict(zip(self.carried, proto.output, strict=False))
        self.taken = self.body.own | {n for node in nodes_of(graph) for n in (*node.input, *node.output)}
        self.new_tensors: list[onnx.TensorProto] = []
        self.nodes = list(graph.node)

    def read(self) -> None:
        """Appends the nodes that replace the Loop."""
        counted = Trips(self.body, *self.proto.input[:2])
        trips = counted.number()
        self.body.look_closer(LinearSum(trips) if isinstance(trips, int) else counted.most)
        plan = self._plan()
        rows = self._rows(plan)
        self._take_steps(plan, rows)
        if plan.states or plan.scanned:
            self._write(plan, rows, trips)
        for sequence, start, every in plan.collected:
            first = self.reader.sequence(start) or ()
            self.reader.add_sequence(sequence, (*first, SequencePart(every, is_run=True)))
        for name, written in plan.written.items():
            self.steps.put(self.finals[name], self.body.initial[name], self.body.writes[name], written, trips)
        for name in self.carried:
            self._write_final(name, trips)

    # -- the role of each value ------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        """Decides about states, scanned arrays, and the nodes that stay."""
        plan = Plan()
        n = len(self.carried)
        scanned = list(zip((value.name for value in self.graph.output[n + 1 :]), self.proto.output[n:], strict=True))
        plan.scanned = [(own, every) for own, every in scanned if self._is_read(every)]
        sequences = [name for name in self.carried if self.body.is_sequence(self.body.initial[name])]
        for name in sequences:
            self._collect(plan, name)
        for name, write in self.body.writes.items():
            self._collect_steps(plan, name, write)
        states = [name for name in self.carried if name not in (*self.body.unchanged, *self.body.counters, *sequences)]
        wanted = self._states_read(states, [own for own, _ in plan.scanned])
        plan.states = [name for name in states if name in wanted]
        results = {*(self.body.results[name] for name in plan.states), *(own for own, _ in plan.scanned)}
        plan.nodes, read = self.body.needed(self.nodes, results)
        if lost := read.intersection(sequences) - set(self.body.unchanged):
            raise OnnxError("a Loop reads a sequence that it collects", blob=min(lost))
        return plan

    def _is_read(self, name: str) -> bool:
        return bool(name) and name in self.reader.read_names

    def _states_read(self, states: list[str], results: list[str]) -> set[str]:
        """The states that are needed for the values that are read."""
        found = {name for name in states if self._is_read(self.finals[name])}
        while True:
            roots = {*results, *(self.body.results[name] for name in found)}
            _, read = self.body.needed(self.nodes, roots)
            more = found | read.intersection(states)
            if more == found:
                return found
            found = more

    def _collect(self, plan: Plan, name: str) -> None:
        """Plans a carried sequence: it stays unchanged, or gets one element at each trip."""
        if name in self.body.unchanged:
            return
        node = self.body.makers.get(self.body.handed_on(self.body.results[name]))
        if node is None or node.op_type != "SequenceInsert" or self.body.handed_on(node.input[0]) != name:
            raise OnnxError(
                "a Loop may change a sequence only by appending an element at each trip", blob=self.body.results[name]
            )
        if len(node.input) > 2 and node.input[2] and not self._is_end(node.input[2], name):
            raise OnnxError("a Loop puts an element into a sequence, but not at its end", blob=node.input[2])
        if self._is_read(self.finals[name]):
            every = self._every_step(plan, name, node.input[1])
            plan.collected.append((self.finals[name], self.body.initial[name], every))

    def _every_step(self, plan: Plan, name: str, step: str) -> str:
        """The name of all steps of a value of the body. They make up the last value of a carried array."""
        every = free_name(f"{self.finals[name]}/steps", self.reader.taken)
        self.reader.read_names.add(every)
        plan.scanned.append((step, every))
        return every

    def _collect_steps(self, plan: Plan, name: str, write: Write) -> None:
        """Plans a carried array that trips write into."""
        if not self._is_read(self.finals[name]):
            return
        steps = write.read
        if write.ones:
            steps = [free_name(f"{steps[0]}/step", self.taken)]
            self.nodes.append(self._with_axes("Squeeze", write.read[0], write.ones, steps[0]))
        plan.written[name] = [self._every_step(plan, name, step) for step in steps]
        if write.step is not None and write.step.place.factors[TRIP] < 0:
            plan.turned.update(plan.written[name])

    def _is_end(self, place: str, name: str) -> bool:
        """True if a place is the length of the sequence at each trip."""
        made = self.body.makers.get(self.body.handed_on(place))
        return made is not None and made.op_type == "SequenceLength" and self.body.handed_on(made.input[0]) == name

    # -- rows and steps -------------------------------------------------------------------------------------------

    def _rows(self, plan: Plan) -> Rows | None:
        """The size of the first axis of all states; without states, of all steps that are read. None if they differ."""
        found = {self._leading(self.body.initial[name]) for name in plan.states}
        if not plan.states:
            reads = (self.body.read_of(node) for node in plan.nodes)
            found = {
                self._leading(read.data, read.axis) for read in reads if read is not None and self._is_known(read.place)
            }
        return found.pop() if len(found) == 1 and not found & {None, ((), ())} else None

    def _leading(self, name: str, steps: int | None = None) -> Rows | None:
        """The first axis of a value, or of its steps along the axis `steps`."""
        value = self.reader.value(name)
        known = self.reader.known(self.reader.blob(name).name) if value is None else [value, value]
        if known is None:
            return None
        return tuple(tuple(size for axis, size in enumerate(kind.shape) if axis != steps)[:1] for kind in known)

    def _is_known(self, place: LinearSum) -> bool:
        """True if a place depends only on the trip's number and on values that are known before a run."""
        return all(self.reader.unknown_source(name) is None for name in place.factors if name != TRIP)

    def _take_steps(self, plan: Plan, rows: Rows | None) -> None:
        """Makes scan inputs of the arrays that are read step by step and have `rows` as their first axis."""
        nodes, steps = [], dict[tuple[object, ...], str]()
        for node in plan.nodes:
            node = self._of_sequence(node)
            read = self.body.read_of(node)
            if (
                read is None
                or (rows is not None and self._leading(read.data, read.axis) != rows)
                or not self._is_known(read.place)
            ):
                nodes.append(self._plain(node))
                continue
            if read.key not in steps:
                step = free_name(f"{node.output[0]}/step", self.taken) if read.keeps_axis else node.output[0]
                steps[read.key] = step
                plan.reads[steps[read.key]] = read
            nodes.append(self._as_step(node, read, steps[read.key]))
        plan.nodes = [node for node in nodes if node.op_type != "Identity" or node.input[0] != node.output[0]]

    def _plain(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node with constants for values that are equal at all trips, if its rule needs to know them."""
        places = [i for i in TAKEN_AS_FIXED.get(node.op_type, ()) if i < len(node.input) and node.input[i]]
        found = {i: value for i in places if (value := self.body.fixed(node.input[i])) is not None}
        if not found:
            return node
        inputs = [self._tensor(found[i]) if i in found else name for i, name in enumerate(node.input)]
        return onnx.helper.make_node(node.op_type, inputs, node.output)

    def _of_sequence(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """SequenceAt of an outer sequence as a Gather, if the sequence lies in one array."""
        outer = self.body.outer(node.input[0]) if node.op_type == "SequenceAt" and len(node.input) == 2 else None
        parts = None if outer is None else self.reader.sequence(outer)
        if not parts or len(parts) != 1 or not parts[0].is_run or parts[0].name in self.body.own:
            return node
        place = self.body.sum_of(node.input[1])
        if place is None or place.rank:
            return node
        return onnx.helper.make_node("Gather", [parts[0].name, node.input[1]], node.output, axis=0)

    def _as_step(self, node: onnx.NodeProto, read: Read, step: str) -> onnx.NodeProto:
        """The node that makes a value of the body from a step."""
        if not read.keeps_axis:
            return onnx.helper.make_node("Identity", [step], node.output)
        return self._with_axes("Unsqueeze", step, (read.axis,), node.output[0])

    def _with_axes(self, op: str, name: str, axes: tuple[int, ...], result: str) -> onnx.NodeProto:
        if self.reader.model.opset < 13:
            return onnx.helper.make_node(op, [name], [result], axes=axes)
        return onnx.helper.make_node(op, [name, self._tensor(np.array(axes))], [result])

    def _tensor(self, value: np.ndarray[Any, Any]) -> str:
        """A constant of the body."""
        name = free_name("constant", self.taken)
        self.new_tensors.append(onnx.numpy_helper.from_array(value, name))
        return name

    # -- the Scan -------------------------------------------------------------------------------------------------

    def _write(self, plan: Plan, rows: Rows | None, trips: int | str) -> None:
        """Append the Scan."""
        results = [*(self.body.results[name] for name in plan.states), *(own for own, _ in plan.scanned)]
        nodes, read = self.body.needed(plan.nodes, set(results))
        sequences = {name: self.steps.sequence(given, trips) for name, given in plan.reads.items() if name in read}
        directions = [int(given.place.factors[TRIP] < 0) for name, given in plan.reads.items() if name in read]
        first = self._counting(read)
        if self.body.trip in read or not sequences:
            own = free_name("trip/rows", self.taken)
            sequences[own] = self._trips_of_rows(plan, rows, trips)
            directions.append(0)
            first = [*self._trip_nodes(own, rows), *first] if self.body.trip in read else first
        names = {
            name: self._reachable(outer)
            for name, outer in {**self.body.unchanged, **self.body.moved}.items()
            if name in read
        }
        inputs = [*plan.states, *sequences]
        body = self._graph(inputs, [*self._condition(read), *first, *nodes], names, results)
        node = onnx.helper.make_node(
            "Scan",
            [*(self.body.initial[name] for name in plan.states), *sequences.values()],
            [*(self._named(self.finals[name]) for name in plan.states), *(every for _, every in plan.scanned)],
            body=body,
            num_scan_inputs=len(sequences),
            scan_input_directions=directions,
            scan_output_directions=[int(every in plan.turned) for _, every in plan.scanned] or None,
        )
        self.reader.read_node(node)

    def _named(self, name: str) -> str:
        return name or free_name(f"{self.prefix}/unread", self.reader.taken)

    def _graph(
        self, inputs: list[str], nodes: list[onnx.NodeProto], names: dict[str, str], results: list[str]
    ) -> onnx.GraphProto:
        """The body of the Scan."""
        body = onnx.GraphProto(name=self.graph.name or "body")
        body.input.extend(onnx.helper.make_tensor_value_info(name, 0, None) for name in inputs)
        body.initializer.extend(deepcopy(tensor) for tensor in (*self.graph.initializer, *self.new_tensors))
        body.node.extend(renamed(node, names) for node in nodes)
        body.output.extend(onnx.helper.make_tensor_value_info(names.get(name, name), 0, None) for name in results)
        return body

    def _reachable(self, outer: str) -> str:
        """The name, in the body, of an outer value. Nothing in the body has this name."""
        if outer not in self.taken or outer not in self.body.own:
            return outer
        return appended(self.reader, f"{outer}/around", "Identity", [outer])

    def _condition(self, read: set[str]) -> list[onnx.NodeProto]:
        """Nodes for the condition, which is true at every trip, if the body reads it."""
        if self.body.condition not in read:
            return []
        return [onnx.helper.make_node("Identity", [self._tensor(np.array(True))], [self.body.condition])]

    def _counting(self, read: set[str]) -> list[onnx.NodeProto]:
        """Nodes that compute the carried counters that the body reads from the trip's number."""
        nodes = [node for name in self.body.counters if name in read for node in self._counter(name)]
        if nodes:
            read.add(self.body.trip)
        return nodes

    def _counter(self, name: str) -> Iterator[onnx.NodeProto]:
        initial, added = self.body.initial[name], self.body.counters[name][1]
        dtype = self.reader.dtype_of(initial)
        number, passed = (free_name(f"{name}/{word}", self.taken) for word in ("trip", "passed"))
        yield onnx.helper.make_node("Cast", [self.body.trip], [number], to=element_type(dtype))
        yield onnx.helper.make_node("Mul", [number, self._tensor(np.array(added, dtype))], [passed])
        yield onnx.helper.make_node("Add", [self._reachable(initial), passed], [name])

    def _trip_nodes(self, rows_name: str, rows: Rows | None) -> Iterator[onnx.NodeProto]:
        """Nodes for the trip's number, which is the same in all rows."""
        if rows is not None:
            ends, one = [self._tensor(np.array([place])) for place in (0, 1)], free_name("trip/row", self.taken)
            yield onnx.helper.make_node("Slice", [rows_name, *ends], [one])
            yield onnx.helper.make_node("Reshape", [one, self._tensor(np.array([], "int64"))], [self.body.trip])
        else:
            yield onnx.helper.make_node("Identity", [rows_name], [self.body.trip])

    def _trips_of_rows(self, plan: Plan, rows: Rows | None, trips: int | str) -> str:
        """Numbers of trips 0, 1, ... as `[trips]`, or repeated in each row as `[trips, N]`."""
        around = self.around
        numbers = around.append("Range", [0, trips, 1])
        if rows is None:
            return numbers
        column = around.append("Reshape", [numbers, [-1, 1]])
        shape = around.append("Concat", [[1], self._count_of_rows(plan)], axis=0)
        return around.append("Expand", [column, shape])

    def _count_of_rows(self, plan: Plan) -> str:
        """N, as a list with one size."""
        if plan.states:
            return self.steps.size(self.body.initial[plan.states[0]], 0)
        read = next(iter(plan.reads.values()))
        return self.steps.size(read.data, 1 if read.axis == 0 else 0)

    # -- what comes out -------------------------------------------------------------------------------------------

    def _write_final(self, name: str, trips: int | str) -> None:
        """Appends the last value of a carried value that is not a state."""
        final, initial = self.finals[name], self.body.initial[name]
        if not self._is_read(final):
            return
        if name in self.body.unchanged and name not in self.body.writes:
            self.reader.read_node(onnx.helper.make_node("Identity", [initial], [final]))
        elif name in self.body.counters:
            passed = self.around.node("Mul", trips, self.body.counters[name][1])
            dtype = element_type(self.reader.dtype_of(initial))
            cast = self.around.append("Cast", [passed], to=dtype)
            self.reader.read_node(onnx.helper.make_node("Add", [initial, cast], [final]))


def check_sources(reader: GraphReader, proto: onnx.NodeProto) -> None:
    """Raise OnnxError if a Loop reads a value that does not exist."""
    for name in filter(None, proto.input):
        if reader.sequence(name) is None:
            reader.dtype_of(name)


class LoopSteps:
    """Appends nodes around a Loop, for the steps that it reads and the arrays that it writes."""

    def __init__(self, around: Around) -> None:
        self.around, self.reader = around, around.reader

    def size(self, name: str, axis: int) -> str:
        """One size of an array, as a list with one number."""
        return self.around.append("Shape", [name], start=axis, end=axis + 1)

    def sequence(self, read: Read, trips: int | str) -> str:
        """The steps that a Loop reads, time first, in the order of the array. A run refuses another number of steps."""
        around, data = self.around, self._time_first(read.data, read.axis)
        first = self._first_place(read.place, trips)
        if read.place.number < 0 and len(read.place.factors) == 1:  # places are counted from the end of the array
            # such places may pass the end and go on at the front
            if read.place.number < -1 or read.place.factors[TRIP] > 0:
                return around.append("Gather", [data, self._places(first, trips)])
            first = around.node("Add", around.append("Reshape", [self.size(data, 0), []]), first)
        if self._is_whole(data, first, trips):
            # certain: known without assuming open sizes
            is_certain = isinstance(trips, int) and self.reader.is_certain(data)
            return data if is_certain else self._guarded(data, trips)
        end = around.node("Add", first, trips)
        cut = around.append("Slice", [data, self._listed(first), self._listed(end), [0]])
        return self._guarded(cut, trips)

    def put(self, final: str, initial: str, write: Write, every: list[str], trips: int | str) -> None:
        """Appends the last value of a carried array: its first value, with the values that all trips write.

        Args:
            every: the name of the values of all trips (in the order of the array if each trip writes one step), then
                the name of their places if these are computed.
        """
        if write.step is None:
            node = deepcopy(write.node)
            node.input[:], node.output[:] = [initial, every[1], every[0]], [final]
            return self.reader.read_node(node)
        around, axis = self.around, write.step.axis
        data, first = self._time_first(initial, axis), self._first_place(write.step.place, trips)
        before, after = (self.reader.known(self.reader.blob(name).name) for name in (data, every[0]))
        if before is not None and before == after and self._both(first) == (0, 0):
            guarded = self._guarded(every[0], self.size(data, 0))
            done = around.append("Reshape", [guarded, around.append("Shape", [data])], allowzero=1)
        elif before is None or after is None or before[0].shape[1:] == after[0].shape[1:]:
            places = around.append("Reshape", [self._places(first, trips), [-1, 1]])
            done = around.append("ScatterND", [data, places, every[0]])
        else:  # only parts of steps are written
            places = around.append("Reshape", [self._places(first, trips), [-1, *(1 for _ in before[0].shape[1:])]])
            places = around.append("Expand", [places, around.append("Shape", every)])
            done = around.append("ScatterElements", [data, places, every[0]], axis=0)
        perm = [*range(1, axis + 1), 0, *range(axis + 1, around.rank(initial) or 0)]
        return self.reader.read_node(onnx.helper.make_node("Transpose", [done], [final], perm=perm))

    def _time_first(self, data: str, axis: int) -> str:
        """An array with the given axis as its first axis."""
        rank = self.around.rank(data) or 0
        perm = [axis, *(k for k in range(rank) if k != axis)]
        return self.around.append("Transpose", [data], perm=perm) if axis else data

    def _first_place(self, place: LinearSum, trips: int | str) -> int | str:
        """The smallest of the places that trips read or write. They rise by 1 in the order of the array."""
        first = self.around.computed(without_trip(place))
        return first if place.factors[TRIP] > 0 else self.around.node("Sub", self.around.node("Add", first, 1), trips)

    def _places(self, first: int | str, trips: int | str) -> str:
        """All places, in the order of the array."""
        return self.around.append("Add", [self.around.append("Range", [0, trips, 1]), first])

    def _is_whole(self, data: str, first: int | str, trips: int | str) -> bool:
        """True if all steps of an array are read, for both choices of made-up sizes."""
        known = self.reader.known(self.reader.blob(data).name)
        return (
            known is not None and self._both(first) == (0, 0) and self._both(trips) == tuple(k.shape[0] for k in known)
        )

    def _both(self, number: int | str) -> tuple[int, int] | None:
        """A number for each choice of made-up sizes."""
        if isinstance(number, int):
            return number, number
        return self.reader.likely_numbers(number)

    def _guarded(self, data: str, trips: int | str) -> str:
        """An array that must have `trips` steps. A run refuses another number."""
        around = self.around
        rest = around.append("Shape", [data], start=1)
        sizes = around.append("Concat", [self._listed(trips), rest], axis=0)
        return around.append("Reshape", [data, sizes], allowzero=1)

    def _listed(self, number: int | str) -> Operand:
        """A number as a list."""
        return [number] if isinstance(number, int) else self.around.append("Reshape", [number, [1]])
