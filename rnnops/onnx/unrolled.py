"""Unrolled loops of a graph: finds nodes that are copies of one step. Also joins weights before use.

**Steps.** An array that is read at each of its places 0, 1, ..., T-1 along an axis may be a sequence. A node's step is
the largest place that it depends on. It is one more if the last step lacks this node, as it lacks the product for a
next state. In a loop that runs backwards, places are counted from the end.

**Copies.** Nodes of two steps are copies if they have one op and equal attributes, and their inputs correspond. Inputs
correspond if they are the same constant, the place of the own step, copies of the own step, or copies of the step
before. The last kind are states. In step 0 first values stand in place of states. If step 0 differs otherwise, the loop
begins at step 1.

Limits: loops of the main graph that have states and four steps or more. Nodes with inner graphs, and random nodes,
stay.

**Weights that a graph cuts and joins before use** are replaced by the joined weights. PyTorch's exporter brings the
gates of its layers into ONNX's order by a Slice for each gate and a Concat. Each call, and its gradient, would do that
again. If every number of such weights goes to exactly one place, the result becomes the parameter: the same numbers are
trained, in another order.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import onnx

from rnnops.errors import OnnxError
from rnnops.onnx.node import FAR, RANK, attributes_of, constant_value, graphs_of, names_read, op_name, read_tensor
from rnnops.onnx.open_sizes import Dims
from rnnops.onnx.read_graph import LARGE_CONSTANT
from rnnops.types import Array

LEAST = 4  # fewest steps of a loop
RANDOM = ("Bernoulli", "Dropout", "Multinomial")  # and all ops whose names begin with "Random"
FOLDED = "pkg.onnxscript.optimizer.folded_from"  # metadata with the name from which an initializer was computed
# a group of nodes, one for each step: a number for what they compute, and a count for equal ones in one step
Copies: TypeAlias = tuple[int, int]
Result: TypeAlias = tuple[Copies, int]  # such a group, and which of its nodes' results


def sources_of(graph: onnx.GraphProto) -> dict[str, str]:
    """Initializers that PyTorch's exporter computed (a transposed weight for each step) -> the source it names."""
    marks = ((value.name, entry) for value in graph.value_info for entry in value.metadata_props)
    return {name: entry.value for name, entry in marks if entry.key == FOLDED}


def first_result(node: onnx.NodeProto) -> str:
    """The name of a node's first result. Empty if it has none."""
    return next(filter(None, node.output), "")


def replace_nodes(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], may_go: Collection[str], weights: Collection[str]
) -> None:
    """Replaces the nodes of a graph. Nodes and weights that may go, and that nothing reads, are left out.

    Args:
        may_go: first results of nodes that may go; weights: initializers that may go.
    """
    kept, read = list[onnx.NodeProto](), {value.name for value in graph.output}
    for node in reversed(nodes):
        if first_result(node) not in may_go or not read.isdisjoint(node.output):
            kept.append(node)
            read.update(names_read(node))
    new, gone = onnx.GraphProto(node=kept[::-1]), {name for name in weights if name not in read}
    del graph.node[:]
    graph.node.extend(new.node)
    for values in (graph.initializer, graph.input):
        for i in reversed(range(len(values))):
            if values[i].name in gone:
                del values[i]


def attribute_of(node: onnx.NodeProto, name: str, kind: str, default: Any = None) -> Any:
    """The value of an attribute. The default if there is none of this kind."""
    found, value = attributes_of(node).get(name, (kind, default))
    return value if found == kind else default


def form_of(node: onnx.NodeProto) -> tuple[object, ...]:
    """The op and attributes of a node. Nodes of one form differ only in their inputs."""
    attributes = sorted(one.SerializeToString(deterministic=True) for one in node.attribute)
    return op_name(node), tuple(map(bool, node.output)), tuple(attributes)


def is_plain(node: onnx.NodeProto) -> bool:
    """True if equal inputs give equal results, and the node has no inner graphs."""
    return not op_name(node).startswith((*RANDOM, "Random")) and not graphs_of(node)


@dataclass(frozen=True)
class StepPlace:
    """A place along an axis of an array, as a value with or without that axis."""

    data: str
    axis: int
    number: int
    keeps_axis: bool


class GraphView:
    """A graph in which values that are certainly equal have one name.

    Args:
        dims: value -> its sizes, as far as they are known.
        sources: as from `sources_of`. Equal initializers with one source count as one.

    Attributes:
        nodes: nodes that do not repeat an earlier node; makers: value -> its node; places: value -> its place in an
            array.
    """

    def __init__(
        self, graph: onnx.GraphProto, dims: Mapping[str, Dims | None], sources: Mapping[str, str] | None = None
    ) -> None:
        self.graph, self.dims, self.sources = graph, dims, sources or {}
        self.same: dict[str, str] = {}
        self.makers: dict[str, onnx.NodeProto] = {}
        self.constants: dict[str, Array] = {}
        self.computed: dict[tuple[object, ...], onnx.NodeProto] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.places: dict[str, StepPlace] = {}
        self._add_constants()
        for node in graph.node:
            self._add(node)

    def named(self, name: str) -> str:
        """The common name of equal values."""
        return self.same.get(name, name)

    def inputs(self, node: onnx.NodeProto) -> tuple[str, ...]:
        return tuple(map(self.named, node.input))

    def read(self, node: onnx.NodeProto) -> Iterator[str]:
        """The values that a node and its inner graphs read."""
        return map(self.named, names_read(node))

    def numbers(self, name: str) -> list[int]:
        """The integers of a constant. Empty for other values."""
        array = self.constants.get(name)
        return [] if array is None or array.dtype.kind != "i" or array.ndim > 1 else array.reshape(-1).tolist()

    def rank(self, name: str) -> int | None:
        """The number of axes of a value, if it is known."""
        dims = self.dims.get(name)
        return None if dims is None else len(dims)

    def axes(self, node: onnx.NodeProto) -> list[int]:
        """Axes of a Squeeze or Unsqueeze. Empty if some are counted from the end."""
        found = self.numbers(node.input[1]) if len(node.input) > 1 else list(attribute_of(node, "axes", "ints", ()))
        return found if min(found, default=0) >= 0 else []

    def cuts(self, node: onnx.NodeProto) -> list[list[int]]:
        """Starts, ends, axes and steps of a Slice, as far as they are constants."""
        return [self.numbers(name) for name in (*node.input[1:], *[""] * (5 - len(node.input)))]

    def _add_constants(self) -> None:
        """Notes constants, and which of them are equal. Parameters may be trained, so each stays separate."""
        equal = dict[tuple[object, ...], str]()
        for name, array, least in self._arrays():
            self.constants[name] = array
            if array.dtype.kind != "f" or array.ndim == 0 or array.size < least or name in self.sources:
                numbers = hashlib.sha256(array.tobytes()).digest()
                key = (array.dtype.str, array.shape, numbers, self.sources.get(name))
                self.same[name] = equal.setdefault(key, name)

    def _arrays(self) -> Iterator[tuple[str, Array, int]]:
        """The constants of a graph: name, array, number of elements from which on it is a parameter."""
        for tensor in self.graph.initializer:
            with suppress(OnnxError):  # reading the file raises the error
                yield tensor.name, read_tensor(tensor, tensor.name), 0
        for node in self.graph.node:
            if node.op_type == "Constant" and node.output:
                with suppress(OnnxError):
                    yield node.output[0], constant_value(attributes_of(node), "float32"), LARGE_CONSTANT

    def _add(self, node: onnx.NodeProto) -> None:
        """Notes a node, unless an earlier one computes the same."""
        self.makers.update((name, node) for name in node.output)
        if node.op_type == "Constant" and first_result(node) in self.constants:
            return None
        first = self.computed.setdefault((*form_of(node), self.inputs(node)), node) if is_plain(node) else node
        if first is not node:
            return self.same.update(zip(node.output, first.output, strict=True))
        self.nodes.append(node)
        places = ((name, self._place(node, i)) for i, name in enumerate(node.output))
        self.places.update((name, place) for name, place in places if place is not None)
        return None

    def _place(self, node: onnx.NodeProto, i: int) -> StepPlace | None:
        """The place that a result is, if it is one. In an array that is turned around: a place of the original."""
        place = self._own_place(node, i)
        turned = None if place is None else self.makers.get(place.data)
        if place is None or turned is None or turned.op_type != "Slice" or len(turned.input) != 5:
            return place
        source, (start, end, axes, step) = self.named(turned.input[0]), self.cuts(turned)
        (size,) = (self.dims.get(source) or ())[place.axis : place.axis + 1] or (None,)
        is_whole = [*start, *axes, *step] == [-1, place.axis, -1] and end != [] and end[0] <= -FAR
        return (
            replace(place, data=source, number=size - 1 - place.number) if is_whole and isinstance(size, int) else place
        )

    def _own_place(self, node: onnx.NodeProto, i: int) -> StepPlace | None:
        """The place of an array that a node reads."""
        data, axis = self.named(node.input[0]) if node.input else "", attribute_of(node, "axis", "int", 0)
        before, found = self.places.get(data), self.numbers(node.input[1]) if len(node.input) > 1 else []
        if node.op_type == "Squeeze" and before is not None and before.keeps_axis:
            return replace(before, keeps_axis=False) if self.axes(node) == [before.axis] else None
        if node.op_type == "Gather" and len(found) == 1:
            return StepPlace(data, axis, found[0], self.constants[node.input[1]].ndim > 0)
        if node.op_type == "Slice" and len(found) == 1:
            start, end, along, step = self.cuts(node)
            is_one = len(along) == 1 and end == [start[0] + 1] and step in ([], [1])
            return StepPlace(data, along[0], start[0], True) if is_one else None
        if node.op_type == "Split" and self._parts(node, data, axis) == [1] * len(node.output):
            return StepPlace(data, axis, i, True)
        split = self.makers.get(data) if node.op_type == "SequenceAt" and found else None
        if split is None or split.op_type != "SplitToSequence" or not self._is_in_ones(split):
            return None
        keeps_axis = attribute_of(split, "keepdims", "int", 1) != 0
        return StepPlace(self.named(split.input[0]), attribute_of(split, "axis", "int", 0), found[0], keeps_axis)

    def _parts(self, split: onnx.NodeProto, data: str, axis: int) -> list[int]:
        """Number of places in each part of a Split, along its axis. Empty if unknown."""
        if len(split.input) > 1 and split.input[1]:
            return self.numbers(split.input[1])
        size, given = (self.dims.get(data) or ())[axis:][:1], attribute_of(split, "split", "ints", ())
        return list(given) or [1] * (len(split.output) if size == (len(split.output),) else 0)

    def _is_in_ones(self, split: onnx.NodeProto) -> bool:
        """True if each part of a SplitToSequence has one place."""
        size = self.constants.get(split.input[1]) if len(split.input) > 1 else np.ones(())
        return size is not None and size.ndim == 0 and size == 1


def loops_of(view: GraphView) -> Iterator[UnrolledLoop]:
    """The loops of a graph. Some may be parts of others."""
    numbers = defaultdict[tuple[str, int], set[int]](set)
    for place in view.places.values():
        numbers[place.data, place.axis].add(place.number)
    counts = defaultdict[int, set[tuple[str, int]]](set)
    for axis, found in numbers.items():
        if axis[1] >= 0 and len(found) >= LEAST and found == set(range(len(found))):
            counts[len(found)].add(axis)
    for count in sorted(counts, reverse=True):
        for reverse in (False, True):
            steps = StepView(view, counts[count], count, reverse)
            for first in range(min(2, count - LEAST + 1)):
                seen = set[Copies]()
                while (loop := UnrolledLoop(steps, first)).has_states(seen):
                    seen.update(loop.copies)
                    if loop.begins():
                        yield loop


class StepView:
    """The nodes of a graph, by steps.

    Args:
        axes: pairs (array, axis) of possible sequences; count: number of their places.
    """

    def __init__(self, view: GraphView, axes: set[tuple[str, int]], count: int, reverse: bool) -> None:
        self.view, self.axes, self.count, self.reverse = view, axes, count, reverse
        self.of: dict[str, int] = {}
        self.tokens: dict[str, object] = {}
        self.values: dict[tuple[object, int], str] = {}  # (role in its step, step) -> name of a place
        self.tables: list[dict[Copies, onnx.NodeProto]] = []
        self._later: set[int] = set()
        self._numbers: dict[object, int] = {}
        self._take_steps()
        self._find_later()
        self._take_steps()

    def _find_later(self) -> None:
        """Notes the nodes that the last step lacks. They belong to the next step."""
        _, *middle, last = self.tables
        found = [key for key in middle[0] if key not in last and all(key in table for table in middle)]
        self._later = {id(table[key]) for table in middle for key in found}
        todo = [(middle[0][key], middle[1][key]) for key in middle[0].keys() & middle[1].keys()]
        # such nodes of the first step have another form, but nodes of later steps are found through their readers
        while todo:
            pair = todo.pop()
            for names in zip(*map(self.view.inputs, pair), strict=True):
                one, other = map(self.view.makers.get, names)
                if one is not None and other is not None and id(other) in self._later and id(one) not in self._later:
                    self._later.add(id(one))
                    todo.append((one, other))

    def _take_steps(self) -> None:
        """Gives each node its step."""
        self.tables, before, self.of, self.tokens = [{} for _ in range(self.count)], self.of, {}, {}
        for node in self.view.nodes:
            self._add(node, before)

    def place(self, name: str) -> StepPlace | None:
        """The place of its own step that a value is. None for other values."""
        place = self.view.places.get(name)
        if place is None or (place.data, place.axis) not in self.axes or self.of.get(place.data, -1) >= 0:
            return None
        return place

    def at(self, number: int) -> int:
        """The step of a place, or the place of a step."""
        return self.count - 1 - number if self.reverse else number

    def step(self, name: str) -> int:
        """The step of a value. It is -1 for a value from before the loop."""
        return self.of.get(name, -1)

    def _add(self, node: onnx.NodeProto, before: Mapping[str, int]) -> None:
        step = max(map(self.step, self.view.read(node)), default=-1)
        if id(node) in self._later:
            step = max(step, before[first_result(node)] + 1)
        for name in filter(None, node.output):
            place = self.place(name)
            self.of[name] = step if place is None else self.at(place.number)
            if place is not None:
                self.tokens[name] = (place.data, place.axis, place.keeps_axis)
                self.values[self.tokens[name], self.of[name]] = name
        if step < 0 or not is_plain(node) or any(name in self.tokens for name in node.output):
            return
        key = (form_of(node), *(self._token(name, step) for name in self.view.inputs(node)))
        number, table = self._numbers.setdefault(key, len(self._numbers)), self.tables[step]
        copies = next((number, i) for i in range(len(table) + 1) if (number, i) not in table)
        table[copies] = node
        self.tokens.update((name, (copies, i)) for i, name in enumerate(node.output) if name)

    def _token(self, name: str, step: int) -> object:
        """The role that an input of a node has in its step."""
        own = self.step(name)
        return ("same", name) if own < 0 else self.tokens.get(name, ("alone", name)) if own == step else "before"


class UnrolledLoop:
    """The copies that form a loop.

    Args:
        first: the step with which the loop begins.

    Attributes:
        copies: groups of nodes, one for each step after the first; own: the node of the first step.
        results: value -> the group that makes it, and its step.
        states: value of the first step that the second reads -> the result that it is in each step; starts: the same
            value -> the first value of the state.
    """

    def __init__(self, steps: StepView, first: int) -> None:
        self.steps, self.view, self.first = steps, steps.view, first
        self.copies: dict[Copies, list[onnx.NodeProto]] = {}
        self.own: dict[Copies, onnx.NodeProto] = {}
        self.results: dict[str, tuple[Result, int]] = {}
        self.states: dict[str, Result] = {}
        self.starts: dict[str, str] = {}

    def has_states(self, seen: set[Copies]) -> bool:
        """True if there are copies that hand states on, apart from the copies in `seen`."""
        tables = self.steps.tables[self.first + 1 :]
        common = [key for key in tables[0] if key not in seen and all(key in table for table in tables)]
        self.copies = {key: [table[key] for table in tables] for key in common}
        self._keep_those_that_fit()
        if self.states:
            self._keep_one_part()
        return bool(self.states)

    def begins(self) -> bool:
        """True if the first step makes states of the same sizes in the same way. Completes the copies."""
        if not self._find_states():
            return False
        for key in [key for key in self.copies if key not in self.own]:
            inputs = tuple(map(self._in_first, self.inputs(key)))
            node = self.view.computed.get((*form_of(self.copies[key][0]), inputs))
            if node is None:
                del self.copies[key]
            else:
                self.own[key] = node
        self._keep_those_that_fit()
        sizes = ((self.view.dims.get(self.starts[name]), self.view.dims.get(name)) for name in self.states)
        return bool(self.states) and all(one is None or other is None or fit(one, other) for one, other in sizes)

    def inputs(self, key: Copies) -> tuple[str, ...]:
        """The values that a node of the second step reads."""
        return self.view.inputs(self.copies[key][0])

    def is_own(self, name: str) -> bool:
        """True if the second step makes a value."""
        return name in self.results and self.steps.step(name) > self.first

    def _keep_those_that_fit(self) -> None:
        """Drops nodes that are not copies, until all are."""
        wrong: list[Copies] | None = None
        while wrong is None or wrong:
            self.states, self.results = {}, {}
            for key, nodes in self.copies.items():
                before = [self.own[key]] if key in self.own else []
                for step, node in enumerate((*before, *nodes), self.first + 1 - len(before)):
                    self.results.update((name, ((key, i), step)) for i, name in enumerate(node.output) if name)
            wrong = [key for key, nodes in self.copies.items() if not self._are_copies(nodes)]
            for key in wrong:
                del self.copies[key]

    def _keep_one_part(self) -> None:
        """Keeps the first state and all copies that are linked to it. Other loops with as many steps come later."""
        links = defaultdict[Copies, set[Copies]](set)
        for key in self.copies:
            for name in self.inputs(key):
                other = self.states.get(name) or (self.results[name][0] if self.is_own(name) else (key, 0))
                links[key].add(other[0])
                links[other[0]].add(key)
        part, todo = set[Copies](), [next(iter(self.states.values()))[0]]
        while todo:
            if (key := todo.pop()) not in part:
                part.add(key)
                todo += links[key]
        self.copies = {key: nodes for key, nodes in self.copies.items() if key in part}
        self._keep_those_that_fit()

    def _are_copies(self, nodes: Sequence[onnx.NodeProto]) -> bool:
        return all(map(self._is_same, zip(*map(self.view.inputs, nodes), strict=True)))

    def _is_same(self, names: Sequence[str]) -> bool:
        """True if an input means the same in all copies. It is known to look the same from each step."""
        step = self.steps.step(names[0])
        if step < 0 or (step > self.first and self.steps.place(names[0]) is not None):
            return True
        ago = self.first + 1 - step
        result = self.results.get(names[ago], (None, 0))[0] if ago < 2 else None
        if result is None:
            return False
        if ago and self.states.setdefault(names[0], result) != result:  # two states that are equal in the first step
            return False
        return all(self.results.get(name) == (result, step + i) for i, name in enumerate(names) if i >= ago)

    def _find_states(self) -> bool:
        """Finds the nodes of the first step that make states, and first values. False if they are not copies."""
        todo = list(self.states.items())
        while todo:
            name, (key, i) = todo.pop()
            node, copy = self.view.makers.get(name), self.copies[key][0]
            if node is None or self.steps.step(name) > self.first or form_of(node) != form_of(copy):
                return False
            if node.output[i] != name or self.own.get(key, node) is not node or len(node.input) != len(copy.input):
                return False
            pairs = list(zip(self.view.inputs(node), self.inputs(key), strict=True))
            if not all(self._may_be_first(one, other) for one, other in pairs):
                return False
            todo += [
                (one, self.results[other][0]) for one, other in pairs if self.is_own(other) and key not in self.own
            ]
            self.own[key] = node
        return True

    def _may_be_first(self, one: str, other: str) -> bool:
        """True if `one` may have the role in the first step that `other` has in the second."""
        if other in self.states:
            return self.steps.step(one) < self.first and self.starts.setdefault(other, one) == one
        return self.is_own(other) or one == self._in_first(other)

    def _in_first(self, name: str) -> str | None:
        """The value of the first step that corresponds to a value of the second, if it is known."""
        if self.steps.step(name) < 0:
            return name
        if self.is_own(name):
            (key, i), _ = self.results[name]
            return self.own[key].output[i] if key in self.own else None
        return self.starts.get(name) or self.steps.values.get((self.steps.tokens.get(name), self.first))


def fit(one: Dims, other: Dims) -> bool:
    """True if two shapes are equal as far as they are known. If one size is 1, the other must not be open."""
    pairs = list(zip(one, other, strict=False))
    differ = [(a, b) for a, b in pairs if a != b]
    return len(one) == len(other) and not any(1 in pair or all(isinstance(a, int) for a in pair) for pair in differ)


FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
MOVES = ("Concat", "Slice", "Squeeze", "Unsqueeze")


def join_weights(graph: onnx.GraphProto) -> None:
    """Replaces Concats of parts of weights by weights, if each number of the weights goes to one place."""
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
    """For each element of a result, its place among all weights. None if elements are not only moved."""
    names = node.input if node.op_type == "Concat" else node.input[:1]
    arrays = [places[name] for name in names if name in places]
    if op_name(node) not in MOVES or not arrays or len(arrays) != len(names):
        return None
    starts, ends, axes, steps = view.cuts(node) if node.op_type == "Slice" else ([], [], view.axes(node), [])
    with suppress(ValueError, TypeError, IndexError):  # a node that cannot run stays, and its rule raises the error
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
    """The results of Concats that hold all numbers that are read of their weights, each once."""
    found = {name: set(owners[array.reshape(-1)].tolist()) for name, array in results.items()}
    counts = np.zeros(owners.size, int)
    for array in results.values():
        np.add.at(counts, array.reshape(-1), 1)
    kept = set(owners[counts > 1].tolist())
    kept.update(*(found[name] for name in found if name not in moved or moved[name].op_type != "Concat"))
    while more := set().union(*(own for own in found.values() if own & kept)) - kept:
        kept |= more
    return [name for name, own in found.items() if own and not own & kept]
