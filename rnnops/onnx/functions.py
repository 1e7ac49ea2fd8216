"""Prepares a model before it is read: functions are put in place, and unrolled loops become Loop nodes.

**Ops that ONNX defines by simpler ops** are replaced by these. Examples are Attention, LinearAttention (a Scan),
CausalConvWithState, RotaryEmbedding and CastLike. The package `onnx` gives the definition for the types of the inputs.
If it cannot, the op stays.

**Unrolled loops.** PyTorch's exporters write a Python loop over time as a copy of its nodes for each step. Copies that
hand states on (`unrolled.py`) become the body of a Loop. Its results are read as all steps, or as one step. Other nodes
stay.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx.defs import get_schema
from onnx.shape_inference import infer_shapes

from rnnops.errors import OnnxError
from rnnops.net.op import free_name
from rnnops.onnx import unrolled
from rnnops.onnx.node import FAR, MAX_BYTES, OWN_DOMAINS, about, graphs_in, graphs_of, names_read, nodes_of, op_name
from rnnops.onnx.open_sizes import dims_of

DEFINITIONS = "rnnops.definitions"  # the domain of ops that are about to be replaced by their definitions
DEEPEST = 4  # depth of definitions inside definitions; those of ONNX go two deep


def put_definitions_in_place(model: onnx.ModelProto, opset: int, known: Collection[str]) -> None:
    """Replaces ops that cannot be read by ONNX's definitions of them. Ops without a definition stay.

    Args:
        opset: version of the model's op set.
        known: names of the ops that can be read without this.
    """
    for _ in range(DEEPEST):
        if not any(is_defined(node, opset, known) for node in nodes_of(model.graph)):
            return
        define(model, opset, known)
        put_functions_in_place(model)


def schema_of(node: onnx.NodeProto, opset: int) -> Any:
    """ONNX's schema of one of its own ops. None for other ops."""
    is_there = node.domain in OWN_DOMAINS and onnx.defs.has(node.op_type, opset, "")
    return get_schema(node.op_type, opset, "") if is_there else None


def is_defined(node: onnx.NodeProto, opset: int, known: Collection[str]) -> bool:
    """True if an op cannot be read, but ONNX defines it by other nodes."""
    schema = None if op_name(node) in known else schema_of(node, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def define(model: onnx.ModelProto, opset: int, known: Collection[str]) -> None:
    """Gives a model a function for each node that cannot be read and that ONNX defines."""
    around = types_around(graph_with_types(model))
    del model.functions[:]  # these are in place already
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

    The newest definition up to the op set is taken. The meaning of its ops has not changed since, as far as it uses
    them.
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
    except Exception:  # `onnx` may raise any error for attributes that do not fit
        return None


def newest(versions: Iterable[int], opset: int) -> int:
    """The newest version that is not above the op set."""
    return max(version for version in versions if version <= opset)


def defaults_of(node: onnx.NodeProto, opset: int) -> list[onnx.AttributeProto]:
    """Default attributes of those that a node leaves out."""
    given = {attribute.name for attribute in node.attribute}
    attributes = schema_of(node, opset).attributes
    return [one.default_value for name, one in attributes.items() if name not in given and one.default_value.name]


def graph_with_types(model: onnx.ModelProto) -> onnx.GraphProto:
    """A model's graph with the types of its values, as far as they are known."""
    try:
        return infer_shapes(model).graph
    except Exception:  # `onnx` may raise any error for shapes that contradict each other
        return model.graph


def types_around(
    graph: onnx.GraphProto, around: Sequence[dict[str, onnx.TypeProto]] = ()
) -> Iterator[Mapping[str, onnx.TypeProto]]:
    """For each node, in the order of `nodes_of`, the types of the values that it can read.

    Args:
        around: types in each surrounding graph, the nearest first.
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


MAX_NODES = 2**17  # of a graph after all functions are in place
MAX_CALLS = 32  # depth of calls inside calls

Key: TypeAlias = tuple[str, str, str]  # domain, name, overload


def put_functions_in_place(model: onnx.ModelProto) -> None:
    """Replaces calls of a model's functions by their nodes. Raises OnnxError for a function that calls itself."""
    if not model.functions:
        return
    functions = {key_of(function, function.name): function for function in model.functions}
    versions = {entry.version for entry in model.opset_import if entry.domain in OWN_DOMAINS}
    for function in functions.values():
        own = {entry.version for entry in function.opset_import if entry.domain in OWN_DOMAINS}
        if not own <= versions:
            problem = f"its function '{function.name}' is written for another op set"
            raise OnnxError(problem, wanted=sorted(versions), came=sorted(own))
    check_count(NodeCount(functions).of(model.graph.node))
    FunctionInliner(functions, set(prefixes(names_in(model.graph)))).fill(model.graph)


def key_of(proto: Any, name: str) -> Key:
    """The key of a function. It has an overload since IR version 10."""
    return ("" if proto.domain in OWN_DOMAINS else proto.domain), name, getattr(proto, "overload", "")


def names_in(graph: onnx.GraphProto) -> set[str]:
    """Names of values in a graph and in its inner graphs."""
    names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return names | names_made(graph.node)


def names_made(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Names of the values that nodes make, and of those in their inner graphs."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.output)
        for inner in graphs_of(node):
            names |= names_in(inner)
    return names


def prefixes(names: Iterable[str]) -> Iterator[str]:
    """All parts of names that end before a slash, and the names themselves."""
    for name in names:
        parts = name.split("/")
        yield from ("/".join(parts[:k]) for k in range(1, len(parts) + 1))


def check_count(nodes: int, nbytes: int = 0) -> None:
    """Raise OnnxError if there are too many nodes, or too many bytes of them."""
    if nodes > MAX_NODES or nbytes > MAX_BYTES:
        came = f"{nodes} nodes" + (f" of {nbytes} bytes" if nbytes else "")
        wanted = f"at most {MAX_NODES}, of {MAX_BYTES} bytes"
        raise OnnxError("its functions make too many nodes", wanted=wanted, came=came)


@dataclass
class NodeCount:
    """Number of nodes after all calls are replaced. It is known before any node is made.

    Graphs that a call hands on do not count.

    Args:
        known: numbers of nodes of functions.
    """

    functions: Mapping[Key, Any]
    known: dict[Key, int] = field(default_factory=dict)
    inside: list[Key] = field(default_factory=list)

    def of(self, nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(1 + self._inside(node) for node in nodes)

    def _inside(self, node: onnx.NodeProto) -> int:
        """The number of nodes that replace a node."""
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
    """Raise OnnxError for a call, inside calls, that would not end."""
    if key in inside or len(inside) >= MAX_CALLS:
        problem = f"a function of the model calls itself, or calls lie too deep inside each other: '{key[1]}'"
        raise OnnxError(problem, wanted=f"at most {MAX_CALLS} calls inside each other")


@dataclass
class FunctionInliner:
    """Puts functions in place of their calls.

    Args:
        taken: names, and their parts before slashes.
    """

    functions: Mapping[Key, Any]
    taken: set[str]
    nodes: int = 0
    nbytes: int = 0
    inside: list[Key] = field(default_factory=list)

    def fill(self, graph: onnx.GraphProto) -> None:
        """Replaces the calls in a graph and in its inner graphs."""
        nodes = [new for node in graph.node for new in self._nodes(node)]
        del graph.node[:]
        graph.node.extend(nodes)

    def _nodes(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A node, or the nodes that replace it."""
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
        """The nodes of a function, renamed for a call."""
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
    """A call of a function: the meaning of the function's names and attributes."""

    def __init__(self, node: onnx.NodeProto, function: Any, prefix: str) -> None:
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise OnnxError("inputs and outputs do not fit the function", came=f"{len(node.input)} inputs")
        self.prefix = prefix
        given = [*node.input, *[""] * (len(function.input) - len(node.input))]
        self.names = dict(zip(function.input, given, strict=True))
        self.copies: list[tuple[str, str]] = []  # pairs for outputs that are an input or another output
        for own, name in zip(function.output, node.output, strict=False):
            if name and self.names.setdefault(own, name) != name:
                self.copies.append((own, name))
        self.attributes = {one.name: one for one in (*function.attribute_proto, *node.attribute)}

    def named(self, name: str) -> str:
        """The name that a value of the function gets in the calling graph."""
        return self.names.get(name, f"{self.prefix}/{name}") if name else ""

    def placed(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node of the function, as it stands in the calling graph."""
        found = deepcopy(node)
        found.name = f"{self.prefix}/{node.name}" if node.name else ""
        for values in (found.input, found.output):
            values[:] = list(map(self.named, values))
        attributes = [new for attribute in node.attribute for new in self._attribute(attribute)]
        del found.attribute[:]
        found.attribute.extend(attributes)
        return found

    def _attribute(self, attribute: onnx.AttributeProto) -> Iterator[onnx.AttributeProto]:
        """An attribute of a node, or the attribute of the call that it refers to. Nothing if the call leaves it out."""
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
        """Renames the values of a graph inside the function."""
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = self.named(value.name)
        nodes = list(map(self.placed, graph.node))
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)

    def handed_through(self) -> Iterator[onnx.NodeProto]:
        """Identity nodes for outputs that are an input or another output."""
        for own, name in self.copies:
            yield onnx.helper.make_node("Identity", [self.names[own]], [name])


READERS = ("Gather", "Slice", "Split", "SequenceAt")
CUTS = ("Constant", "SplitToSequence", "Squeeze", "Unsqueeze")
REPEATING = ("Add", "Div", "Exp", "HardSigmoid", "LeakyRelu", "MatMul", "Mul", "Neg", "Relu", "Sigmoid", "Sub", "Tanh")


def with_loops(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """A copy of a model whose unrolled loops in the main graph are Loop nodes. None if there are none."""
    reads = Counter(name for node in model.graph.node if node.op_type in READERS for name in node.input[:1])
    parts = (len(node.output) for node in model.graph.node if node.op_type == "Split")
    made = Counter(name for node in model.graph.node for name in node.output if name)
    if (
        opset < 11 or max([*reads.values(), *parts], default=0) < unrolled.LEAST or max(made.values(), default=0) > 1
    ):  # reading such a model raises the error
        return None
    rolled, found, sources = deepcopy(model), False, unrolled.sources_of(model.graph)
    del rolled.graph.value_info[:]  # sizes are inferred again, as those in the file may be wrong
    typed = graph_with_types(rolled)
    dims = {value.name: dims_of(value) for value in (*typed.input, *typed.value_info)}
    dims |= {tensor.name: tuple(tensor.dims) for tensor in typed.initializer}
    while (loop := next(unrolled.loops_of(unrolled.GraphView(rolled.graph, dims, sources)), None)) is not None:
        LoopWriter(loop, opset).write()
        found = True
    return rolled if found else None


class LoopWriter:
    """Replaces the copies of a step by a Loop.

    Attributes:
        axes: state -> axes of size 1 that the Loop's carried value does not have.
        every: result whose steps are all read outside of the Loop -> name of the array of all steps; last: state
            whose last value is read outside -> name of that value.
        made: (result, step) -> its name after the Loop; after: nodes that compute these values from the Loop's results.
    """

    def __init__(self, loop: unrolled.UnrolledLoop, opset: int) -> None:
        self.loop, self.view, self.steps, self.opset = loop, loop.view, loop.steps, opset
        self.graph, self.taken = self.view.graph, names_in(self.view.graph)
        self.axes = {result: self._axes_of_start(name) for name, result in loop.states.items()}
        self.every: dict[unrolled.Result, str] = {}
        self.last: dict[unrolled.Result, str] = {}
        self.made: dict[tuple[unrolled.Result, int], str] = {}
        self.after: list[onnx.NodeProto] = []

    def write(self) -> None:
        """Changes the graph."""
        before, behind = list[onnx.NodeProto](), list[onnx.NodeProto]()
        for node in self.graph.node:
            if max(map(self.steps.step, self.view.read(node)), default=-1) < self.loop.first:
                before.append(node)
            elif not self._is_inside(node.output):
                behind.append(self._with_stack(node))
        names = [*(name for node in behind for name in names_read(node)), *(value.name for value in self.graph.output)]
        stacks = {name for node in self.after for name in node.output}
        for name in dict.fromkeys(names):
            if name not in stacks and self._is_inside([name]):
                made = self._value(*self.loop.results[self.view.named(name)], name)
                if made != name:
                    self._append("Identity", [made], name)
        self._replace([*before, self._loop(), *self.after, *behind])

    def _is_inside(self, names: Iterable[str]) -> bool:
        """True if the loop's own steps make all these values. Its first step may read others, made earlier."""
        known = [self.view.named(name) for name in names if name]
        return all(name in self.loop.results and self.steps.step(name) >= self.loop.first for name in known)

    def _axes_of_start(self, name: str) -> list[int]:
        """Axes of size 1 that an Unsqueeze adds to the first value of a state."""
        node = self.view.makers.get(self.loop.starts[name])
        return self.view.axes(node) if node is not None and node.op_type == "Unsqueeze" else []

    # -- values that are read outside of the Loop -----------------------------------------------------------------

    def _with_stack(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node. A Concat of all steps reads the array of all steps instead."""
        known = self.loop.results
        found = {i: known[name] for i, name in enumerate(self.view.inputs(node)) if name in known}
        steps, order = list(range(self.loop.first, self.steps.count)), [step for _, step in found.values()]
        if node.op_type != "Concat" or order not in (steps, steps[::-1]) or len({one for one, _ in found.values()}) > 1:
            return node
        places, axis = list(found), unrolled.attribute_of(node, "axis", "int")
        base, axes = self._without_axes(found[places[0]][0])
        rank = self.view.rank(self._name(base))
        if axes != [axis] or (axis and rank is None) or places[-1] - places[0] >= len(places):
            return node
        name = self._all_steps(base)
        if order != steps:
            name = self._append("Slice", [name, *map(self._constant, ([-1], [-FAR], [0], [-1]))])
        if axis:
            name = self._append("Transpose", [name], perm=[*range(1, axis + 1), 0, *range(axis + 1, (rank or 0) + 1)])
        if len(places) == len(node.input):
            return onnx.helper.make_node("Identity", [name], node.output, node.name)
        inputs = [*node.input[: places[0]], name, *node.input[places[-1] + 1 :]]
        return onnx.helper.make_node("Concat", inputs, node.output, node.name, axis=axis)

    def _without_axes(self, result: unrolled.Result) -> tuple[unrolled.Result, list[int]]:
        """The result that gets more axes of size 1 in another result, and these axes."""
        node = self.loop.copies[result[0]][0]
        source = self.view.named(node.input[0])
        if node.op_type == "Unsqueeze" and self.loop.is_own(source):
            return self.loop.results[source][0], self.view.axes(node)
        return result, self.axes.get(result, [])

    def _value(self, result: unrolled.Result, step: int, name: str) -> str:
        """The name of a result in one step. A new value gets the given name."""
        if (result, step) not in self.made:
            self.made[result, step] = self._new_value(result, step, name)
        return self.made[result, step]

    def _new_value(self, result: unrolled.Result, step: int, name: str) -> str:
        base, axes = self._without_axes(result)
        if not axes:
            return self._bare(result, step, name)
        bare = self._bare(result, step, "") if base == result else self._value(base, step, "")
        return self._appended(self._with_axes("Unsqueeze", bare, axes, name or self._fresh(f"{bare}/unsqueeze")))

    def _bare(self, result: unrolled.Result, step: int, name: str) -> str:
        """A result of one step, without the axes that the carried value does not have."""
        if result in self.axes and step == self.steps.count - 1:
            return self.last.setdefault(result, name or self._fresh(f"{self._name(result)}/last"))
        place = self._constant(step - self.loop.first)
        return self._append("Gather", [self._all_steps(result), place], name, axis=0)

    def _all_steps(self, result: unrolled.Result) -> str:
        return self.every.setdefault(result, self.every.get(result) or self._fresh(f"{self._name(result)}/all"))

    # -- the Loop -------------------------------------------------------------------------------------------------

    def _loop(self) -> onnx.NodeProto:
        """The Loop, with the nodes of one step as its body."""
        needed = self._needed()
        states = {name: result for name, result in self.loop.states.items() if result[0] in needed}
        trip, go, goes_on = map(self._fresh, ("trip", "go", "goes_on"))
        inner = {name: self._fresh(f"{name}/before") for name in states}
        ports, nodes = list(inner.values()), [onnx.helper.make_node("Identity", [go], [goes_on])]
        carried = {} if self._is_bare(needed) else self.axes
        for name, result in states.items():
            if axes := carried.get(result, []):
                nodes.append(self._with_axes("Unsqueeze", inner[name], axes, self._fresh(f"{name}/unsqueezed")))
                inner[name] = nodes[-1].output[0]
        places = dict.fromkeys(name for key in needed for name in self.loop.inputs(key) if self._is_place(name))
        nodes += self._places(list(places), trip, inner) if places else []
        nodes += [self._copy(self.loop.copies[key][0], inner) for key in self.loop.copies if key in needed]
        for result in dict.fromkeys((*states.values(), *self.every)):
            if axes := carried.get(result, []):
                name = inner[self._name(result)]
                nodes.append(self._with_axes("Squeeze", name, axes, self._fresh(f"{name}/squeezed")))
                inner[self._name(result)] = nodes[-1].output[0]
        results = [inner[self._name(result)] for result in (*states.values(), *self.every)]
        body = onnx.GraphProto(name="step", node=nodes)
        for side, names in ((body.input, [trip, go, *ports]), (body.output, [goes_on, *results])):
            side.extend(onnx.helper.make_tensor_value_info(name, 0, None) for name in names)
        count = self.steps.count - self.loop.first
        starts = [self.view.named(self.loop.starts[name]) for name in states]
        starts = [self._start(start, self.axes[result]) for start, result in zip(starts, states.values(), strict=True)]
        lasts = [self.last.get(result, "") for result in states.values()]
        called = f"{count} steps of {next(iter(states))}"
        inputs, outputs = [self._constant(count), "", *starts], [*lasts, *self.every.values()]
        return onnx.helper.make_node("Loop", inputs, outputs, called, body=body)

    def _start(self, name: str, axes: list[int]) -> str:
        """The first value of a state, without the axes that the carried value does not have."""
        return self.view.named(self.view.makers[name].input[0]) if axes else name

    def _needed(self) -> set[unrolled.Copies]:
        """The copies that are needed for the values that are read outside of the Loop."""
        needed, todo = set[unrolled.Copies](), [key for key, _ in (*self.every, *self.last)]
        while todo:
            key = todo.pop()
            if key not in needed:
                needed.add(key)
                names, states = self.loop.inputs(key), self.loop.states
                todo += [self.loop.results[name][0][0] for name in names if self.loop.is_own(name)]
                todo += [states[name][0] for name in names if name in states]
        return needed

    def _is_bare(self, needed: set[unrolled.Copies]) -> bool:
        """True if a step can work without the extra axes of states, because they only repeat operands."""
        wide = {name for name, result in self.loop.states.items() if self.axes[result] == [0]}
        for key, nodes in self.loop.copies.items():
            inputs, rank = self.loop.inputs(key), self.view.rank(nodes[0].output[0]) or 0
            others = [self.view.rank(name) for name in inputs if name not in wide]
            if key not in needed or len(others) == len(inputs):
                continue
            if nodes[0].op_type not in REPEATING or any(other is None or other >= rank for other in others):
                return False
            if nodes[0].op_type == "MatMul" and (inputs[0] not in wide or others != [2]):
                return False
            wide.update(nodes[0].output)
        results = (*self.loop.states.values(), *self.every)
        return all((self._name(result) in wide) == (self.axes.get(result, []) != []) for result in results)

    def _is_place(self, name: str) -> bool:
        return self.steps.step(name) == self.loop.first + 1 and self.steps.place(name) is not None

    def _places(self, names: Sequence[str], trip: str, inner: dict[str, str]) -> Iterator[onnx.NodeProto]:
        """Nodes that read arrays at the place of a trip. `inner` gets the names of their results."""
        first, place = self._constant(self.steps.at(self.loop.first)), self._fresh("place")
        yield onnx.helper.make_node(
            *(("Sub", [first, trip]) if self.steps.reverse else ("Add", [trip, first])), [place]
        )
        for name in names:
            read = self.view.places[name]
            step = inner[name] = self._fresh(f"{name}/step")
            yield onnx.helper.make_node("Gather", [read.data, place], [step], axis=read.axis)
            if read.keeps_axis:
                inner[name] = self._fresh(f"{name}/kept")
                yield self._with_axes("Unsqueeze", step, [read.axis], inner[name])

    def _copy(self, node: onnx.NodeProto, inner: dict[str, str]) -> onnx.NodeProto:
        """A copy of a node for the body."""
        inner.update((name, self._fresh(f"{name}/step")) for name in node.output if name)
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [inner.get(name, name) for name in self.view.inputs(node)]
        copy.output[:] = [inner.get(name, name) for name in node.output]
        return copy

    # -- parts of the graph ---------------------------------------------------------------------------------------

    def _name(self, result: unrolled.Result) -> str:
        """The name of a result in the loop's second step."""
        key, i = result
        return str(self.loop.copies[key][0].output[i])

    def _fresh(self, name: str) -> str:
        return free_name(name, self.taken)

    def _constant(self, value: int | list[int]) -> str:
        name = self._fresh("constant")
        self.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    def _with_axes(self, op: str, name: str, axes: list[int], result: str) -> onnx.NodeProto:
        if self.opset < 13:
            return onnx.helper.make_node(op, [name], [result], axes=axes)
        return onnx.helper.make_node(op, [name, self._constant(axes)], [result])

    def _append(self, op: str, inputs: list[str], name: str = "", **attributes: Any) -> str:
        """Adds a node after the Loop. Returns the name of its result."""
        name = name or self._fresh(f"{inputs[0]}/{op.lower()}")
        return self._appended(onnx.helper.make_node(op, inputs, [name], **attributes))

    def _appended(self, node: onnx.NodeProto) -> str:
        self.after.append(node)
        return str(node.output[0])

    def _replace(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Gives the graph these nodes, without those that only prepare values which are no longer read."""
        may_go = {
            unrolled.first_result(node)
            for node in nodes
            if node.op_type in (*READERS, *CUTS) or self.view.named(unrolled.first_result(node)) in self.loop.results
        }
        same = {name for name in self.view.constants if self.view.named(name) != name}
        unrolled.replace_nodes(self.graph, nodes, may_go, same)
