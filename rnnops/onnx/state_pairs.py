"""States of a graph: which outputs go on as inputs, and how a net's states are opened.

**Which outputs of a graph are states that its next call takes as inputs, as far as the protobuf tells**. An input is a
state where it is what a recurrence begins with, an output where it is what the same recurrence ends with, both perhaps
laid out anew on the way (reshaped, cut, stacked). So are the last steps that a convolution has seen: an output that is
cut out of what begins with an input, as `concat([cache, x])[-4:]`. Other states are not found.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.text import free_name
from rnnops.onnx.node import MAX_DEPTH, graphs_of
from rnnops.onnx.outline import CELLS, LOOPS
from rnnops.onnx.package import GraphProto, NodeProto, OnnxError, ValueInfoProto
from rnnops.recurrent.recurrence import Recurrence


@dataclass(frozen=True)
class OpenNet:
    """A net whose states are inputs and outputs.

    Args:
        net: the net.
        links: output -> the state that it is at the next call.
        closed: the net as it was, which gives last states, too, and, by the names of states, what they begin with.
    """

    net: Net
    links: dict[str, str]
    closed: Net


def open_states(net: Net) -> OpenNet:
    """A net with the states of its recurrences open.

    rewrite: `h_all, _ = RecurrentNetwork(x, zeros, ...)`  -->  `h_all, last = RecurrentNetwork(x, state, ...)`, with
    `state` an input of the net and `last` an output.

    Raises OnnxError where there are none, one reads its sequence backwards, or one reads several steps of a state.
    """
    taken = {*net.input_names, *net.output_blobs, *(name for op in net.ops for name in op.outputs)}
    links: dict[str, str] = {}
    initial: dict[str, str] = {}
    pairs = [_opened(op, net.name, taken, links, initial) for op in net.ops]
    if not links:
        raise OnnxError("it has no recurrence, so that no step follows from the one before")
    specs = [*net.input_specs, *(Input(name, net.dtype_of(blob)) for name, blob in initial.items())]
    outputs = {**net.output_blobs, **{name: name for name in links}}
    opened = net.with_ops([op for _, op in pairs], outputs, specs).snapshot()
    closed = net.with_ops([op for op, _ in pairs], {**outputs, **initial}).snapshot()
    return OpenNet(opened, links, closed)


def _opened(op: Op, net: str, taken: set[str], links: dict[str, str], initial: dict[str, str]) -> tuple[Op, Op]:
    """An op that gives its last states, and the same that begins with inputs of the net; others as they are.

    Args:
        taken: names that new ones must differ from; links, initial: where names of states go.
    """
    if op.type != "RecurrentNetwork":
        return op, op
    recurrence = Recurrence(op, net)
    if recurrence.reverse:
        hint = "Nothing streams it step by step: call it for whole sequences, or for windows of them."
        problem = "it reads its sequence backwards, so that its first step needs the last"
        raise OnnxError(problem, op=op.label, hint=hint)
    inputs, outputs, first = list(op.inputs), list(op.outputs), len(recurrence.sequences)
    for place, state in enumerate(recurrence.states):
        if state.window != 1 or state.offset not in (None, 0):
            raise OnnxError("it reads several steps of a state", op=op.label, blob=state.input)
        name = free_name(f"{op.key}/{state.input}", taken)
        last = outputs[2 * place + 1] = outputs[2 * place + 1] or free_name(f"{op.key}/{state.output}_last", taken)
        initial[name], inputs[first + place], links[last] = inputs[first + place], name, name
    giving = replace(op, outputs=tuple(outputs))
    return giving, replace(giving, inputs=tuple(inputs))


LAYOUT = {"Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}
LAYOUT |= {"Unsqueeze"}
CUTS = ("Slice", "Split", "Gather")
INITIAL, LAST = 5, 1  # places of h and c: where a cell's inputs begin with them, and its results end with them
STATES = 2  # h, c
Slot: TypeAlias = tuple[int, int]  # a recurrence, and which of its states
Scope: TypeAlias = "ChainMap[str, frozenset[Any]]"
NOTHING: frozenset[Any] = frozenset()


def state_pairs(graph: GraphProto) -> dict[str, str]:
    """Output -> the input that it feeds at the next call."""
    walk = _StateWalk()
    scope: Scope = ChainMap({value.name: frozenset([value.name]) for value in graph.input})
    ends = walk.walk(graph, scope, ChainMap(), 0)
    pairs: dict[str, str] = {}
    given = {value.name: value for value in graph.input}
    for (
        name,
        slots,
    ) in walk.begins.items():  # branches of an If may begin with zeros instead, so that there are more ends
        holding = [(len(end), value) for value, end in zip(graph.output, ends, strict=True) if slots <= end]
        fewest = [value for count, value in holding if count == min(count for count, _ in holding)]
        fitting = [value.name for value in fewest if may_feed(value, given[name])]
        if len(fitting) == 1 and fitting[0] not in pairs:
            pairs[fitting[0]] = name
    return pairs | (window_pairs(graph, walk, pairs) if pairs or not walk.count else {})


def window_pairs(graph: GraphProto, walk: _StateWalk, pairs: Mapping[str, str]) -> dict[str, str]:
    """The same for windows, where the other inputs leave one that is fed."""
    given = {value.name: value for value in graph.input if value.name not in pairs.values()}
    valued = {tensor.name for tensor in graph.initializer}
    found: dict[str, list[str]] = {}
    for value in graph.output:
        cut = {name for name, is_cut in walk.windows.get(value.name, NOTHING) if is_cut and name in given}
        fitting = [name for name in cut if may_feed(value, given[name])]
        if len(fitting) == 1 and value.name not in pairs:
            found.setdefault(fitting[0], []).append(value.name)
    windows = {outputs[0]: name for name, outputs in found.items() if len(outputs) == 1}
    return windows if given.keys() - valued - set(windows.values()) else {}


def may_feed(output: ValueInfoProto, value: ValueInfoProto) -> bool:
    """True if an output may be fed to an input, by their sizes, as far as the file says them."""
    one, other = (each.type.tensor_type for each in (output, value))
    if not (one.HasField("shape") and other.HasField("shape")):
        return True
    sizes = [[dim.dim_value for dim in each.shape.dim] for each in (one, other)]
    return len(sizes[0]) == len(sizes[1]) and all(a == b or not (a and b) for a, b in zip(*sizes, strict=True))


@dataclass
class _StateWalk:
    """A walk over graphs.

    Args:
        begins: input of the main graph -> states that begin with it; count: of recurrences so far.
        windows: value of the main graph -> inputs that it begins with, and whether something was cut from it.
    """

    begins: dict[str, set[Slot]] = field(default_factory=dict)
    windows: dict[str, frozenset[tuple[str, bool]]] = field(default_factory=dict)
    count: int = 0

    def walk(self, graph: GraphProto, origins: Scope, ends: Scope, depth: int) -> list[frozenset[Slot]]:
        """The states that each output of a graph is the end of.

        Args:
            origins: value -> inputs of the main graph that it is a layout of; ends: value -> last states likewise.
        """
        if depth > MAX_DEPTH:
            raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
        for node in graph.node:
            if node.op_type in (*CELLS, *LOOPS):
                self.recurrence(node, origins, ends)
            elif node.op_type == "If":
                self.branches(node, origins, ends, depth)
            elif node.op_type in LAYOUT:
                for scope in (origins, ends):
                    made = NOTHING.union(*(scope.get(name, NOTHING) for name in node.input))
                    scope.update(dict.fromkeys(node.output, made) if made else {})
                if depth == 0:
                    self.window(node, origins)
        return [ends.get(value.name, NOTHING) for value in graph.output]

    def window(self, node: NodeProto, origins: Scope) -> None:
        """Note the inputs with which the result of a node may begin."""
        found = NOTHING.union(*(self.windows.get(name, NOTHING) for name in node.input))
        if node.op_type == "Concat" and len(node.input) > 1:
            found |= {(name, False) for name in origins.get(node.input[0], NOTHING)}
        if node.op_type in CUTS:
            found = frozenset((name, True) for name, _ in found)
        self.windows.update(dict.fromkeys(node.output, found))

    def branches(self, node: NodeProto, origins: Scope, ends: Scope, depth: int) -> None:
        """Results of an If come from either branch."""
        for branch in graphs_of(node):
            inner = origins.new_child(), ends.new_child()
            found = self.walk(branch, *inner, depth + 1)
            for name, value, slots in zip(node.output, branch.output, found, strict=False):
                ends[name] = ends.get(name, NOTHING) | slots
                origins[name] = origins.get(name, NOTHING) | inner[0].get(value.name, NOTHING)

    def recurrence(self, node: NodeProto, origins: Scope, ends: Scope) -> None:
        """Note the initial values of a recurrence, and its last ones."""
        self.count += 1
        for state, (given, made) in enumerate(states_of(node)):
            for name in origins.get(given, NOTHING):
                self.begins.setdefault(name, set()).add((self.count, state))
            if made:
                ends[made] = frozenset([(self.count, state)])


def states_of(node: NodeProto) -> Iterator[tuple[str, str]]:
    """For each state of a recurrence the value that it begins with and that of its end; empty where there is none."""
    if node.op_type in CELLS:
        return zip(named(node.input, INITIAL), named(node.output, LAST), strict=True)
    scanned = [one.i for one in node.attribute if one.name == "num_scan_inputs"] or [0]
    is_loop = node.op_type == "Loop"  # its first two inputs are the trip count and a condition
    given = node.input[2:] if is_loop else node.input[: max(0, len(node.input) - scanned[0])]
    return zip(given, node.output, strict=False)


def named(names: Sequence[str], first: int) -> list[str]:
    """The names of h and c from a place on."""
    return [names[place] if len(names) > place else "" for place in range(first, first + STATES)]
