"""Long forms of exporters as they were meant: unrolled loops as Loop nodes, weights that nodes join as weights.

**Unrolled loops.** PyTorch's exporters write a Python loop over time as a copy of its nodes for each step. Copies that
hand states on are the body of a Loop, whose results are read as all steps or as one of them. Other nodes stay as they
are.

**Weights that a graph cuts and joins before use**, as the weights that come out. PyTorch's exporter puts the gates of
its layers into ONNX's order by a Slice for each gate and a Concat. Each call, and its gradient, would do that again.
Where every number of such weights goes to one place, the parameter is the result: the same numbers are trained, in
another order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np

from rnnops.net.text import free_name
from rnnops.onnx.functions import graph_with_types, names_in
from rnnops.onnx.node import FAR, RANK, names_read, op_name, read_tensor
from rnnops.onnx.open_sizes import dims_of
from rnnops.onnx.package import onnx
from rnnops.onnx.unrolled import (
    LEAST,
    Copies,
    GraphView,
    Result,
    UnrolledLoop,
    attribute_of,
    first_result,
    loops_of,
    replace_nodes,
    sources_of,
)
from rnnops.types import Array

READERS = ("Gather", "Slice", "Split", "SequenceAt")
CUTS = ("Constant", "SplitToSequence", "Squeeze", "Unsqueeze")
REPEATING = ("Add", "Div", "Exp", "HardSigmoid", "LeakyRelu", "MatMul", "Mul", "Neg", "Relu", "Sigmoid", "Sub", "Tanh")


def with_loops(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """A copy of a model in which unrolled loops of the main graph are Loop nodes; None if there are none."""
    reads = Counter(name for node in model.graph.node if node.op_type in READERS for name in node.input[:1])
    parts = (len(node.output) for node in model.graph.node if node.op_type == "Split")
    made = Counter(name for node in model.graph.node for name in node.output if name)
    if (
        opset < 11 or max([*reads.values(), *parts], default=0) < LEAST or max(made.values(), default=0) > 1
    ):  # which is refused
        return None
    rolled, found, sources = deepcopy(model), False, sources_of(model.graph)
    del rolled.graph.value_info[:]  # sizes are inferred, not believed
    typed = graph_with_types(rolled)
    dims = {value.name: dims_of(value) for value in (*typed.input, *typed.value_info)}
    dims |= {tensor.name: tuple(tensor.dims) for tensor in typed.initializer}
    while (loop := next(loops_of(GraphView(rolled.graph, dims, sources)), None)) is not None:
        LoopWriter(loop, opset).write()
        found = True
    return rolled if found else None


class LoopWriter:
    """Puts a Loop in the place of the copies of its step.

    Attributes:
        axes: copies that are a state -> axes of size 1 that it is carried without.
        every: results, all steps of them being read around the Loop -> the name of the whole; last: states, their
            last value being read there -> its name.
        made: (result, step) -> its name after the Loop; after: nodes that make such values of what the Loop gives.
    """

    def __init__(self, loop: UnrolledLoop, opset: int) -> None:
        self.loop, self.view, self.steps, self.opset = loop, loop.view, loop.steps, opset
        self.graph, self.taken = self.view.graph, names_in(self.view.graph)
        self.axes = {result: self._axes_of_start(name) for name, result in loop.states.items()}
        self.every: dict[Result, str] = {}
        self.last: dict[Result, str] = {}
        self.made: dict[tuple[Result, int], str] = {}
        self.after: list[onnx.NodeProto] = []

    def write(self) -> None:
        """Change the graph."""
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
        """True if the loop makes values, which its first step may find made before."""
        known = [self.view.named(name) for name in names if name]
        return all(name in self.loop.results and self.steps.step(name) >= self.loop.first for name in known)

    def _axes_of_start(self, name: str) -> list[int]:
        """The axes of size 1 that the first value of a state is given."""
        node = self.view.makers.get(self.loop.starts[name])
        return self.view.axes(node) if node is not None and node.op_type == "Unsqueeze" else []

    # -- what is read around the Loop -----------------------------------------------------------------------------

    def _with_stack(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node; a Concat of all steps reads the value of all of them in place of these."""
        known = self.loop.results
        found = {i: known[name] for i, name in enumerate(self.view.inputs(node)) if name in known}
        steps, order = list(range(self.loop.first, self.steps.count)), [step for _, step in found.values()]
        if node.op_type != "Concat" or order not in (steps, steps[::-1]) or len({one for one, _ in found.values()}) > 1:
            return node
        places, axis = list(found), attribute_of(node, "axis", "int")
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

    def _without_axes(self, result: Result) -> tuple[Result, list[int]]:
        """The result that another one is with axes of size 1, and these."""
        node = self.loop.copies[result[0]][0]
        source = self.view.named(node.input[0])
        if node.op_type == "Unsqueeze" and self.loop.is_own(source):
            return self.loop.results[source][0], self.view.axes(node)
        return result, self.axes.get(result, [])

    def _value(self, result: Result, step: int, name: str) -> str:
        """The name of a result of one step; a new value gets the given one."""
        if (result, step) not in self.made:
            self.made[result, step] = self._new_value(result, step, name)
        return self.made[result, step]

    def _new_value(self, result: Result, step: int, name: str) -> str:
        base, axes = self._without_axes(result)
        if not axes:
            return self._bare(result, step, name)
        bare = self._bare(result, step, "") if base == result else self._value(base, step, "")
        return self._appended(self._with_axes("Unsqueeze", bare, axes, name or self._fresh(f"{bare}/unsqueeze")))

    def _bare(self, result: Result, step: int, name: str) -> str:
        """A result of one step, without the axes that it is carried without."""
        if result in self.axes and step == self.steps.count - 1:
            return self.last.setdefault(result, name or self._fresh(f"{self._name(result)}/last"))
        place = self._constant(step - self.loop.first)
        return self._append("Gather", [self._all_steps(result), place], name, axis=0)

    def _all_steps(self, result: Result) -> str:
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
        """The first value of a state, without the axes that it is carried without."""
        return self.view.named(self.view.makers[name].input[0]) if axes else name

    def _needed(self) -> set[Copies]:
        """The copies that something around the Loop follows from."""
        needed, todo = set[Copies](), [key for key, _ in (*self.every, *self.last)]
        while todo:
            key = todo.pop()
            if key not in needed:
                needed.add(key)
                names, states = self.loop.inputs(key), self.loop.states
                todo += [self.loop.results[name][0][0] for name in names if self.loop.is_own(name)]
                todo += [states[name][0] for name in names if name in states]
        return needed

    def _is_bare(self, needed: set[Copies]) -> bool:
        """True if a step can do without the axes that states are carried without, as they only repeat operands."""
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
        """Nodes that read arrays at the place of a trip; their results become known as inner."""
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
        """A node of the body."""
        inner.update((name, self._fresh(f"{name}/step")) for name in node.output if name)
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [inner.get(name, name) for name in self.view.inputs(node)]
        copy.output[:] = [inner.get(name, name) for name in node.output]
        return copy

    # -- parts of the graph ---------------------------------------------------------------------------------------

    def _name(self, result: Result) -> str:
        """The name of a result in the second step."""
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
        """Add a node after the Loop; the name of its result."""
        name = name or self._fresh(f"{inputs[0]}/{op.lower()}")
        return self._appended(onnx.helper.make_node(op, inputs, [name], **attributes))

    def _appended(self, node: onnx.NodeProto) -> str:
        self.after.append(node)
        return str(node.output[0])

    def _replace(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Give the graph these nodes, less those that only read what nothing uses any more."""
        may_go = {
            first_result(node)
            for node in nodes
            if node.op_type in (*READERS, *CUTS) or self.view.named(first_result(node)) in self.loop.results
        }
        same = {name for name in self.view.constants if self.view.named(name) != name}
        replace_nodes(self.graph, nodes, may_go, same)


FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
MOVES = ("Concat", "Slice", "Squeeze", "Unsqueeze")


def join_weights(graph: onnx.GraphProto) -> None:
    """Replace Concats of parts of weights by weights, where each number of these goes to one place."""
    floats = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in FLOATS and tensor.dims}
    cut = {name for node in graph.node if node.op_type == "Slice" for name in node.input[:1]}
    if cut.isdisjoint(floats):
        return
    read = {name for node in graph.node if node.op_type in MOVES for name in node.input}
    weights = [tensor for name, tensor in floats.items() if name in read]
    numbers = [read_tensor(tensor, f"initializer '{tensor.name}'") for tensor in weights]
    ends = np.cumsum([array.size for array in numbers])
    places = {
        tensor.name: np.arange(end - array.size, end).reshape(array.shape)
        for tensor, array, end in zip(weights, numbers, ends, strict=True)
    }
    moved, view = dict[str, onnx.NodeProto](), GraphView(graph, {})
    for node in graph.node:
        if (result := moved_places(view, node, places)) is not None:
            places[first_result(node)], moved[first_result(node)] = result, node
    others = [node for node in graph.node if first_result(node) not in moved]
    results = {value.name for value in graph.output} | {name for node in others for name in names_read(node)}
    owners = np.repeat(np.arange(len(weights)), [array.size for array in numbers])
    joined = joined_whole({name: places[name] for name in places if name in results}, moved, owners)
    flat = np.concatenate([array.reshape(-1) for array in numbers])
    for name in joined:
        dtype = numbers[owners[places[name].flat[0]]].dtype
        graph.initializer.append(onnx.numpy_helper.from_array(flat[places[name]].astype(dtype), name))
    nodes = [node for node in graph.node if first_result(node) not in joined]
    replace_nodes(graph, nodes, moved, {tensor.name for tensor in weights})


def moved_places(view: GraphView, node: onnx.NodeProto, places: dict[str, Array]) -> Array | None:
    """The places among all weights that the elements of a result come from, if they are only moved."""
    names = node.input if node.op_type == "Concat" else node.input[:1]
    arrays = [places[name] for name in names if name in places]
    if op_name(node) not in MOVES or not arrays or len(arrays) != len(names):
        return None
    starts, ends, axes, steps = view.cuts(node) if node.op_type == "Slice" else ([], [], view.axes(node), [])
    with suppress(ValueError, TypeError, IndexError):  # a node that cannot run stays, and its rule says why
        if node.op_type == "Concat":
            return np.concatenate(arrays, attribute_of(node, "axis", "int", RANK))
        if node.op_type != "Slice":
            return (
                (np.squeeze if node.op_type == "Squeeze" else np.expand_dims)(arrays[0], tuple(axes)) if axes else None
            )
        if starts and len(starts) == len(ends) == len(axes) and set(steps) <= {1}:
            cuts = dict(zip(axes, map(slice, starts, ends), strict=True))
            return arrays[0][tuple(cuts.get(axis, slice(None)) for axis in range(arrays[0].ndim))]
    return None


def joined_whole(results: dict[str, Array], moved: dict[str, onnx.NodeProto], owners: Array) -> list[str]:
    """The results of Concats that have all that is read of their weights, each number once."""
    found = {name: set(owners[array.reshape(-1)].tolist()) for name, array in results.items()}
    counts = np.zeros(owners.size, int)
    for array in results.values():
        np.add.at(counts, array.reshape(-1), 1)
    kept = set(owners[counts > 1].tolist())
    kept.update(*(found[name] for name in found if name not in moved or moved[name].op_type != "Concat"))
    while more := set().union(*(own for own in found.values() if own & kept)) - kept:
        kept |= more
    return [name for name, own in found.items() if own and not own & kept]
